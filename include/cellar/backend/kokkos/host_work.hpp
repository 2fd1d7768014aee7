// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/host/encoded.hpp>
#include <cellar/backend/host/lines.hpp>
#include <cellar/backend/host/rotate.hpp>
#include <cellar/backend/host/rows.hpp>
#include <cellar/backend/host/runs.hpp>
#include <cellar/backend/kokkos/buffer.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/plan.hpp>
#include <cellar/base/slot_copy.hpp>
#include <cellar/base/view.hpp>
#include <cellar/element/storage_format.hpp>
#include <cellar/layout/mapping.hpp>
#include <cellar/shift/shift.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <utility>

namespace cellar::detail {

/// Calls `piece(begin, end)` for ranges that make up [0, cells): whole blocks of rows, each large enough for a thread.
/// Small work is done by the calling thread.
template <class ExecutionSpace, class Piece>
void in_pieces(const ExecutionSpace& space, std::int64_t cells, std::int64_t bytes_per_cell, const Piece& piece) {
    constexpr std::int64_t min_bytes_per_thread = std::int64_t{32} * 1024;
    constexpr std::int64_t whole = WideBlocks::cells;
    const std::int64_t max = std::int64_t{2} * space.concurrency();
    const std::int64_t wanted = std::min(max, cells * bytes_per_cell / min_bytes_per_thread);
    if (space.concurrency() == 1 || wanted <= 1) return piece(0, cells);
    const std::int64_t length = ((cells + wanted - 1) / wanted + whole - 1) / whole * whole;
    using Policy =
        Kokkos::RangePolicy<ExecutionSpace, Kokkos::IndexType<std::int64_t>, Kokkos::Schedule<Kokkos::Static>>;
    Kokkos::parallel_for("cellar", Policy(space, 0, (cells + length - 1) / length),
                         [&](std::int64_t i) { piece(i * length, std::min(cells, (i + 1) * length)); });
}

/// Copies chunks [begin, end) of the rows, one tensor after another.
struct CopySlotsPiece {
    static constexpr std::int64_t chunk_bytes = 4096;

    std::span<const SlotRows> tensors;
    std::span<const SlotCopy> copies;

    static std::int64_t chunks(const SlotRows& rows) { return (rows.bytes + chunk_bytes - 1) / chunk_bytes; }

    std::int64_t size() const {
        std::int64_t sum = 0;
        for (const SlotRows& rows : tensors) sum += chunks(rows) * std::ssize(copies);
        return sum;
    }

    void operator()(std::int64_t begin, std::int64_t end) const {
        for (const SlotRows& rows : tensors) {
            const std::int64_t all = chunks(rows) * std::ssize(copies);
            for (std::int64_t i = begin; i < std::min(end, all); ++i) {
                const std::int64_t first = i % chunks(rows) * chunk_bytes;
                copy_row(rows, copies[static_cast<std::size_t>(i / chunks(rows))], first,
                         std::min(chunk_bytes, rows.bytes - first));
            }
            begin = std::max<std::int64_t>(begin - all, 0);
            end -= all;
        }
    }
};

/// The work of a `KokkosBackend` on the cores of the host: the routines of `HostBackend`, divided among threads. In
/// these execution spaces a kernel is done when its launch returns, so pieces may point to the caller's memory.
template <class ExecutionSpace, class MemorySpace>
class KokkosHostWork {
public:
    static constexpr bool on_device = false;

    explicit KokkosHostWork(ExecutionSpace space) : space_{std::move(space)} {}

    template <LayoutMapping Mapping, StorageUnit E, class T>
    void scatter(const Mapping& mapping, KokkosBuffer<E, MemorySpace>& buffer, std::span<const Cell> cells,
                 StridedView<const T, 3> rows) const {
        in_pieces(space_, std::ssize(cells), row_bytes<E>(mapping), [&](std::int64_t begin, std::int64_t end) {
            scatter_rows(mapping, buffer.data(), cells_from(cells, begin, end), rows_from(rows, begin, end));
        });
    }

    template <LayoutMapping Mapping, StorageUnit E, class T>
    void gather(const Mapping& mapping, const KokkosBuffer<E, MemorySpace>& buffer, std::span<const Cell> cells,
                StridedView<T, 3> rows) const {
        if (rows.size() == 0) return;
        const std::int64_t parts = gather_parts(mapping, cells);
        const std::int64_t bytes = std::ssize(cells) * row_bytes<E>(mapping);
        in_pieces(space_, parts, bytes / parts, [&](std::int64_t begin, std::int64_t end) {
            gather_rows(mapping, buffer.data(), cells, rows, begin, end);
        });
    }

    /// Runs that overlap themselves are not divided among threads; strips are.
    template <LayoutMapping Mapping, StorageUnit E>
    void move(const Mapping& mapping, KokkosBuffer<E, MemorySpace>& buffer, std::span<const Move> moves) const {
        const std::int64_t parts = move_parts(mapping, moves);
        if (parts == 0) return;
        const auto piece = [&](std::int64_t begin, std::int64_t end) {
            move_runs(mapping, buffer.data(), moves, begin, end);
        };
        if (!contiguous_cells<Mapping> && std::any_of(moves.begin(), moves.end(), overlaps)) return piece(0, parts);
        const std::int64_t bytes = cells_of(moves) * row_bytes<E>(mapping);
        in_pieces(space_, parts, bytes / parts, piece);
    }

    template <LayoutMapping Mapping, Element E, ShiftPolicy Shift>
    void rotate(const Mapping& mapping, KokkosBuffer<E, MemorySpace>& buffer, const Shift& shift, int layer,
                std::span<const KeyRotation> rotations) const {
        in_pieces(space_, cells_of(rotations), row_bytes<E>(mapping), [&](std::int64_t begin, std::int64_t end) {
            rotate_runs(mapping, buffer.data(), shift, layer, rotations, begin, end);
        });
    }

    /// See `StoresFormat`.
    template <StorageFormat F, class... Planes>
    void encode(std::span<const Cell> cells, StridedView<const float, 3> values, const float* factors,
                const Planes&... planes) const {
        in_pieces(space_, std::ssize(cells), float_bytes(values), [&](std::int64_t begin, std::int64_t end) {
            encode_rows<F>(cells_from(cells, begin, end), rows_from(values, begin, end), factors, planes...);
        });
    }

    template <StorageFormat F, class... Planes>
    void decode(std::span<const Cell> cells, StridedView<float, 3> values, const float* factors,
                const Planes&... planes) const {
        in_pieces(space_, std::ssize(cells), float_bytes(values), [&](std::int64_t begin, std::int64_t end) {
            decode_rows<F>(cells_from(cells, begin, end), rows_from(values, begin, end), factors, planes...);
        });
    }

    template <StorageFormat F, ShiftPolicy Shift, class Units, class... Scales>
    void rotate_encoded(const Shift& shift, int layer, std::span<const KeyRotation> rotations, const Units& units,
                        const Scales&... scales) const {
        const std::int64_t values = std::int64_t{units.mapping.heads()} * units.mapping.dim() * F::values_per_unit;
        const std::int64_t bytes = values * std::int64_t{sizeof(float)};
        in_pieces(space_, cells_of(rotations), bytes, [&](std::int64_t begin, std::int64_t end) {
            detail::rotate_encoded<F>(shift, layer, rotations, begin, end, units, scales...);
        });
    }

    void copy_slots(std::span<const SlotRows> tensors, std::span<const SlotCopy> copies) const {
        const CopySlotsPiece piece{tensors, copies};
        in_pieces(space_, piece.size(), CopySlotsPiece::chunk_bytes, piece);
    }

    const ExecutionSpace& space() const { return space_; }

    void fence() const { space_.fence("cellar"); }

private:
    // Of one token.
    template <class T>
    static std::int64_t float_bytes(const StridedView<T, 3>& values) {
        return values.extent(1) * values.extent(2) * std::int64_t{sizeof(T)};
    }
    template <class E, class Mapping>
    static std::int64_t row_bytes(const Mapping& mapping) {
        return std::int64_t{mapping.heads()} * mapping.dim() * std::int64_t{sizeof(E)};
    }

    ExecutionSpace space_;
};

} // namespace cellar::detail
