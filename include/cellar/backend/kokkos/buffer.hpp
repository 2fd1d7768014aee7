// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/huge_pages.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace cellar::detail {

/// n elements in a memory space, not initialised. Move-only: a copied View is an alias, so copies of a block would
/// share memory.
template <class T, class MemorySpace>
class KokkosBlock {
public:
    using View = Kokkos::View<T*, MemorySpace>;

    KokkosBlock() = default;

    /// Allocates on the instance, hence on its device, if that reaches the memory space. If there is not enough memory,
    /// throws `std::bad_alloc`, after a fence: the caller is about to release memory that enqueued work may use.
    template <class ExecutionSpace>
    KokkosBlock(const ExecutionSpace& space, const char* label, std::size_t n) : view_{allocate(space, label, n)} {}

    KokkosBlock(KokkosBlock&& other) noexcept : view_{std::exchange(other.view_, View{})} {}
    KokkosBlock& operator=(KokkosBlock&& other) noexcept {
        view_ = std::exchange(other.view_, View{});
        return *this;
    }

    T* data() const { return view_.data(); }
    std::size_t size() const { return view_.extent(0); }
    const View& view() const { return view_; }

private:
    template <class ExecutionSpace>
    static View allocate(const ExecutionSpace& space, const char* label, std::size_t n) try {
        if constexpr (Kokkos::SpaceAccessibility<ExecutionSpace, MemorySpace>::accessible) {
            return View{Kokkos::view_alloc(space, Kokkos::WithoutInitializing, std::string{label}), n};
        } else {
            return View{Kokkos::view_alloc(Kokkos::WithoutInitializing, std::string{label}), n};
        }
    } catch (const std::runtime_error&) { // what Kokkos throws
        space.fence("cellar: out of memory");
        throw std::bad_alloc{};
    }

    View view_;
};

/// n elements in a memory space, all zero. Move-only.
template <class E, class MemorySpace>
class KokkosBuffer {
public:
    using View = typename KokkosBlock<E, MemorySpace>::View;

    template <class ExecutionSpace>
    KokkosBuffer(const ExecutionSpace& space, std::int64_t n) : block_{space, "cellar", static_cast<std::size_t>(n)} {
        if constexpr (std::is_same_v<MemorySpace, Kokkos::HostSpace>)
            prefer_huge_pages(block_.data(), static_cast<std::size_t>(n) * sizeof(E));
        Kokkos::deep_copy(space, view(), E{});
    }

    E* data() { return block_.data(); }
    const E* data() const { return block_.data(); }
    std::int64_t size() const { return static_cast<std::int64_t>(block_.size()); }
    const View& view() const { return block_.view(); }

private:
    KokkosBlock<E, MemorySpace> block_;
};

/// n elements in memory of the host that a device reaches, all zero. Move-only.
template <class E, class PinnedSpace>
class KokkosPinnedBuffer {
public:
    template <class ExecutionSpace>
    KokkosPinnedBuffer(const ExecutionSpace& space, std::int64_t n)
        : block_{space, "cellar: pinned", static_cast<std::size_t>(n)} {
        std::fill_n(block_.data(), block_.size(), E{});
    }

    E* data() { return block_.data(); }
    const E* data() const { return block_.data(); }
    std::int64_t size() const { return static_cast<std::int64_t>(block_.size()); }

private:
    KokkosBlock<E, PinnedSpace> block_;
};

} // namespace cellar::detail
