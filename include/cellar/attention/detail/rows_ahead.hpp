// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/attention/detail/tile.hpp>
#include <cellar/simd/lines.hpp>

#include <cstddef>
#include <cstdint>

/// What the kernels of attention prefetch. Prefetches are spread over their loops, because processors drop those that
/// come all at once.
namespace cellar::detail {

/// Prefetches rows in the order of their elements, which is that of memory where rows are contiguous. The second
/// level is the default, because the first does not hold the keys and values of two tiles.
template <class E, CacheLevel Level = CacheLevel::second>
struct RowsAhead {
    HeadRows<E> rows;
    std::int64_t dim;
    std::int64_t at = 0; // in the first row

    [[gnu::always_inline]] void prefetch_line() {
        prefetch<Level>(rows[0] + at, 1);
        at += line_bytes / std::int64_t{sizeof(E)};
        if (at < dim) return;
        at = 0;
        rows = rows + 1;
    }
    template <std::int64_t N>
    [[gnu::always_inline]] void prefetch_lines() {
        for (std::int64_t i = 0; i < N; ++i) prefetch_line();
    }
};

/// Prefetches rows evenly over the steps of a kernel: a line every 1, 2, 4, ... steps, or several lines each step.
template <CacheLevel Level>
class SpreadLines {
public:
    SpreadLines(const FetchedRows& next, std::int64_t steps)
        : rows_{next.rows}, row_bytes_{next.row_bytes}, left_{next.lines}, together_{(next.lines + steps - 1) / steps} {
        while (left_ > 0 && 2 * every_ * left_ <= steps) every_ *= 2;
        if (left_ > 0) start_row();
    }

    [[gnu::always_inline]] void step() {
        if ((step_++ & (every_ - 1)) != 0) return;
        for (std::int64_t i = 0; i < together_ && left_ > 0; ++i) {
            prefetch<Level>(at_, 1);
            at_ += line_bytes;
            --left_;
            if (at_ < end_) continue;
            ++rows_;
            if (left_ > 0) start_row();
        }
    }

private:
    [[gnu::always_inline]] void start_row() {
        at_ = *rows_;
        end_ = at_ + row_bytes_;
    }

    const std::byte* const* rows_;
    std::int64_t row_bytes_;
    const std::byte* at_ = nullptr;
    const std::byte* end_ = nullptr; // of the row
    std::int64_t left_;              // lines
    std::int64_t together_;          // lines
    std::int64_t every_ = 1;
    std::int64_t step_ = 0;
};

/// What kernels of packed rows prefetch: they read a tile many times (docs/decisions.md).
using LinesToPack = SpreadLines<CacheLevel::first>;
/// What kernels of codes prefetch.
using LinesAhead = SpreadLines<CacheLevel::second>;

} // namespace cellar::detail
