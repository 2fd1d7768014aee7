// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/base/view.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace cellar::detail::kernel {

/// N neighbouring elements, which a thread reads and writes at once. Kernels treat packs like elements.
template <class E, int N>
struct alignas(N * sizeof(E)) Pack {
    E elements[std::size_t{N}];

    Pack() = default;

    template <class T>
    CELLAR_FUNCTION explicit Pack(const Pack<T, N>& other) {
        for (int i = 0; i < N; ++i) elements[i] = static_cast<E>(other.elements[i]);
    }
};

/// How many elements of the larger of two types fit into 16 bytes, the most that a thread moves at once.
template <class E, class T>
inline constexpr int pack_width = 16 / static_cast<int>(sizeof(E) > sizeof(T) ? sizeof(E) : sizeof(T));

template <int N, class T>
using PackOf = std::conditional_t<std::is_const_v<T>, const Pack<std::remove_const_t<T>, N>, Pack<T, N>>;

template <int N, class E>
bool is_aligned_for_packs(const E* memory) {
    return reinterpret_cast<std::uintptr_t>(memory) % (N * sizeof(E)) == 0;
}

/// True if every head of the rows consists of whole, aligned packs.
template <int N, class T>
bool is_in_packs(const StridedView<T, 3>& rows) {
    return is_aligned_for_packs<N>(rows.pointer) && rows.extent(2) % N == 0 && rows.stride(0) % N == 0
           && rows.stride(1) % N == 0 && rows.stride(2) == 1;
}

template <int N, class T>
StridedView<PackOf<N, T>, 3> in_packs(const StridedView<T, 3>& rows) {
    return {reinterpret_cast<PackOf<N, T>*>(rows.pointer),
            {rows.extent(0), rows.extent(1), rows.extent(2) / N},
            {rows.stride(0) / N, rows.stride(1) / N, 1}};
}

} // namespace cellar::detail::kernel
