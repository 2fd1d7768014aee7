// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace cellar {

/// A view of strided memory that it does not own, with the accessors of `std::mdspan` (`rank()`, `data_handle()`,
/// `extent(r)`, `stride(r)`). Strides count elements. Trivially copyable, and usable in device code.
template <class T, int Rank>
struct StridedView {
    using element_type = T;
    using value_type = std::remove_cv_t<T>;

    T* pointer = nullptr;                         ///< of the element at 0, 0, ...
    std::int64_t extents[std::size_t{Rank}] = {}; ///< how many elements, in each direction
    std::int64_t strides[std::size_t{Rank}] = {}; ///< from one element to the next, in elements

    CELLAR_FUNCTION static constexpr int rank() { return Rank; }
    CELLAR_FUNCTION constexpr T* data_handle() const { return pointer; }
    CELLAR_FUNCTION constexpr std::int64_t extent(int r) const { return extents[r]; }
    CELLAR_FUNCTION constexpr std::int64_t stride(int r) const { return strides[r]; }

    /// The product of the extents.
    CELLAR_FUNCTION constexpr std::int64_t size() const {
        std::int64_t n = 1;
        for (int r = 0; r < Rank; ++r) n *= extents[r];
        return n;
    }

    /// True if the elements are densely packed, last index fastest.
    CELLAR_FUNCTION constexpr bool is_contiguous() const {
        std::int64_t expected = 1;
        for (int r = Rank - 1; r >= 0; --r) {
            if (extents[r] != 1 && strides[r] != expected) return false;
            expected *= extents[r];
        }
        return true;
    }

    /// The element at these indices, which are not checked.
    template <class... Indices>
        requires(sizeof...(Indices) == Rank)
    CELLAR_FUNCTION constexpr T& operator()(Indices... indices) const {
        const std::int64_t at[std::size_t{Rank}] = {static_cast<std::int64_t>(indices)...};
        std::int64_t offset = 0;
        for (int r = 0; r < Rank; ++r) offset += at[r] * strides[r];
        return pointer[offset];
    }

    /// A view of mutable elements converts to a view of constant elements.
    template <class Constant>
        requires(std::is_same_v<Constant, const T> && !std::is_const_v<T>)
    CELLAR_FUNCTION constexpr operator StridedView<Constant, Rank>() const {
        StridedView<const T, Rank> view;
        view.pointer = pointer;
        for (int r = 0; r < Rank; ++r) {
            view.extents[r] = extents[r];
            view.strides[r] = strides[r];
        }
        return view;
    }
};

/// A view of densely packed elements, last index fastest.
template <class T, class... Extents>
CELLAR_FUNCTION constexpr StridedView<T, sizeof...(Extents)> contiguous_view(T* pointer, Extents... extents) {
    constexpr int rank = sizeof...(Extents);
    StridedView<T, rank> view{pointer, {static_cast<std::int64_t>(extents)...}, {}};
    std::int64_t stride = 1;
    for (int r = rank - 1; r >= 0; --r) {
        view.strides[r] = stride;
        stride *= view.extents[r];
    }
    return view;
}

namespace detail {

/// A view with extents and strides, such as `std::mdspan` and those of other libraries.
// clang-format off
template <class V>
concept strided =
    requires(const V& v) { v.extent(0); v.stride(0); V::rank(); }
    && (requires(const V& v) { v.data_handle(); } || requires(const V& v) { v.data(); });
// clang-format on

} // namespace detail

/// The same memory as a `StridedView`.
template <class T, int Rank>
constexpr StridedView<T, Rank> strided_view(const StridedView<T, Rank>& v) {
    return v;
}
template <detail::strided V>
constexpr auto strided_view(const V& v) {
    constexpr int rank = static_cast<int>(V::rank());
    auto* const pointer = [&] {
        if constexpr (requires { v.data(); }) {
            return v.data();
        } else {
            return v.data_handle();
        }
    }();
    StridedView<std::remove_pointer_t<std::remove_const_t<decltype(pointer)>>, rank> view;
    view.pointer = pointer;
    for (int r = 0; r < rank; ++r) {
        view.extents[r] = static_cast<std::int64_t>(v.extent(static_cast<std::size_t>(r)));
        view.strides[r] = static_cast<std::int64_t>(v.stride(static_cast<std::size_t>(r)));
    }
    return view;
}

} // namespace cellar
