// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/view.hpp>
#include <cellar/element/detail/view_conversion.hpp>
#include <cellar/element/element.hpp>
#include <cellar/simd/convert.hpp>

#include <concepts>
#include <iterator>
#include <span>
#include <utility>

namespace cellar {

namespace detail {

template <class From, class To>
void convert_span(std::span<const From> from, std::span<To> to, Where where) {
    CELLAR_EXPECTS_AT(where, from.size() == to.size(), "convert: ", from.size(), " elements to ", to.size(),
                      ", expected as many");
    convert_run(from.data(), to.data(), std::ssize(from));
}

template <strided V>
using ElementOf = typename decltype(strided_view(std::declval<const V&>()))::value_type;

/// Views of equal rank, at least one of them of floats.
// clang-format off
template <class From, class To>
concept convertible_views =
    strided<From> && strided<To> && static_cast<int>(From::rank()) == static_cast<int>(To::rank())
    && Element<ElementOf<From>> && Element<ElementOf<To>>
    && (std::same_as<ElementOf<From>, float> || std::same_as<ElementOf<To>, float>);
// clang-format on

} // namespace detail

/// Converts from[i] to to[i], to the same bits as `static_cast`, with the processor's vector instructions: on x86-64
/// F16C and AVX2, if it has them (found at run time, whatever the compiler's flags), on 64-bit ARM those that every
/// processor has. Elsewhere it is a plain loop. The spans must be of equal size and must not overlap.
inline void convert(std::span<const half> from, std::span<float> to, Where where = Where::current()) {
    detail::convert_span(from, to, where);
}
inline void convert(std::span<const bfloat16> from, std::span<float> to, Where where = Where::current()) {
    detail::convert_span(from, to, where);
}
inline void convert(std::span<const float> from, std::span<half> to, Where where = Where::current()) {
    detail::convert_span(from, to, where);
}
inline void convert(std::span<const float> from, std::span<bfloat16> to, Where where = Where::current()) {
    detail::convert_span(from, to, where);
}
/// A copy, for code that is written for every element.
inline void convert(std::span<const float> from, std::span<float> to, Where where = Where::current()) {
    detail::convert_span(from, to, where);
}

/// The same for views of equal extents, of any layout: for example `pass.keys(layer)` and floats. Takes the vector
/// instructions where both views are contiguous along one and the same index: that of a cell's elements, or that of the
/// cells (values of `PermutedV`).
template <class From, class To>
    requires(detail::convertible_views<From, To>)
void convert(const From& from, const To& to, Where where = Where::current()) {
    constexpr int rank = static_cast<int>(From::rank());
    const StridedView<const detail::ElementOf<From>, rank> source = strided_view(from);
    const auto target = strided_view(to);
    for (int r = 0; r < rank; ++r)
        CELLAR_EXPECTS_AT(where, source.extent(r) == target.extent(r), "convert: extent ", r, " is ", source.extent(r),
                          ", expected ", target.extent(r), " as in the view to write");
    detail::convert_view(source, target);
}

} // namespace cellar
