// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/view.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>

namespace cellar {

namespace detail {

template <class T, int Rank>
struct PointerTo {
    using type = typename PointerTo<T, Rank - 1>::type*;
};
template <class T>
struct PointerTo<T, 0> {
    using type = T;
};

} // namespace detail

/// The same memory as an unmanaged Kokkos View with strides, through which Kokkos kernels read keys, values, masks and
/// states.
template <class MemorySpace, class T, int Rank>
    requires(Rank >= 1 && Rank <= 8)
auto kokkos_view(const StridedView<T, Rank>& view) {
    using Data = typename detail::PointerTo<T, Rank>::type;
    using View = Kokkos::View<Data, Kokkos::LayoutStride, MemorySpace, Kokkos::MemoryUnmanaged>;
    Kokkos::LayoutStride layout;
    for (int r = 0; r < Rank; ++r) {
        layout.dimension[r] = static_cast<std::size_t>(view.extent(r));
        layout.stride[r] = static_cast<std::size_t>(view.stride(r));
    }
    return View{view.pointer, layout};
}

} // namespace cellar
