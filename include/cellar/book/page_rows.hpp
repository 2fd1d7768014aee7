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
          starts_{batch},
          counts_{batch},
          first_offsets_{batch},
          last_lengths_{batch},
          lengths_{batch},
          compressed_{ZeroedArray<std::int32_t>{std::int64_t{batch} + 1}, {}} {}

    std::int32_t page_size() const { return page_size_; }
    const ListRows& rows() const { return rows_; }
    const ZeroedArray<std::int32_t>& starts() const { return starts_; }
    const ZeroedArray<std::int32_t>& counts() const { return counts_; }
    const ZeroedArray<std::int32_t>& first_offsets() const { return first_offsets_; }
    const ZeroedArray<std::int32_t>& last_lengths() const { return last_lengths_; }
    const ZeroedArray<std::int32_t>& lengths() const { return lengths_; }

    /// Room for rows of that many cells. May throw; all rows stay right.
    void reserve(std::int64_t cells, bool slides) {
        const std::int64_t pages = cells / page_size_ + 2; // the first and the last one in part
        rows_.reserve(slides ? 2 * pages : pages);
        compressed_.reserve(pages * starts_.size());
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
        for (std::size_t i = 0; i < sequences.size(); ++i) {
            const auto r = static_cast<std::int64_t>(i);
            const Sequence s = sequences[i];
            const std::span<const std::int32_t> positions = cells.positions(s);
            const bool none = positions.empty();
            starts_[r] = rows_.start(s.value);
            counts_[r] = rows_.extent(s.value).size();
            first_offsets_[r] = none ? 0 : positions.front() % page_size_;
            last_lengths_[r] = none ? 0 : positions.back() % page_size_ + 1;
            lengths_[r] = none ? 0 : (counts_[r] - 1) * page_size_ + last_lengths_[r];
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
        RowExtent& own = rows_.extent(s.value);
        if (positions.empty()) {
            own = {};
            row = {};
            return true;
        }
        const std::int32_t from = positions.front();
        const std::int32_t page = from / page_size_;
        if (row.to.value <= from || page < row.first_page) {
            own = {};
            row = {page, {from}};
        }
        own.begin += page - row.first_page;
        row.first_page = page;
        own.end = own.begin + (row.to.value + page_size_ - 1) / page_size_ - page;
        if (row.to.value == from) own.end = own.begin;
        if (positions.back() - from + 1 != static_cast<std::int32_t>(positions.size())) return false;

        const std::int32_t end = positions.back() + 1;
        rows_.make_room(s.value, (end + page_size_ - 1) / page_size_ - page - own.size());
        std::int32_t* const pages = rows_.row(0, s.value);
        for (; row.to.value < end; ++row.to.value) {
            const auto i = static_cast<std::size_t>(row.to.value - from);
            const std::int32_t position = positions[i];
            const bool begins = position == from || position % page_size_ == 0;
            if (position != row.to.value || cells[i] % page_size_ != position % page_size_) return false;
            if (begins) {
                pages[own.end++] = cells[i] / page_size_;
            } else if (pages[own.end - 1] != cells[i] / page_size_) {
                return false;
            }
        }
        return true;
    }

    std::int32_t page_size_;
    ListRows rows_;
    TrivialList<State> state_;
    ZeroedArray<std::int32_t> starts_;
    ZeroedArray<std::int32_t> counts_;
    ZeroedArray<std::int32_t> first_offsets_;
    ZeroedArray<std::int32_t> last_lengths_;
    ZeroedArray<std::int32_t> lengths_;
    CompressedRows compressed_;
    bool is_compressed_ = false;
};

} // namespace cellar::detail
