// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "matrix.hpp"

namespace test_host_policies {

using namespace property;

namespace {

template <class Shift>
void check() {
    check_windows<cellar::StandardV<float>, Shift, cellar::HostBackend>("HostBackend, StandardV<float>");
}

} // namespace

TEST_CASE("every window with each shift of the library agrees with the naive model") {
    check<Disabled>();
    check<Unrotated>();
    check<Rotating<cellar::Neox>>();
    check<Rotating<cellar::Interleaved>>();
}

} // namespace test_host_policies
