// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "matrix.hpp"

namespace test_host_blocked {

TEST_CASE("Blocked of half and float on HostBackend agrees with the naive model") {
    using Layout = cellar::Blocked<cellar::half, 4, float>;
    property::check_some_policies<Layout, cellar::HostBackend>("HostBackend, Blocked<half, 4, float>");
}

} // namespace test_host_blocked
