// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/backend/kokkos/buffer.hpp>
#include <cellar/backend/kokkos/device_work.hpp>
#include <cellar/backend/kokkos/host_work.hpp>
#include <cellar/backend/kokkos/staged_list.hpp>
#include <cellar/element/storage_format.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <type_traits>
#include <utility>

namespace cellar {

namespace detail {

/// How a Kokkos space does the work: on the cores of the host, or on a device.
template <class ExecutionSpace, class MemorySpace>
using KokkosWorkOf =
    std::conditional_t<std::is_same_v<typename ExecutionSpace::memory_space, Kokkos::HostSpace>,
                       KokkosHostWork<ExecutionSpace, MemorySpace>, KokkosDeviceWork<ExecutionSpace, MemorySpace>>;

/// The memory of the host that the work of a device reaches; void if there is none.
template <class ExecutionSpace, class MemorySpace>
struct PinnedSpaceOf {
    using type =
        std::conditional_t<Kokkos::SpaceAccessibility<ExecutionSpace, PinnedSpace>::accessible, PinnedSpace, void>;
};

} // namespace detail

/// Memory and work of Kokkos: cores of the host (Serial, OpenMP, Threads) or a device (CUDA, HIP). All work goes, in
/// order, to the execution-space instance that the backend was made with; backends with different instances work side
/// by side. On a host, all work is done when an operation returns, and only `allocate` allocates.
///
/// On a device, operations enqueue. `fence`, the host copies, `allocate_pinned` and `crc32` block. An operation that
/// needs a longer list or more scratch memory than any before, and than was reserved, allocates it and may block. One
/// may also block if the program never fences, because staging memory is used again.
///
/// The backend and its buffers must be destroyed before `Kokkos::finalize`.
///
/// `Work`: who does it; tests choose. All operations on cells and rows are its own.
template <class ExecutionSpace = Kokkos::DefaultExecutionSpace,
          class MemorySpace = typename ExecutionSpace::memory_space,
          class Work = detail::KokkosWorkOf<ExecutionSpace, MemorySpace>>
class KokkosBackend : public Work {
    static_assert(Kokkos::SpaceAccessibility<ExecutionSpace, MemorySpace>::accessible,
                  "KokkosBackend: the execution space cannot reach the memory space");

public:
    using execution_space = ExecutionSpace;
    using memory_space = MemorySpace;

    /// Memory of a device counts as its own, also where the host could reach it.
    static constexpr bool host_reaches = !Work::on_device;

    /// True if rows in that memory space can be put and gathered.
    template <class Space>
    static constexpr bool reaches = Kokkos::SpaceAccessibility<ExecutionSpace, Space>::accessible;

    template <StorageUnit E>
    using Buffer = detail::KokkosBuffer<E, MemorySpace>;

    /// True if the work reaches memory of the host that is allocated for that.
    static constexpr bool pins_host_memory =
        Work::on_device && !std::is_void_v<typename detail::PinnedSpaceOf<ExecutionSpace, MemorySpace>::type>;

    template <StorageUnit E>
    using PinnedBuffer =
        detail::KokkosPinnedBuffer<E, typename detail::PinnedSpaceOf<ExecutionSpace, MemorySpace>::type>;

    explicit KokkosBackend(ExecutionSpace space = ExecutionSpace{}) : Work{std::move(space)} {}
    KokkosBackend(KokkosBackend&&) noexcept = default;
    KokkosBackend& operator=(KokkosBackend&& other) noexcept {
        if (this == &other) return *this;
        finish();
        Work::operator=(std::move(other));
        return *this;
    }
    ~KokkosBackend() { finish(); }

    template <StorageUnit E>
    Buffer<E> allocate(std::int64_t n) const {
        return Buffer<E>{this->space(), n};
    }

    /// See `PinsHostMemory`: in the `SharedHostPinnedSpace` of Kokkos. Blocks.
    template <StorageUnit E>
    PinnedBuffer<E> allocate_pinned(std::int64_t n) const requires(pins_host_memory) {
        return PinnedBuffer<E>{this->space(), n};
    }

    template <StorageUnit E>
    void copy_to_host(const Buffer<E>& buffer, std::int64_t first, std::span<E> to) {
        detail::expect_within(buffer.size(), first, std::ssize(to));
        Kokkos::deep_copy(this->space(), HostView<E>{to.data(), to.size()}, part(buffer, first, to.size()));
        this->fence();
    }

    template <StorageUnit E>
    void copy_from_host(std::span<const E> from, Buffer<E>& buffer, std::int64_t first) {
        detail::expect_within(buffer.size(), first, std::ssize(from));
        Kokkos::deep_copy(this->space(), part(buffer, first, from.size()), HostView<const E>{from.data(), from.size()});
        this->fence();
    }

private:
    template <class E>
    using HostView = Kokkos::View<E*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>;

    template <class E>
    static auto part(const Buffer<E>& buffer, std::int64_t first, std::size_t count) {
        const auto begin = static_cast<std::size_t>(first);
        return Kokkos::subview(buffer.view(), std::pair<std::size_t, std::size_t>{begin, begin + count});
    }

    /// Waits for work that uses memory of this backend.
    void finish() {
        if constexpr (Work::on_device)
            if (this->has_memory()) this->fence();
    }
};

} // namespace cellar
