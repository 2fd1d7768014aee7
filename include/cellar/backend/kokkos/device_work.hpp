// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/host/runs.hpp>
#include <cellar/backend/kokkos/device_rows.hpp>
#include <cellar/backend/kokkos/launch.hpp>
#include <cellar/backend/kokkos/staged_list.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/plan.hpp>
#include <cellar/base/slot_copy.hpp>
#include <cellar/base/view.hpp>
#include <cellar/kernel/copy_slots.hpp>
#include <cellar/kernel/pack.hpp>
#include <cellar/kernel/write_mask.hpp>

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

/// The work of a `KokkosBackend` on a device. Neighbouring threads access neighbouring memory, each 16 bytes where rows
/// are contiguous and aligned, else one element. Lists of cells and factors stay on the device between operations.
template <class ExecutionSpace, class MemorySpace>
class KokkosDeviceWork {
public:
    static constexpr bool on_device = true;

    /// Afterwards, no pass of at most that many tokens and visible cells makes a list grow.
    void reserve(const ExecutionSpace& space, std::int64_t tokens, std::int64_t cells) {
        cells_.reserve(space, static_cast<std::size_t>(tokens));
        mask_bits_.reserve(space, static_cast<std::size_t>(tokens * ((cells + 63) / 64)));
    }

    /// What the first scatter of a pass does otherwise.
    void upload_cells(const ExecutionSpace& space, std::span<const Cell> cells) { cells_.upload(space, cells); }

    template <class Mapping, class E, class T>
    void scatter(const ExecutionSpace& space, const Mapping& mapping, E* memory, std::span<const Cell> cells,
                 StridedView<const T, 3> rows) {
        launch_rows(space, mapping, memory, {cells_.upload(space, cells)}, rows);
    }

    template <class Mapping, class E, class T>
    void gather(const ExecutionSpace& space, const Mapping& mapping, const E* memory, std::span<const Cell> cells,
                StridedView<T, 3> rows) {
        launch_rows(space, mapping, memory, {from_.upload(space, cells)}, rows);
    }

    /// Runs that overlap themselves go through scratch memory, as many cells at once as it holds. All others are copied
    /// in one launch.
    template <class Mapping, class E>
    void move(const ExecutionSpace& space, const Mapping& mapping, E* memory, std::span<const Move> moves) {
        sources_.clear();
        targets_.clear();
        for (const Move& run : moves)
            if (!overlaps(run)) list(run);
        const std::int64_t apart = std::ssize(sources_);
        for (const Move& run : moves)
            if (overlaps(run) && run.from != run.to) list(run);
        if (sources_.empty()) return;
        const Cell* const from = from_.upload(space, sources_);
        const Cell* const to = to_.upload(space, targets_);
        launch_copy(space, mapping, memory, {from}, {to}, apart);
        move_in_order<Mapping, E>(space, mapping, memory, from + apart, to + apart, std::ssize(sources_) - apart);
    }

    /// Consecutive rotations by the same delta are one launch.
    template <class Mapping, class E, class Shift>
    void rotate(const ExecutionSpace& space, const Mapping& mapping, E* memory, const Shift& shift, int layer,
                std::span<const KeyRotation> rotations) {
        const auto rotation = shift.rotation(layer);
        if (rotation.pairs() == 0) return;
        while (!rotations.empty()) {
            const std::int32_t delta = rotations.front().delta;
            sources_.clear();
            std::size_t n = 0;
            for (; n < rotations.size() && rotations[n].delta == delta; ++n)
                for (std::int32_t i = 0; i < rotations[n].count; ++i) sources_.push_back(rotations[n].first + i);
            rotations = rotations.subspan(n);
            if (sources_.empty()) continue;
            const auto* const factors = upload_factors(space, shift, layer, delta, rotation.pairs());
            launch_rotate(space, mapping, memory, rotation, factors, {from_.upload(space, sources_)},
                          std::ssize(sources_));
        }
    }

    /// One launch for every 8 tensors.
    void copy_slots(const ExecutionSpace& space, std::span<const SlotRows> tensors, std::span<const SlotCopy> copies) {
        // get and put alternate between the same two lists in every layer, so both are kept on the device.
        std::swap(slot_copies_, last_slot_copies_);
        const SlotCopy* const list = slot_copies_.upload(space, copies);
        constexpr std::size_t most = kernel::CopySlots<kernel::SlotWord>::max_tensors;
        for (; !tensors.empty(); tensors = tensors.subspan(std::min(most, tensors.size()))) {
            const auto some = tensors.first(std::min(most, tensors.size()));
            if (in_words_of<kernel::SlotWord>(some)) {
                launch_copies<kernel::SlotWord>(space, some, list, std::ssize(copies));
            } else {
                launch_copies<std::byte>(space, some, list, std::ssize(copies));
            }
        }
    }

    template <class T>
    void write_mask(const ExecutionSpace& space, std::span<const std::uint64_t> bits, T visible, T hidden,
                    StridedView<T, 2> mask) {
        constexpr int width = kernel::pack_width<T, T>;
        const std::uint64_t* const words = mask_bits_.upload(space, bits);
        if (mask.extent(1) % width == 0 && kernel::is_aligned_for_packs<width>(mask.pointer)) {
            write_packs<width>(space, words, visible, hidden, mask);
        } else {
            write_packs<1>(space, words, visible, hidden, mask);
        }
    }

    /// To be called when all work given to the space is done.
    void fenced() {
        cells_.fenced();
        from_.fenced();
        to_.fenced();
        factors_.fenced();
        slot_copies_.fenced();
        last_slot_copies_.fenced();
        mask_bits_.fenced();
    }

private:
    // Small enough for a device's cache, large enough for a launch to pay.
    static constexpr std::int64_t scratch_bytes = std::int64_t{4} << 20;

    /// Lists the cells of a run, in the order in which none is overwritten before it was read.
    void list(const Move& run) {
        for (std::int32_t i = 0; i < run.count; ++i) {
            const std::int32_t cell = run.to < run.from ? i : run.count - 1 - i;
            sources_.push_back(run.from + cell);
            targets_.push_back(run.to + cell);
        }
    }

    /// Copies cell from[i] to cell to[i] in order: earlier sources may be later targets.
    template <class Mapping, class E>
    void move_in_order(const ExecutionSpace& space, const Mapping& mapping, E* memory, const Cell* from, const Cell* to,
                       std::int64_t count) {
        const std::int64_t row = std::int64_t{mapping.heads()} * mapping.dim();
        const std::int64_t row_bytes = row * std::int64_t{sizeof(E)};
        if (count == 0 || row == 0) return;
        const std::int64_t most = std::min(count, std::max<std::int64_t>(scratch_bytes / row_bytes, 1));
        auto* const scratch = reinterpret_cast<E*>(scratch_of(space, most * row_bytes));
        for (std::int64_t first = 0; first < count; first += most) {
            const std::int64_t some = std::min(most, count - first);
            auto rows = contiguous_view(scratch, some, mapping.heads(), mapping.dim());
            if constexpr (Mapping::contiguous_cells) // the order of the cells in memory
                rows = {scratch, {some, mapping.heads(), mapping.dim()}, {1, mapping.dim() * some, some}};
            launch_rows(space, mapping, memory, {from + first}, rows);
            launch_rows(space, mapping, memory, {to + first}, static_cast<StridedView<const E, 3>>(rows));
        }
    }

    /// Blocks and allocates if this is more than ever before.
    std::byte* scratch_of(const ExecutionSpace& space, std::int64_t bytes) {
        const auto size = static_cast<std::size_t>(bytes);
        if (size > scratch_.extent(0)) {
            Scratch scratch{Kokkos::view_alloc("cellar: scratch", Kokkos::WithoutInitializing), size};
            space.fence("cellar: more scratch memory"); // enqueued kernels use the old memory
            scratch_ = std::move(scratch);
        }
        return scratch_.data();
    }

    template <int N, class T>
    static void write_packs(const ExecutionSpace& space, const std::uint64_t* bits, T visible, T hidden,
                            StridedView<T, 2> mask) {
        auto* const packs = reinterpret_cast<kernel::Pack<T, N>*>(mask.pointer);
        const kernel::WriteMask<T, N> write{bits, visible, hidden, packs, mask.extent(1)};
        launch_elements<false>("cellar: mask", space, write, mask.extent(0), 1, mask.extent(1) / N);
    }

    template <class Word>
    static void launch_copies(const ExecutionSpace& space, std::span<const SlotRows> tensors, const SlotCopy* copies,
                              std::int64_t count) {
        kernel::CopySlots<Word> copy{};
        copy.copies = copies;
        std::int64_t longest = 0;
        for (std::size_t i = 0; i < tensors.size(); ++i) {
            copy.tensors[i] = tensors[i];
            longest = std::max(longest, copy.words(tensors[i]));
        }
        launch_elements<false>("cellar: slots", space, copy, count, std::ssize(tensors), longest);
    }

    template <class Shift>
    const typename Shift::Factor* upload_factors(const ExecutionSpace& space, const Shift& shift, int layer,
                                                 std::int32_t delta, int pairs) {
        using Factor = typename Shift::Factor;
        bytes_.resize(static_cast<std::size_t>(pairs) * sizeof(Factor));
        for (int pair = 0; pair < pairs; ++pair) {
            const Factor factor = shift.factor(layer, pair, delta);
            std::memcpy(bytes_.data() + static_cast<std::size_t>(pair) * sizeof(Factor), &factor, sizeof(Factor));
        }
        return reinterpret_cast<const Factor*>(factors_.upload(space, bytes_));
    }

    using Scratch = Kokkos::View<std::byte*, MemorySpace>;
    template <class T>
    using List = StagedList<T, ExecutionSpace, MemorySpace>;

    List<Cell> cells_; // of a pass's puts
    List<Cell> from_;  // of gathers, moves and rotations, which may be many more
    List<Cell> to_;
    List<std::byte> factors_;
    List<SlotCopy> slot_copies_;
    List<SlotCopy> last_slot_copies_;
    List<std::uint64_t> mask_bits_;
    Scratch scratch_;
    std::vector<Cell> sources_;
    std::vector<Cell> targets_;
    std::vector<std::byte> bytes_;
};

} // namespace cellar::detail
