// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/backend/kokkos/buffer.hpp>
#include <cellar/backend/kokkos/device_work.hpp>
#include <cellar/backend/kokkos/host_work.hpp>
#include <cellar/backend/kokkos/staged_list.hpp>
#include <cellar/base/attention_work.hpp>
#include <cellar/element/storage_format.hpp>
#include <cellar/shift/shift.hpp>

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
using KokkosWorkOf = std::conditional_t<std::is_same_v<typename ExecutionSpace::memory_space, Kokkos::HostSpace>,
                                        KokkosHostWork<ExecutionSpace>, KokkosDeviceWork<ExecutionSpace, MemorySpace>>;

/// The memory of the host that the work of a device reaches; void if there is none.
template <class ExecutionSpace, class MemorySpace>
struct PinnedSpaceOf {
    using type =
        std::conditional_t<Kokkos::SpaceAccessibility<ExecutionSpace, PinnedSpace>::accessible, PinnedSpace, void>;
};

/// `KokkosBackend`, with the choice of who does the work.
template <class ExecutionSpace, class MemorySpace, class Work>
class BasicKokkosBackend {
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
    using Buffer = KokkosBuffer<E, MemorySpace>;

    /// True if the work reaches memory of the host that is allocated for that.
    static constexpr bool pins_host_memory =
        Work::on_device && !std::is_void_v<typename PinnedSpaceOf<ExecutionSpace, MemorySpace>::type>;

    template <StorageUnit E>
    using PinnedBuffer = KokkosPinnedBuffer<E, typename PinnedSpaceOf<ExecutionSpace, MemorySpace>::type>;

    explicit BasicKokkosBackend(ExecutionSpace space = ExecutionSpace{}) : space_{std::move(space)} {}
    BasicKokkosBackend(BasicKokkosBackend&&) noexcept = default;
    BasicKokkosBackend& operator=(BasicKokkosBackend&& other) noexcept {
        if (this == &other) return *this;
        finish();
        space_ = other.space_;
        work_ = std::move(other.work_);
        return *this;
    }
    ~BasicKokkosBackend() { finish(); }

    const ExecutionSpace& space() const { return space_; }

    template <StorageUnit E>
    Buffer<E> allocate(std::int64_t n) const {
        return Buffer<E>{space_, n};
    }

    /// See `PinsHostMemory`: in the `SharedHostPinnedSpace` of Kokkos. Blocks.
    template <StorageUnit E>
    PinnedBuffer<E> allocate_pinned(std::int64_t n) const requires(pins_host_memory) {
        return PinnedBuffer<E>{space_, n};
    }

    template <LayoutMapping Mapping, StorageUnit E, class T>
    void scatter(const Mapping& mapping, Buffer<E>& buffer, std::span<const Cell> cells, StridedView<const T, 3> rows) {
        if (rows.size() != 0) work_.scatter(space_, mapping, buffer.data(), cells, rows);
    }

    template <LayoutMapping Mapping, StorageUnit E, class T>
    void gather(const Mapping& mapping, const Buffer<E>& buffer, std::span<const Cell> cells, StridedView<T, 3> rows) {
        if (rows.size() != 0) work_.gather(space_, mapping, buffer.data(), cells, rows);
    }

    template <LayoutMapping Mapping, StorageUnit E>
    void move(const Mapping& mapping, Buffer<E>& buffer, std::span<const Move> moves) {
        work_.move(space_, mapping, buffer.data(), moves);
    }

    template <LayoutMapping Mapping, Element E, ShiftPolicy Shift>
    void rotate(const Mapping& mapping, Buffer<E>& buffer, const Shift& shift, int layer,
                std::span<const KeyRotation> rotations) {
        work_.rotate(space_, mapping, buffer.data(), shift, layer, rotations);
    }

    /// True if the functions of a format can be called where the work is done.
    template <class F>
    static constexpr bool encodes = !Work::on_device || DeviceFormat<F>;

    /// See `StoresFormat`.
    template <StorageFormat F, class... Planes>
    void encode(std::span<const Cell> cells, StridedView<const float, 3> values, const float* factors,
                const Planes&... planes) requires(encodes<F>) {
        if (values.size() != 0) work_.template encode<F>(space_, cells, values, factors, planes...);
    }
    template <StorageFormat F, class... Planes>
    void decode(std::span<const Cell> cells, StridedView<float, 3> values, const float* factors,
                const Planes&... planes) requires(encodes<F>) {
        if (values.size() != 0) work_.template decode<F>(space_, cells, values, factors, planes...);
    }
    template <StorageFormat F, ShiftPolicy Shift, class... Planes>
    void rotate_encoded(const Shift& shift, int layer, std::span<const KeyRotation> rotations,
                        const Planes&... planes) requires(encodes<F>) {
        work_.template rotate_encoded<F>(space_, shift, layer, rotations, planes...);
    }

    void copy_slots(std::span<const SlotRows> tensors, std::span<const SlotCopy> copies) {
        if (!copies.empty()) work_.copy_slots(space_, tensors, copies);
    }

    /// See `WritesMasks`. On the cores of the host, masks are written without the backend.
    template <class T>
    void write_mask(std::span<const std::uint64_t> bits, T visible, T hidden,
                    StridedView<T, 2> mask) requires(Work::on_device) {
        if (mask.size() != 0) work_.write_mask(space_, bits, visible, hidden, mask);
    }

    /// See `UploadsCells`: uploads the list of cells that later scatters read, also those in a captured graph. Its
    /// address is fixed once `reserve` has made it long enough.
    void upload_cells(std::span<const Cell> cells) requires(Work::on_device) {
        if (!cells.empty()) work_.upload_cells(space_, cells);
    }

    /// See `ReservesPasses`.
    void reserve(std::int64_t tokens, std::int64_t cells) requires(Work::on_device) {
        work_.reserve(space_, tokens, cells);
    }

    /// See `ReservesPlans`.
    void reserve_moves(std::int64_t cells) requires(Work::on_device) { work_.reserve_moves(space_, cells); }

    template <ShiftPolicy Shift>
    void reserve_rotations(const Shift& shift, int layer, std::int64_t cells) requires(Work::on_device) {
        work_.template reserve_rotations<typename Shift::Factor>(space_, shift.rotation(layer).pairs(), cells);
    }

    /// See `ReservesSlots`.
    void reserve_slots(std::int64_t copies) requires(Work::on_device) { work_.reserve_slots(space_, copies); }

    /// See `WritesLists`.
    using IndexBuffer = KokkosBuffer<std::int32_t, MemorySpace>;

    IndexBuffer allocate_indices(std::int64_t n) const requires(Work::on_device) { return IndexBuffer{space_, n}; }
    void reserve_entries(std::int64_t entries) requires(Work::on_device) { work_.reserve_entries(space_, entries); }
    void write_entries(std::span<const ListEntry> entries, std::int32_t* list) requires(Work::on_device) {
        if (!entries.empty()) work_.write_entries(space_, entries, list);
    }
    void compress_rows(const ListRowsCopy& copy, std::int64_t entries) requires(Work::on_device) {
        if (entries != 0) work_.compress_rows(space_, copy, entries);
    }

    /// See `ComputesChecksums`. Allocates 1 KB at the first call.
    std::uint32_t crc32(const std::byte* bytes, std::int64_t n) requires(Work::on_device) {
        const std::uint32_t crc = work_.crc32(space_, bytes, n);
        work_.fenced();
        return crc;
    }

    /// See `ComputesAttention`.
    void begin_attention(const AttentionLists& lists) requires(Work::on_device) {
        work_.attention().begin(space_, lists);
    }
    template <class Keys, class Values, class Q, class Out>
    void attend(const AttentionWork<Keys, Values, Q, Out>& work) requires(Work::on_device) {
        work_.attention().run(space_, work);
    }

    template <StorageUnit E>
    void copy_to_host(const Buffer<E>& buffer, std::int64_t first, std::span<E> to) {
        expect_within(buffer.size(), first, std::ssize(to));
        Kokkos::deep_copy(space_, HostView<E>{to.data(), to.size()}, part(buffer, first, to.size()));
        fence();
    }

    template <StorageUnit E>
    void copy_from_host(std::span<const E> from, Buffer<E>& buffer, std::int64_t first) {
        expect_within(buffer.size(), first, std::ssize(from));
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

    /// Waits for work that uses memory of this backend.
    void finish() {
        if constexpr (Work::on_device)
            if (work_.has_memory()) fence();
    }

    ExecutionSpace space_;
    Work work_;
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
template <class ExecutionSpace = Kokkos::DefaultExecutionSpace,
          class MemorySpace = typename ExecutionSpace::memory_space>
class KokkosBackend : public detail::BasicKokkosBackend<ExecutionSpace, MemorySpace,
                                                        detail::KokkosWorkOf<ExecutionSpace, MemorySpace>> {
public:
    explicit KokkosBackend(ExecutionSpace space = ExecutionSpace{})
        : detail::BasicKokkosBackend<ExecutionSpace, MemorySpace, detail::KokkosWorkOf<ExecutionSpace, MemorySpace>>{
            std::move(space)} {}
};

} // namespace cellar
