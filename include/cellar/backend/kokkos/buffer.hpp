// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/huge_pages.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace cellar::detail {

/// n elements in a memory space, all zero. Move-only: a copied View is an alias, so copies of a buffer would share
/// memory.
template <class E, class MemorySpace>
class KokkosBuffer {
public:
    using View = Kokkos::View<E*, MemorySpace>;

    template <class ExecutionSpace>
    KokkosBuffer(const ExecutionSpace& space, std::int64_t n)
        : view_{Kokkos::view_alloc(space, Kokkos::WithoutInitializing, "cellar"), static_cast<std::size_t>(n)} {
        if constexpr (std::is_same_v<MemorySpace, Kokkos::HostSpace>)
            prefer_huge_pages(view_.data(), static_cast<std::size_t>(n) * sizeof(E));
        Kokkos::deep_copy(space, view_, E{});
    }

    KokkosBuffer(KokkosBuffer&& other) noexcept : view_{std::exchange(other.view_, View{})} {}
    KokkosBuffer& operator=(KokkosBuffer&& other) noexcept {
        view_ = std::exchange(other.view_, View{});
        return *this;
    }

    E* data() { return view_.data(); }
    const E* data() const { return view_.data(); }
    std::int64_t size() const { return static_cast<std::int64_t>(view_.extent(0)); }
    const View& view() const { return view_; }

private:
    View view_;
};

} // namespace cellar::detail
