// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/base/trivial_list.hpp>
#include <cellar/base/zeroed.hpp>
#include <cellar/book/cell_rows.hpp>
#include <cellar/book/list_rows.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace cellar::detail {

/// The rows of `CellRows` as pages: page p has cells [p * page_size, (p + 1) * page_size). A row of cells has pages if
/// its positions follow one another, each in the place of its page that is its position modulo the page size. Pages
/// are appended and dropped as the cells are.
class PageRows {
public:
    /// `batch`: rows of one batch at most.
    PageRows(std::int32_t sequences, std::int32_t batch, std::int32_t page_size)
        : page_size_{page_size},
          rows_{sequences, 1},
          state_(static_cast<std::size_t>(sequences)),
          columns_{5, batch},
          compressed_{ZeroedArray<std::int32_t>{std::int64_t{batch} + 1}, {}} {}

    std::int32_t page_size() const { return page_size_; }
    const ListRows& rows() const { return rows_; }
    ListRows& rows() { return rows_; }

    enum Column { starts, counts, first_offsets, last_lengths, lengths };
    const ListColumns& columns() const { return columns_; }

    /// The pages of a row of that many cells at most: the first and the last one in part.
    std::int64_t pages_of(std::int64_t cells) const { return cells / page_size_ + 2; }

    /// Room for rows of that many cells. May throw; all rows stay right.
    void reserve(std::int64_t cells, bool slides) {
        const std::int64_t pages = pages_of(cells);
        rows_.reserve(slides ? 2 * pages : pages);
        compressed_.reserve(pages * columns_.rows());
    }

    /// Brings the pages up to date with the rows of cells. Returns the first sequence that has no pages, or -1. May
    /// throw.
    Sequence update(CellRows& cells) {
        is_compressed_ = false;
        const std::span<const Sequence> sequences = cells.sequences();
        for (const Sequence s : sequences) {
            const Position changed = cells.changed(s);
            State& row = state_[static_cast<std::size_t>(s.value)];
            row.to = std::min(row.to, changed);
            cells.forget_change(s);
            if (!update(s, row, cells.cells(s), cells.positions(s))) return s;
        }
        for (std::size_t r = 0; r < sequences.size(); ++r) {
            const Sequence s = sequences[r];
            const std::span<const std::int32_t> positions = cells.positions(s);
            const bool none = positions.empty();
            const std::int32_t count = rows_.extent(s.value).size();
            const std::int32_t last = none ? 0 : positions.back() % page_size_ + 1;
            columns_[starts][r] = rows_.start(s.value);
            columns_[counts][r] = count;
            columns_[first_offsets][r] = none ? 0 : positions.front() % page_size_;
            columns_[last_lengths][r] = last;
            columns_[lengths][r] = none ? 0 : (count - 1) * page_size_ + last;
        }
        return {-1};
    }

    /// The pages of these sequences. May throw, with nothing changed.
    const CompressedRows& compressed(std::span<const Sequence> sequences) {
        if (!is_compressed_) compressed_.assign(rows_, sequences);
        is_compressed_ = true;
        return compressed_;
    }

private:
    struct State {
        std::int32_t first_page = 0; ///< the first entry has positions [first_page * page_size, ...)
        Position to{0};              ///< positions below have the right pages
    };

    bool update(Sequence s, State& row, std::span<const std::int32_t> cells, std::span<const std::int32_t> positions) {
        const RowExtent& own = rows_.extent(s.value);
        if (positions.empty()) {
            rows_.clear(s.value);
            row = {};
            return true;
        }
        const std::int32_t from = positions.front();
        const std::int32_t page = from / page_size_;
        if (row.to.value <= from || page < row.first_page) {
            rows_.clear(s.value);
            row = {page, {from}};
        }
        rows_.drop(s.value, page - row.first_page, 0);
        row.first_page = page;
        const std::int32_t right = row.to.value == from ? 0 : pages_below(row.to.value) - page;
        rows_.cut(s.value, own.begin + right);
        if (positions.back() - from + 1 != static_cast<std::int32_t>(positions.size())) return false;

        const std::int32_t end = positions.back() + 1;
        rows_.make_room(s.value, pages_below(end) - page - own.size());
        std::int32_t* const pages = rows_.row(0, s.value);
        for (; row.to.value < end; ++row.to.value) {
            const auto i = static_cast<std::size_t>(row.to.value - from);
            const std::int32_t position = positions[i];
            const bool begins = position == from || position % page_size_ == 0;
            if (position != row.to.value || cells[i] % page_size_ != position % page_size_) return false;
            if (begins) {
                pages[own.end] = cells[i] / page_size_;
                rows_.append(s.value, 1);
            } else if (pages[own.end - 1] != cells[i] / page_size_) {
                return false;
            }
        }
        return true;
    }

    // How many pages begin at positions below this one.
    std::int32_t pages_below(std::int32_t position) const {
        return position / page_size_ + (position % page_size_ != 0 ? 1 : 0);
    }

    std::int32_t page_size_;
    ListRows rows_;
    TrivialList<State> state_;
    ListColumns columns_;
    CompressedRows compressed_;
    bool is_compressed_ = false;
};

} // namespace cellar::detail
