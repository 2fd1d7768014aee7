// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>

#include <iterator>

namespace cellar::detail {

/// False if the elements of a range lie apart, as those of a block of an Eigen matrix or of a Kokkos View with strides.
/// These have `data` and `size` like a vector.
template <class Range>
constexpr bool has_neighbours(const Range& range) {
    if constexpr (requires { range.innerStride(), range.outerStride(), range.innerSize(), range.outerSize(); }) {
        return range.size() == 0
               || ((range.innerSize() == 1 || range.innerStride() == 1)
                   && (range.outerSize() == 1 || range.outerStride() == range.innerSize() * range.innerStride()));
    } else if constexpr (requires { range.span_is_contiguous(); }) {
        return range.span_is_contiguous();
    } else {
        return true;
    }
}

/// The first element of rows whose elements are neighbours; anything else is a violation. `call` and `what` are for the
/// message.
template <class Range>
auto* contiguous_data(const char* call, const char* what, Range&& range) {
    CELLAR_EXPECTS(has_neighbours(range), call, ": the elements of the ", what,
                   " lie apart, expected neighbours or a view with strides");
    return std::data(range);
}

} // namespace cellar::detail
