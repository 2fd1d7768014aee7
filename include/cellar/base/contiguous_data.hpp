// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>

#include <cstdint>
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

/// The first element of rows [tokens, heads, dim] in the order of memory. Elements that lie apart are a violation.
/// So is an Eigen matrix by columns with a token in each row: neighbours have to be a head of a token, or whole tokens.
/// `call` and `what` are for the message.
template <class Range>
auto* contiguous_data(const char* call, const char* what, Range&& range, std::int64_t heads, std::int64_t dim) {
    CELLAR_EXPECTS(has_neighbours(range), call, ": the elements of the ", what,
                   " lie apart, expected neighbours or a view with strides");
    if constexpr (requires { range.innerSize(), range.outerSize(); }) {
        const auto inner = static_cast<std::int64_t>(range.innerSize());
        const bool is_vector = inner <= 1 || range.outerSize() <= 1;
        CELLAR_EXPECTS(is_vector || inner == dim || inner % (heads * dim) == 0, call, ": the ", what,
                       " are a matrix in which ", inner, " elements are neighbours, expected ", dim, " (a head) or ",
                       heads * dim, " (a token): by rows, or a token in each column");
    }
    return std::data(range);
}

} // namespace cellar::detail
