// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/view.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <version>

#ifdef __cpp_lib_mdspan
#include <mdspan>

namespace cellar {

/// The same memory as a `std::mdspan`, if the standard library has it (C++23). All strides must be at least 1, as those
/// of keys, values and masks are. (In the other direction, `put` takes any mdspan.)
template <class T, int Rank>
constexpr auto to_mdspan(const StridedView<T, Rank>& view) {
    using Extents = std::dextents<std::int64_t, static_cast<std::size_t>(Rank)>;
    using Mapping = std::layout_stride::mapping<Extents>;
    std::array<std::int64_t, static_cast<std::size_t>(Rank)> extents{};
    std::array<std::int64_t, static_cast<std::size_t>(Rank)> strides{};
    for (int r = 0; r < Rank; ++r) {
        extents[static_cast<std::size_t>(r)] = view.extent(r);
        strides[static_cast<std::size_t>(r)] = view.stride(r);
    }
    return std::mdspan<T, Extents, std::layout_stride>{view.pointer, Mapping{Extents{extents}, strides}};
}

} // namespace cellar
#endif
