// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/backend/host/runs.hpp>
#include <cellar/backend/kokkos/buffer.hpp>
#include <cellar/backend/kokkos/device_attention.hpp>
#include <cellar/backend/kokkos/device_crc32.hpp>
#include <cellar/backend/kokkos/device_rows.hpp>
#include <cellar/backend/kokkos/device_units.hpp>
#include <cellar/backend/kokkos/launch.hpp>
#include <cellar/backend/kokkos/staged_list.hpp>
#include <cellar/base/attention_work.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/list_entry.hpp>
#include <cellar/base/plan.hpp>
#include <cellar/base/slot_copy.hpp>
#include <cellar/base/view.hpp>
#include <cellar/element/storage_format.hpp>
#include <cellar/kernel/copy_slots.hpp>
#include <cellar/kernel/pack.hpp>
#include <cellar/kernel/write_lists.hpp>
#include <cellar/kernel/write_mask.hpp>
#include <cellar/layout/mapping.hpp>
#include <cellar/shift/shift.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace cellar::detail {

/// True if the addresses and lengths of all rows are multiples of Word.
template <class Word>
bool in_words_of(std::span<const SlotRows> tensors) {
    constexpr auto size = static_cast<std::int64_t>(sizeof(Word));
    const auto aligned = [](const std::byte* address) {
        return reinterpret_cast<std::uintptr_t>(address) % alignof(Word) == 0;
    };
    return std::all_of(tensors.begin(), tensors.end(), [&](const SlotRows& rows) {
        return rows.bytes % size == 0 && rows.from_stride % size == 0 && rows.to_stride % size == 0
               && aligned(rows.from) && aligned(rows.to);
    });
}

/// Calls f(Word{}) with the widest word that all rows consist of. Rows of a model's elements have at least words of 2.
template <class F>
void with_slot_word(std::span<const SlotRows> tensors, F f) {
    if (in_words_of<kernel::SlotWord>(tensors)) return f(kernel::SlotWord{});
    if (in_words_of<kernel::SlotPart<std::uint32_t>>(tensors)) return f(kernel::SlotPart<std::uint32_t>{});
    if (in_words_of<kernel::SlotPart<std::uint16_t>>(tensors)) return f(kernel::SlotPart<std::uint16_t>{});
    f(std::byte{});
}

/// The work of a `KokkosBackend` on a device. Neighbouring threads access neighbouring memory, each 16 bytes where rows
/// are contiguous and aligned, else one element. Lists of cells and factors stay on the device between operations.
///
/// All functions enqueue on one instance. Before this is destroyed, a fence of it must follow the last one.
template <class ExecutionSpace, class MemorySpace, class Limits = DeviceLimits>
class KokkosDeviceWork {
public:
    static constexpr bool on_device = true;

    explicit KokkosDeviceWork(ExecutionSpace space) : space_{std::move(space)} {}

    /// See `ReservesPasses`.
    void reserve(std::int64_t tokens, std::int64_t cells) {
        cells_.reserve(space_, static_cast<std::size_t>(tokens));
        mask_bits_.reserve(space_, static_cast<std::size_t>(tokens * ((cells + 63) / 64)));
    }

    /// See `ReservesPlans`.
    void reserve_moves(std::int64_t cells) {
        moved_.reserve(space_, static_cast<std::size_t>(2 * cells));
        listed_.reserve(static_cast<std::size_t>(2 * cells));
    }

    template <ShiftPolicy Shift>
    void reserve_rotations(const Shift& shift, int layer, std::int64_t cells) {
        const std::size_t factors =
            static_cast<std::size_t>(shift.rotation(layer).pairs()) * sizeof(typename Shift::Factor);
        rotated_.reserve(space_, static_cast<std::size_t>(cells));
        listed_.reserve(static_cast<std::size_t>(cells));
        factors_.reserve(space_, factors);
        bytes_.reserve(factors);
    }

    /// See `ReservesSlots`.
    void reserve_slots(std::int64_t copies) {
        slot_copies_.reserve(space_, static_cast<std::size_t>(copies));
        last_slot_copies_.reserve(space_, static_cast<std::size_t>(copies));
    }

    /// See `UploadsCells`: uploads the list of cells that later scatters read, also those in a captured graph. Its
    /// address is fixed once `reserve` has made it long enough.
    void upload_cells(std::span<const Cell> cells) { cells_.upload(space_, cells); }

    template <LayoutMapping Mapping, StorageUnit E, class T>
    void scatter(const Mapping& mapping, KokkosBuffer<E, MemorySpace>& buffer, std::span<const Cell> cells,
                 StridedView<const T, 3> rows) {
        if (rows.size() != 0) copy_rows(mapping, buffer.data(), {cells_.upload(space_, cells)}, rows);
    }
    template <LayoutMapping Mapping, StorageUnit E, class T>
    void gather(const Mapping& mapping, const KokkosBuffer<E, MemorySpace>& buffer, std::span<const Cell> cells,
                StridedView<T, 3> rows) {
        if (rows.size() != 0) copy_rows(mapping, buffer.data(), {gathered_.upload(space_, cells)}, rows);
    }

    /// Runs that overlap themselves go through scratch memory, as many cells at once as it holds. All others are copied
    /// in one launch.
    template <LayoutMapping Mapping, StorageUnit E>
    void move(const Mapping& mapping, KokkosBuffer<E, MemorySpace>& buffer, std::span<const Move> moves) {
        if constexpr (moves_in_words<E>) {
            move_elements(in_words<E>(mapping), in_words(buffer.data()), moves);
        } else {
            move_elements(mapping, buffer.data(), moves);
        }
    }

    /// Consecutive rotations by the same delta are one launch.
    template <LayoutMapping Mapping, Element E, ShiftPolicy Shift>
    void rotate(const Mapping& mapping, KokkosBuffer<E, MemorySpace>& buffer, const Shift& shift, int layer,
                std::span<const KeyRotation> rotations) {
        const auto rotation = shift.rotation(layer);
        for_each_delta(shift, layer, rotations, [&](const auto* factors, kernel::CellList cells, std::int64_t n) {
            launch_rotate<Limits>(space_, mapping, buffer.data(), rotation, factors, cells, n);
        });
    }

    /// See `StoresFormat`.
    template <DeviceFormat F, class... Planes>
    void encode(std::span<const Cell> cells, StridedView<const float, 3> values, const float* factors,
                const Planes&... planes) {
        if (values.size() != 0)
            launch_values<F, kernel::EncodeHeads>("cellar: encode", {cells_.upload(space_, cells)}, values, factors,
                                                  planes...);
    }
    template <DeviceFormat F, class... Planes>
    void decode(std::span<const Cell> cells, StridedView<float, 3> values, const float* factors,
                const Planes&... planes) {
        if (values.size() != 0)
            launch_values<F, kernel::DecodeHeads>("cellar: decode", {gathered_.upload(space_, cells)}, values, factors,
                                                  planes...);
    }

    /// Consecutive rotations by the same delta are one launch.
    template <DeviceFormat F, ShiftPolicy Shift, class... Planes>
    void rotate_encoded(const Shift& shift, int layer, std::span<const KeyRotation> rotations,
                        const Planes&... planes) {
        const auto units = units_of<F>(planes...);
        const auto rotation = shift.rotation(layer);
        using Units = std::remove_const_t<decltype(units)>;
        using Kernel =
            kernel::RotateHeads<Units, std::remove_const_t<decltype(rotation)>, typename Shift::Factor, Team>;
        for_each_delta(shift, layer, rotations, [&](const auto* factors, kernel::CellList cells, std::int64_t n) {
            launch_heads<Limits>("cellar: rotate", space_, units, cells, n,
                                 [&](const auto& heads, std::int64_t, std::int32_t) {
                                     return Kernel{heads, rotation, factors};
                                 });
        });
    }

    /// One launch for every 8 tensors.
    void copy_slots(std::span<const SlotRows> tensors, std::span<const SlotCopy> copies) {
        if (copies.empty()) return;
        // get and put alternate between the same two lists in every layer, so both are kept on the device.
        std::swap(slot_copies_, last_slot_copies_);
        const SlotCopy* const list = slot_copies_.upload(space_, copies);
        constexpr std::size_t most = kernel::CopySlots<kernel::SlotWord>::max_tensors;
        for (; !tensors.empty(); tensors = tensors.subspan(std::min(most, tensors.size()))) {
            const auto some = tensors.first(std::min(most, tensors.size()));
            with_slot_word(some, [&]<class Word>(Word) { launch_copies<Word>(some, list, std::ssize(copies)); });
        }
    }

    /// See `WritesMasks`.
    template <class T>
    void write_mask(std::span<const std::uint64_t> bits, T visible, T hidden, StridedView<T, 2> mask) {
        if (mask.size() == 0) return;
        constexpr int width = kernel::pack_width<T, T>;
        const std::uint64_t* const words = mask_bits_.upload(space_, bits);
        if (mask.extent(1) % width == 0 && kernel::is_aligned_for_packs<width>(mask.pointer)) {
            write_packs<width>(words, visible, hidden, mask);
        } else {
            write_packs<1>(words, visible, hidden, mask);
        }
    }

    /// See `WritesLists`.
    using IndexBuffer = KokkosBuffer<std::int32_t, MemorySpace>;

    IndexBuffer allocate_indices(std::int64_t n) const { return IndexBuffer{space_, n}; }
    void reserve_entries(std::int64_t entries) { entries_.reserve(space_, static_cast<std::size_t>(entries)); }

    void write_entries(std::span<const ListEntry> entries, std::int32_t* list) {
        const kernel::WriteEntries write{entries_.upload(space_, entries), list};
        launch_elements<Limits, true>("cellar: lists", space_, write, std::ssize(entries), 1, 1);
    }

    void compress_rows(const ListRowsCopy& copy, std::int64_t entries) {
        launch_elements<Limits, true>("cellar: rows", space_, kernel::CompressRows{copy}, entries, 1, 1);
    }

    /// See `ComputesChecksums`. Allocates 1 KB at the first call.
    std::uint32_t crc32(const std::byte* bytes, std::int64_t n) {
        const std::uint32_t crc = crc32_.of(space_, bytes, n);
        fenced();
        return crc;
    }

    /// See `ComputesAttention`.
    void begin_attention(const AttentionLists& lists) { attention_.begin(space_, lists); }
    template <class Keys, class Values, class Q, class Out>
    void attend(const AttentionWork<Keys, Values, Q, Out>& work) {
        attention_.run(space_, work);
    }

    /// See `MergesAttention`: both work on one instance.
    bool shares_order(const KokkosDeviceWork& other) const { return space_ == other.space_; }
    float* prior_results(std::int64_t size) { return attention_.prior(space_, size); }

    const ExecutionSpace& space() const { return space_; }

    void fence() {
        space_.fence("cellar");
        fenced();
    }

protected:
    /// True if enqueued work may use memory of this object.
    bool has_memory() const {
        bool any = scratch_.size() != 0 || attention_.has_memory();
        for_each_list(*this, [&](const auto& list) { any = any || list.has_memory(); });
        return any;
    }

private:
    using Scratch = KokkosBlock<std::byte, MemorySpace>;
    using Team = typename Kokkos::TeamPolicy<ExecutionSpace>::member_type;
    template <class T>
    using List = StagedList<T, ExecutionSpace, MemorySpace>;

    template <class Self, class F>
    static void for_each_list(Self& self, F f) {
        f(self.cells_), f(self.gathered_), f(self.moved_), f(self.rotated_), f(self.factors_);
        f(self.slot_copies_), f(self.last_slot_copies_), f(self.mask_bits_), f(self.entries_);
    }

    /// Writes row i of `rows` to cells(i) if the rows are constant; else reads cells(i) into row i.
    template <class Mapping, class E, class T>
    void copy_rows(const Mapping& mapping, E* memory, kernel::CellList cells, const StridedView<T, 3>& rows) {
        if constexpr (moves_in_words<std::remove_const_t<E>>) {
            launch_unit_rows<Limits>(space_, mapping, memory, cells, rows);
        } else {
            launch_rows<Limits>(space_, mapping, memory, cells, rows);
        }
    }

    template <class F, template <class, class> class Kernel, class T, class... Planes>
    void launch_values(const char* name, kernel::CellList cells, const StridedView<T, 3>& values, const float* factors,
                       const Planes&... planes) {
        const auto units = units_of<F>(planes...);
        const auto make = [&](const auto& heads, std::int64_t first, std::int32_t count) {
            return Kernel<std::remove_const_t<decltype(units)>, Team>{heads, some_rows(values, first, count), factors};
        };
        launch_heads<Limits>(name, space_, units, cells, values.extent(0), make);
    }

    template <class Mapping, class E>
    void move_elements(const Mapping& mapping, E* memory, std::span<const Move> moves) {
        // All sources, then all targets, as one list. Runs that overlap themselves are after the others.
        listed_.clear();
        const std::int64_t apart = list_cells(moves, false, &Move::from);
        const std::int64_t count = apart + list_cells(moves, true, &Move::from);
        if (count == 0) return;
        list_cells(moves, false, &Move::to);
        list_cells(moves, true, &Move::to);
        const Cell* const from = moved_.upload(space_, listed_);
        const Cell* const to = from + count;
        launch_copy<Limits>(space_, mapping, memory, {from}, {to}, apart);
        move_in_order<Mapping, E>(mapping, memory, from + apart, to + apart, count - apart);
    }

    /// Calls f(factors, cells, count) for consecutive rotations by the same delta.
    template <class Shift, class F>
    void for_each_delta(const Shift& shift, int layer, std::span<const KeyRotation> rotations, F f) {
        const int pairs = shift.rotation(layer).pairs();
        if (pairs == 0) return;
        while (!rotations.empty()) {
            const std::int32_t delta = rotations.front().delta;
            listed_.clear();
            std::size_t n = 0;
            for (; n < rotations.size() && rotations[n].delta == delta; ++n)
                for (std::int32_t i = 0; i < rotations[n].count; ++i) listed_.push_back(rotations[n].first + i);
            rotations = rotations.subspan(n);
            if (listed_.empty()) continue;
            const auto* const factors = upload_factors(shift, layer, delta, pairs);
            f(factors, kernel::CellList{rotated_.upload(space_, listed_)}, std::ssize(listed_));
        }
    }

    template <class T>
    static StridedView<T, 3> some_rows(StridedView<T, 3> rows, std::int64_t first, std::int32_t count) {
        rows.pointer += first * rows.stride(0);
        rows.extents[0] = count;
        return rows;
    }

    /// Lists the sources or targets of the runs that overlap themselves or do not, in the order in which none is
    /// overwritten before it was read. Returns their number.
    std::int64_t list_cells(std::span<const Move> moves, bool overlapping, Cell Move::*first) {
        const std::int64_t before = std::ssize(listed_);
        for (const Move& run : moves) {
            if (overlaps(run) != overlapping || run.from == run.to) continue;
            for (std::int32_t i = 0; i < run.count; ++i)
                listed_.push_back(run.*first + (run.to < run.from ? i : run.count - 1 - i));
        }
        return std::ssize(listed_) - before;
    }

    /// Copies cell from[i] to cell to[i] in order: earlier sources may be later targets.
    template <class Mapping, class E>
    void move_in_order(const Mapping& mapping, E* memory, const Cell* from, const Cell* to, std::int64_t count) {
        const std::int64_t row = std::int64_t{mapping.heads()} * mapping.dim();
        const std::int64_t row_bytes = row * std::int64_t{sizeof(E)};
        if (count == 0 || row == 0) return;
        const std::int64_t most = std::min(count, std::max<std::int64_t>(Limits::scratch_bytes / row_bytes, 1));
        auto* const scratch = reinterpret_cast<E*>(scratch_of(most * row_bytes));
        for (std::int64_t first = 0; first < count; first += most) {
            const std::int64_t some = std::min(most, count - first);
            auto rows = contiguous_view(scratch, some, mapping.heads(), mapping.dim());
            if constexpr (contiguous_cells<Mapping>) // the order of the cells in memory
                rows = {scratch, {some, mapping.heads(), mapping.dim()}, {1, mapping.dim() * some, some}};
            launch_rows<Limits>(space_, mapping, memory, {from + first}, rows);
            launch_rows<Limits>(space_, mapping, memory, {to + first}, static_cast<StridedView<const E, 3>>(rows));
        }
    }

    /// Blocks and allocates if this is more than ever before.
    std::byte* scratch_of(std::int64_t bytes) {
        const auto size = static_cast<std::size_t>(bytes);
        if (size > scratch_.size()) {
            Scratch scratch{space_, "cellar: scratch", size};
            if (scratch_.size() != 0)
                space_.fence("cellar: more scratch memory"); // enqueued kernels use the old memory
            scratch_ = std::move(scratch);
        }
        return scratch_.data();
    }

    template <int N, class T>
    void write_packs(const std::uint64_t* bits, T visible, T hidden, StridedView<T, 2> mask) {
        auto* const packs = reinterpret_cast<kernel::Pack<T, N>*>(mask.pointer);
        const kernel::WriteMask<T, N> write{bits, visible, hidden, packs, mask.extent(1)};
        launch_elements<Limits, false>("cellar: mask", space_, write, mask.extent(0), 1, mask.extent(1) / N);
    }

    template <class Word>
    void launch_copies(std::span<const SlotRows> tensors, const SlotCopy* copies, std::int64_t count) {
        kernel::CopySlots<Word> copy{};
        copy.copies = copies;
        std::int64_t longest = 0;
        for (std::size_t i = 0; i < tensors.size(); ++i) {
            copy.tensors[i] = tensors[i];
            longest = std::max(longest, copy.words(tensors[i]));
        }
        launch_elements<Limits, false>("cellar: slots", space_, copy, count, std::ssize(tensors), longest);
    }

    template <class Shift>
    const typename Shift::Factor* upload_factors(const Shift& shift, int layer, std::int32_t delta, int pairs) {
        using Factor = typename Shift::Factor;
        bytes_.resize(static_cast<std::size_t>(pairs) * sizeof(Factor));
        for (int pair = 0; pair < pairs; ++pair) {
            const Factor factor = shift.factor(layer, pair, delta);
            std::memcpy(bytes_.data() + static_cast<std::size_t>(pair) * sizeof(Factor), &factor, sizeof(Factor));
        }
        return reinterpret_cast<const Factor*>(factors_.upload(space_, bytes_));
    }

    /// To be called when all work given to the space is done.
    void fenced() {
        for_each_list(*this, [](auto& list) { list.fenced(); });
        attention_.fenced();
    }

    ExecutionSpace space_;
    List<Cell> cells_{Limits::staging_bytes}; // of a pass's puts
    List<Cell> gathered_{Limits::staging_bytes};
    List<Cell> moved_{Limits::staging_bytes};   // sources and targets; apart from rotations, so that neither list is
    List<Cell> rotated_{Limits::staging_bytes}; // sent again in every layer
    List<std::byte> factors_{Limits::staging_bytes};
    List<SlotCopy> slot_copies_{Limits::staging_bytes};
    List<SlotCopy> last_slot_copies_{Limits::staging_bytes};
    List<std::uint64_t> mask_bits_{Limits::staging_bytes};
    List<ListEntry> entries_{Limits::staging_bytes};
    Scratch scratch_;
    DeviceAttention<ExecutionSpace, MemorySpace, Limits> attention_;
    DeviceCrc32<ExecutionSpace, MemorySpace, Limits> crc32_; // no work in flight uses it
    std::vector<Cell> listed_;                               // what is uploaded next
    std::vector<std::byte> bytes_;
};

} // namespace cellar::detail
