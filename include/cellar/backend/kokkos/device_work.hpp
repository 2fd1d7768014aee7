// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/host_runs.hpp>
#include <cellar/backend/kokkos/launch.hpp>
#include <cellar/backend/kokkos/staged_list.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/plan.hpp>
#include <cellar/base/slot_copy.hpp>
#include <cellar/base/view.hpp>
#include <cellar/kernel/copy_cell.hpp>
#include <cellar/kernel/copy_slots.hpp>
#include <cellar/kernel/each_row.hpp>
#include <cellar/kernel/gather.hpp>
#include <cellar/kernel/move.hpp>
#include <cellar/kernel/pack.hpp>
#include <cellar/kernel/scatter.hpp>
#include <cellar/kernel/scatter_tile.hpp>
#include <cellar/kernel/turn.hpp>
#include <cellar/kernel/write_mask.hpp>
#include <cellar/layout/mapping.hpp>

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

namespace cellar {

namespace detail {

/// True if all rows lie at, and are as long as, a multiple of Word.
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

} // namespace detail

/// What a `KokkosBackend` does on a device: neighbouring threads work on neighbours in memory, each on 16 bytes where
/// rows lie together and are aligned, else on an element. The lists of cells and factors that kernels read are kept on
/// the device between verbs.
template <class ExecutionSpace, class MemorySpace>
class KokkosDeviceWork {
public:
    static constexpr bool on_device = true;

    /// Afterwards no pass of so many tokens that see so many cells makes a list grow.
    void reserve(const ExecutionSpace& space, std::int64_t tokens, std::int64_t cells) {
        cells_.reserve(space, static_cast<std::size_t>(tokens));
        mask_bits_.reserve(space, static_cast<std::size_t>(tokens * ((cells + 63) / 64)));
    }

    /// As the first scatter of a pass does.
    void send_cells(const ExecutionSpace& space, std::span<const Cell> cells) { cells_.send(space, cells); }

    template <class Mapping, class E, class T>
    void scatter(const ExecutionSpace& space, const Mapping& mapping, E* memory, std::span<const Cell> cells,
                 StridedView<const T, 3> rows) {
        const Cell* const to = cells_.send(space, cells);
        constexpr int width = kernel::pack_width<E, T>;
        if constexpr (Mapping::contiguous_rows) {
            if (kernel::is_in_packs<width>(rows) && kernel::is_aligned_for_packs<width>(memory)) {
                using Scatter = kernel::Scatter<CellsHeadsDims, kernel::Pack<E, width>, kernel::Pack<T, width>>;
                const CellsHeadsDims packs{mapping.cells(), mapping.heads(), mapping.dim() / width};
                const Scatter scatter{packs, reinterpret_cast<kernel::Pack<E, width>*>(memory), to,
                                      kernel::in_packs<width>(rows)};
                return launch<false>("cellar: packs", space, scatter, scatter.rows);
            }
        }
        if constexpr (Mapping::contiguous_cells) {
            // Few tokens leave a tile nearly empty.
            if (rows.stride(2) == 1 && rows.extent(0) >= worth_a_tile)
                return detail::launch_tiles<E>(space, kernel::ScatterTile<Mapping, E, T>{mapping, memory, to, rows});
        }
        const kernel::Scatter<Mapping, E, T> scatter{mapping, memory, to, rows};
        launch<Mapping::contiguous_cells>("cellar", space, scatter, rows);
    }

    template <class Mapping, class E, class T>
    void gather(const ExecutionSpace& space, const Mapping& mapping, const E* memory, std::span<const Cell> cells,
                StridedView<T, 3> rows) {
        const Cell* const from = from_.send(space, cells);
        constexpr int width = kernel::pack_width<E, T>;
        if constexpr (Mapping::contiguous_rows) {
            if (kernel::is_in_packs<width>(rows) && kernel::is_aligned_for_packs<width>(memory)) {
                using Gather = kernel::Gather<CellsHeadsDims, kernel::Pack<E, width>, kernel::Pack<T, width>>;
                const CellsHeadsDims packs{mapping.cells(), mapping.heads(), mapping.dim() / width};
                const Gather gather{packs, reinterpret_cast<const kernel::Pack<E, width>*>(memory), from,
                                    kernel::in_packs<width>(rows)};
                return launch<false>("cellar: packs", space, gather, gather.rows);
            }
        }
        const kernel::Gather<Mapping, E, T> gather{mapping, memory, from, rows};
        launch<Mapping::contiguous_cells>("cellar", space, gather, rows);
    }

    /// Runs that overlap themselves are moved one by one, the cells of all others in one launch.
    template <class Mapping, class E>
    void move(const ExecutionSpace& space, const Mapping& mapping, E* memory, std::span<const Move> moves) {
        sources_.clear();
        targets_.clear();
        for (const Move& run : moves) {
            if (run.from == run.to) continue;
            if (detail::overlaps(run)) {
                move_in_order(space, mapping, memory, run);
                continue;
            }
            for (std::int32_t i = 0; i < run.count; ++i) {
                sources_.push_back(run.from + i);
                targets_.push_back(run.to + i);
            }
        }
        if (sources_.empty()) return;
        const Cell* const from = from_.send(space, sources_);
        copy_cells(space, mapping, memory, from, to_.send(space, targets_), std::ssize(sources_));
    }

    /// Turns by the same delta that come one after another are one launch.
    template <class Mapping, class E, class Shift>
    void turn(const ExecutionSpace& space, const Mapping& mapping, E* memory, const Shift& shift, int layer,
              std::span<const Turn> turns) {
        using Factor = typename Shift::Factor;
        using Rotation = std::remove_cvref_t<decltype(shift.rotation(layer))>;
        const Rotation rotation = shift.rotation(layer);
        if (rotation.pairs() == 0) return;
        while (!turns.empty()) {
            const std::int32_t delta = turns.front().delta;
            sources_.clear();
            std::size_t n = 0;
            for (; n < turns.size() && turns[n].delta == delta; ++n)
                for (std::int32_t i = 0; i < turns[n].count; ++i) sources_.push_back(turns[n].first + i);
            turns = turns.subspan(n);
            if (sources_.empty()) continue;
            const kernel::Turn<Mapping, E, Rotation, Factor, kernel::CellList> turn{
                mapping,
                memory,
                rotation,
                factors(space, shift, layer, delta, rotation.pairs()),
                {from_.send(space, sources_)}};
            detail::launch_elements<Mapping::contiguous_cells>("cellar: turn", space, turn, std::ssize(sources_),
                                                               mapping.heads(), rotation.pairs());
        }
    }

    /// One launch for every 8 tensors.
    void copy_slots(const ExecutionSpace& space, std::span<const SlotRows> tensors, std::span<const SlotCopy> copies) {
        // A pass copies to and fro in turn, by the same two lists for every layer: both stay on the device.
        std::swap(slot_copies_, last_slot_copies_);
        const SlotCopy* const list = slot_copies_.send(space, copies);
        constexpr std::size_t most = kernel::CopySlots<kernel::SlotWord>::most_tensors;
        for (; !tensors.empty(); tensors = tensors.subspan(std::min(most, tensors.size()))) {
            const auto some = tensors.first(std::min(most, tensors.size()));
            if (detail::in_words_of<kernel::SlotWord>(some)) {
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
        const std::uint64_t* const words = mask_bits_.send(space, bits);
        if (mask.extent(1) % width == 0 && kernel::is_aligned_for_packs<width>(mask.pointer)) {
            write_packs<width>(space, words, visible, hidden, mask);
        } else {
            write_packs<1>(space, words, visible, hidden, mask);
        }
    }

    /// All work that was given to the space is done.
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
    static constexpr std::int64_t worth_a_tile = 16; // tokens

    template <bool CellsFastest, class Kernel, class T>
    static void launch(const char* name, const ExecutionSpace& space, const Kernel& kernel,
                       const StridedView<T, 3>& rows) {
        detail::launch_elements<CellsFastest>(name, space, kernel, rows.extent(0), rows.extent(1), rows.extent(2));
    }

    template <class Mapping, class E>
    static void copy_cells(const ExecutionSpace& space, const Mapping& mapping, E* memory, const Cell* from,
                           const Cell* to, std::int64_t cells) {
        constexpr int width = kernel::pack_width<E, E>;
        if constexpr (Mapping::contiguous_rows) {
            const int row = mapping.heads() * mapping.dim();
            if (row % width == 0 && kernel::is_aligned_for_packs<width>(memory)) {
                using Pack = kernel::Pack<E, width>;
                const CellsHeadsDims packs{mapping.cells(), 1, row / width};
                const kernel::CopyCell<CellsHeadsDims, Pack> copy{packs, reinterpret_cast<Pack*>(memory), from, to};
                return detail::launch_elements<false>("cellar: packs", space, copy, cells, 1, packs.dim());
            }
        }
        const kernel::CopyCell<Mapping, E> copy{mapping, memory, from, to};
        detail::launch_elements<Mapping::contiguous_cells>("cellar", space, copy, cells, mapping.heads(),
                                                           mapping.dim());
    }

    template <int N, class T>
    static void write_packs(const ExecutionSpace& space, const std::uint64_t* bits, T visible, T hidden,
                            StridedView<T, 2> mask) {
        auto* const packs = reinterpret_cast<kernel::Pack<T, N>*>(mask.pointer);
        const kernel::WriteMask<T, N> write{bits, visible, hidden, packs, mask.extent(1)};
        detail::launch_indices("cellar: mask", space, mask.size() / N, write);
    }

    template <class Mapping, class E>
    static void move_in_order(const ExecutionSpace& space, const Mapping& mapping, E* memory, const Move& run) {
        const std::int64_t rows = std::int64_t{mapping.heads()} * mapping.dim();
        const kernel::EachRow<kernel::Move<Mapping, E>> each{{mapping, memory, run}, mapping.dim()};
        detail::launch_indices("cellar: move", space, rows, each);
    }

    template <class Word>
    static void launch_copies(const ExecutionSpace& space, std::span<const SlotRows> tensors, const SlotCopy* copies,
                              std::int64_t count) {
        kernel::CopySlots<Word> copy{};
        for (const SlotRows& rows : tensors) {
            copy.tensors[copy.count] = rows;
            copy.words[copy.count++] = rows.bytes / static_cast<std::int64_t>(sizeof(Word));
        }
        copy.copies = copies;
        copy.copy_count = count;
        detail::launch_indices("cellar: slots", space, copy.size(), copy);
    }

    template <class Shift>
    const typename Shift::Factor* factors(const ExecutionSpace& space, const Shift& shift, int layer,
                                          std::int32_t delta, int pairs) {
        using Factor = typename Shift::Factor;
        bytes_.resize(static_cast<std::size_t>(pairs) * sizeof(Factor));
        for (int pair = 0; pair < pairs; ++pair) {
            const Factor factor = shift.factor(layer, pair, delta);
            std::memcpy(bytes_.data() + static_cast<std::size_t>(pair) * sizeof(Factor), &factor, sizeof(Factor));
        }
        return reinterpret_cast<const Factor*>(factors_.send(space, bytes_));
    }

    template <class T>
    using List = detail::StagedList<T, ExecutionSpace, MemorySpace>;

    List<Cell> cells_; // that are put
    List<Cell> from_;  // that are gathered, moved and turned, which may be many more
    List<Cell> to_;
    List<std::byte> factors_;
    List<SlotCopy> slot_copies_;
    List<SlotCopy> last_slot_copies_;
    List<std::uint64_t> mask_bits_;
    std::vector<Cell> sources_;
    std::vector<Cell> targets_;
    std::vector<std::byte> bytes_;
};

} // namespace cellar
