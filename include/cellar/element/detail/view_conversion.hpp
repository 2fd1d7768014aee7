// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/view.hpp>
#include <cellar/simd/convert.hpp>

#include <cstdint>
#include <utility>

namespace cellar::detail {

/// Converts runs of n elements, one for each index of the extents from `Index` on.
template <int Index, class From, class To, int Rank>
void convert_runs(StridedView<const From, Rank> from, StridedView<To, Rank> to, std::int64_t n) {
    if constexpr (Index == Rank) {
        convert_run(from.pointer, to.pointer, n);
    } else {
        for (std::int64_t i = 0; i < from.extent(Index); ++i) {
            convert_runs<Index + 1>(from, to, n);
            from.pointer += from.stride(Index);
            to.pointer += to.stride(Index);
        }
    }
}

/// Joins the indices along which both views are contiguous to runs, and converts these.
template <class From, class To, int Rank>
void convert_view(StridedView<const From, Rank> from, StridedView<To, Rank> to) {
    std::int64_t run = 1;
    for (int joined = 0; joined < Rank; ++joined) {
        for (int r = 0; r < Rank; ++r) {
            if (from.extent(r) < 2 || from.stride(r) != run || to.stride(r) != run) continue;
            run *= std::exchange(from.extents[r], 1);
        }
    }
    convert_runs<0>(from, to, run);
}

} // namespace cellar::detail
