// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>

#include <cstdint>

namespace cellar::detail {

/// The last index in [0, n) for which `holds`, n > 0: it holds up to some index, and for none after it. 0 if it holds
/// for none. O(log n), without branches that a device's threads would take differently.
#ifdef __CUDACC__
#pragma nv_exec_check_disable // on the host, `holds` may be a function of the host
#endif
template <class Holds>
CELLAR_FUNCTION std::int32_t last_where(std::int32_t n, const Holds& holds) {
    std::int32_t at = 0;
    while (n > 1) {
        const std::int32_t below = n / 2;
        const bool is_there = holds(at + below);
        at = is_there ? at + below : at;
        n = is_there ? n - below : below;
    }
    return at;
}

} // namespace cellar::detail
