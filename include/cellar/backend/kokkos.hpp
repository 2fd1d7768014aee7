// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/backend/kokkos/buffer.hpp>
#include <cellar/backend/kokkos/device_work.hpp>
#include <cellar/backend/kokkos/host_work.hpp>
#include <cellar/backend/kokkos/view.hpp>
#include <cellar/shift/shift.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <type_traits>
#include <utility>

namespace cellar {

/// How a space of Kokkos goes about it, where nothing else is asked for.
template <class ExecutionSpace, class MemorySpace>
using KokkosWorkOf = std::conditional_t<std::is_same_v<typename ExecutionSpace::memory_space, Kokkos::HostSpace>,
                                        KokkosHostWork<ExecutionSpace>, KokkosDeviceWork<ExecutionSpace, MemorySpace>>;

/// Memory and work of Kokkos: cores of the host (Serial, OpenMP, Threads) or a device (CUDA, HIP). Work goes, in order,
/// to the execution-space instance that the backend was made with; backends with instances of their own work side by
/// side. Only `fence` and the host copies block, and on a device now and then the reuse of staging memory, if the program
/// never does either. Nothing is allocated but by `allocate`, and on a device when a list of cells is longer than any
/// before, or than was reserved.
///
/// It has to be gone, and its buffers with it, before `Kokkos::finalize`.
template <class ExecutionSpace = Kokkos::DefaultExecutionSpace,
          class MemorySpace = typename ExecutionSpace::memory_space,
          class Work = KokkosWorkOf<ExecutionSpace, MemorySpace>>
class KokkosBackend {
    static_assert(Kokkos::SpaceAccessibility<ExecutionSpace, MemorySpace>::accessible,
                  "KokkosBackend: the execution space cannot reach the memory space");

public:
    using execution_space = ExecutionSpace;
    using memory_space = MemorySpace;

    /// True if rows in that memory space can be put and gathered.
    template <class Space>
    static constexpr bool reaches = Kokkos::SpaceAccessibility<ExecutionSpace, Space>::accessible;

    template <element E>
    using Buffer = KokkosBuffer<E, MemorySpace>;

    explicit KokkosBackend(ExecutionSpace space = ExecutionSpace{}) : space_{std::move(space)} {}

    const ExecutionSpace& space() const { return space_; }

    template <element E>
    Buffer<E> allocate(std::int64_t n) const {
        return Buffer<E>{space_, n};
    }

    template <mapping Mapping, element E, class T>
    void scatter(const Mapping& mapping, Buffer<E>& buffer, std::span<const Cell> cells, StridedView<const T, 3> rows) {
        if (rows.size() != 0) work_.scatter(space_, mapping, buffer.data(), cells, rows);
    }

    template <mapping Mapping, element E, class T>
    void gather(const Mapping& mapping, const Buffer<E>& buffer, std::span<const Cell> cells, StridedView<T, 3> rows) {
        if (rows.size() != 0) work_.gather(space_, mapping, buffer.data(), cells, rows);
    }

    template <mapping Mapping, element E>
    void move(const Mapping& mapping, Buffer<E>& buffer, std::span<const Move> moves) {
        work_.move(space_, mapping, buffer.data(), moves);
    }

    template <mapping Mapping, element E, shift_policy Shift>
    void turn(const Mapping& mapping, Buffer<E>& buffer, const Shift& shift, int layer, std::span<const Turn> turns) {
        work_.turn(space_, mapping, buffer.data(), shift, layer, turns);
    }

    void copy_slots(std::span<const SlotRows> tensors, std::span<const SlotCopy> copies) {
        if (!copies.empty()) work_.copy_slots(space_, tensors, copies);
    }

    /// Masks are written by the device into its own memory. On the cores of the host they need no backend.
    template <class T>
    void write_mask(std::span<const std::uint64_t> bits, T visible, T hidden,
                    StridedView<T, 2> mask) requires(Work::on_device) {
        if (mask.size() != 0) work_.write_mask(space_, bits, visible, hidden, mask);
    }

    /// Enqueues: the list of cells that scatters read from now on, also those in a graph that was captured. It lies at
    /// one address, if `reserve` has made it long enough.
    void send_cells(std::span<const Cell> cells) requires(Work::on_device) {
        if (!cells.empty()) work_.send_cells(space_, cells);
    }

    void reserve(std::int64_t tokens, std::int64_t cells) requires(Work::on_device) {
        work_.reserve(space_, tokens, cells);
    }

    template <element E>
    void copy_to_host(const Buffer<E>& buffer, std::int64_t first, std::span<E> to) {
        detail::expect_within(buffer.size(), first, std::ssize(to));
        Kokkos::deep_copy(space_, HostView<E>{to.data(), to.size()}, part(buffer, first, to.size()));
        fence();
    }

    template <element E>
    void copy_from_host(std::span<const E> from, Buffer<E>& buffer, std::int64_t first) {
        detail::expect_within(buffer.size(), first, std::ssize(from));
        Kokkos::deep_copy(space_, part(buffer, first, from.size()), HostView<const E>{from.data(), from.size()});
        fence();
    }

    void fence() {
        space_.fence("cellar");
        work_.fenced();
    }

private:
    template <class E>
    using HostView = Kokkos::View<E*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>;

    template <class E>
    static auto part(const Buffer<E>& buffer, std::int64_t first, std::size_t count) {
        const auto begin = static_cast<std::size_t>(first);
        return Kokkos::subview(buffer.view(), std::pair<std::size_t, std::size_t>{begin, begin + count});
    }

    ExecutionSpace space_;
    Work work_;
};

} // namespace cellar
