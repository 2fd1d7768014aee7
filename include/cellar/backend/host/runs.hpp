// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/host/rows.hpp>
#include <cellar/base/plan.hpp>
#include <cellar/layout/mapping.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace cellar::detail {

/// The part [first, first + count) of a run.
inline Move part(const Move& run, std::int32_t first, std::int32_t count) {
    return {run.from + first, run.to + first, count};
}
inline KeyRotation part(const KeyRotation& run, std::int32_t first, std::int32_t count) {
    return {run.first + first, count, run.delta};
}

/// Counts the cells of all runs (`Move` or `KeyRotation`) one after another, and calls `visit(run)` for the parts of
/// runs within [begin, end). O(runs).
template <class Run, class Visit>
void visit_part(std::span<const Run> runs, std::int64_t begin, std::int64_t end, Visit visit) {
    std::int64_t first = 0;
    for (const Run& run : runs) {
        if (first >= end) return;
        const std::int64_t from = std::max(begin - first, std::int64_t{0});
        const std::int64_t to = std::min(end - first, std::int64_t{run.count});
        if (from < to) visit(part(run, static_cast<std::int32_t>(from), static_cast<std::int32_t>(to - from)));
        first += run.count;
    }
}

/// True if a run reads cells that it also writes: then it must be copied in order.
inline bool overlaps(const Move& run) {
    return run.from < run.to + run.count && run.to < run.from + run.count;
}

template <class Run>
std::int64_t cells_of(std::span<const Run> runs) {
    std::int64_t cells = 0;
    for (const Run& run : runs) cells += run.count;
    return cells;
}

/// The number of parts that `move_runs` can be divided into: cells, or strips of cells, in the order of memory.
template <class Mapping>
std::int64_t move_parts(const Mapping& mapping, std::span<const Move> moves) {
    if constexpr (contiguous_cells<Mapping>) return strips_of(mapping);
    return cells_of(moves);
}

/// Copies n elements, which may overlap. `streamed` must follow.
template <class E>
void move_elements(const E* from, E* to, std::int64_t n, bool overlap) {
    if (overlap) {
        std::memmove(to, from, static_cast<std::size_t>(n) * sizeof(E));
    } else {
        stream_run(from, to, n);
    }
}

/// Prefetches the runs of strips, one after another, ahead of their moves: a run may be too short for the processor's
/// own prefetcher.
template <CacheLevel Level, class Mapping, class E>
class RunsAhead {
public:
    RunsAhead(const Mapping& mapping, const E* memory, std::span<const Move> moves, std::int64_t begin,
              std::int64_t end, int ahead)
        : mapping_{mapping}, memory_{memory}, moves_{moves}, strip_{begin}, end_{end} {
        for (int i = 0; i < ahead; ++i) prefetch_next();
    }

    void prefetch_next() {
        constexpr std::int64_t beginning = 2048 / sizeof(E); // the processor's prefetcher does the rest
        if (strip_ == end_) return;
        if (run_ == 0) cells_ = strip_at(mapping_, memory_, strip_);
        const Move& run = moves_[run_];
        prefetch<Level>(cells_ + run.from, std::min<std::int64_t>(run.count, beginning));
        if (++run_ < moves_.size()) return;
        run_ = 0;
        ++strip_;
    }

private:
    const Mapping& mapping_;
    const E* memory_;
    std::span<const Move> moves_;
    std::int64_t strip_;
    std::int64_t end_;
    const E* cells_ = nullptr;
    std::size_t run_ = 0;
};

/// Moves the runs of strips [begin, end).
template <class Mapping, class E>
void move_strips(const Mapping& mapping, E* memory, std::span<const Move> moves, std::int64_t begin, std::int64_t end) {
    if (moves.empty()) return;
    RunsAhead<CacheLevel::second, Mapping, E> far{mapping, memory, moves, begin, end, 32};
    RunsAhead<CacheLevel::first, Mapping, E> near{mapping, memory, moves, begin, end, 8};
    for (std::int64_t strip = begin; strip < end; ++strip) {
        E* const cells = strip_at(mapping, memory, strip);
        for (const Move& run : moves) {
            far.prefetch_next();
            near.prefetch_next();
            move_elements(cells + run.from, cells + run.to, run.count, overlaps(run));
        }
    }
}

/// Moves the rows of a run head by head. One copy moves as many as are contiguous both before and after it.
/// Copies are in the order in which no cell is overwritten before it was read.
template <class Mapping, class E>
void move_heads(const Mapping& mapping, E* memory, const Move& run) {
    const std::int64_t dim = mapping.dim();
    for (std::int64_t head = 0; head < mapping.heads(); ++head) {
        const auto move = [&](std::int64_t first, std::int64_t n) {
            move_elements(memory + mapping(run.from + first, head, 0), memory + mapping(run.to + first, head, 0),
                          n * dim, overlaps(run));
        };
        if (run.to < run.from) {
            for (std::int64_t i = 0, n = 0; i < run.count; i += n) {
                n = cells_in_segment<Mapping>(run.to + i, cells_in_segment<Mapping>(run.from + i, run.count - i));
                move(i, n);
            }
        } else {
            for (std::int64_t end = run.count, n = 0; end > 0; end -= n) {
                n = cells_in_segment_before<Mapping>(run.to + end,
                                                     cells_in_segment_before<Mapping>(run.from + end, end));
                move(end - n, n);
            }
        }
    }
}

/// Carries out parts [begin, end) of all moves, in as few copies as the mapping allows.
template <class Mapping, class E>
void move_runs(const Mapping& mapping, E* memory, std::span<const Move> moves, std::int64_t begin, std::int64_t end) {
    if constexpr (contiguous_cells<Mapping>) {
        move_strips(mapping, memory, moves, begin, end);
    } else if constexpr (contiguous_rows<Mapping>) {
        const std::int64_t row = strips_of(mapping);
        if (row == 0) return; // the pointer may be null
        visit_part(moves, begin, end, [&](const Move& run) {
            move_elements(memory + run.from * row, memory + run.to * row, run.count * row, overlaps(run));
        });
    } else if constexpr (contiguous_heads<Mapping>) {
        visit_part(moves, begin, end, [&](const Move& run) { move_heads(mapping, memory, run); });
    } else {
        visit_part(moves, begin, end, [&](const Move& run) {
            for (std::int32_t i = 0; i < run.count; ++i) {
                // In the order in which no cell is overwritten before it was read.
                const std::int32_t cell = run.to < run.from ? i : run.count - 1 - i;
                for (std::int64_t head = 0; head < mapping.heads(); ++head)
                    for (std::int64_t d = 0; d < mapping.dim(); ++d)
                        memory[mapping(run.to + cell, head, d)] = memory[mapping(run.from + cell, head, d)];
            }
        });
    }
    streamed();
}

} // namespace cellar::detail
