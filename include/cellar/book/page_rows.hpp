// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/book/cell_rows.hpp>
#include <cellar/book/list_rows.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace cellar::detail {

struct PageRow {
    std::int32_t first_page = 0; ///< the first entry has positions [first_page * page_size, ...)
    std::int32_t to = 0;         ///< positions below have the right pages
};

/// The rows of `CellRows` as pages: page p has cells [p * page_size, (p + 1) * page_size). A row of cells has pages if
/// its positions are consecutive, each in the place of its page that is its position modulo the page size. Pages are
/// appended and dropped as the cells are.
class PageRows final : public ListRows<PageRow, 1, 5> {
public:
    static constexpr const char* name = "pages"; ///< in messages

    enum Column { first_offsets = counts + 1, last_lengths, lengths };
    static_assert(columns == lengths + 1);

    PageRows(std::int32_t sequences, std::int32_t batch, std::int32_t page_size)
        : ListRows{sequences, batch}, page_size_{page_size} {}

    std::int32_t page_size() const { return page_size_; }

    /// The pages of a row of that many cells at most: the first and the last one in part.
    std::int64_t pages_of(std::int64_t cells) const { return pages_of(cells, page_size_); }
    static constexpr std::int64_t pages_of(std::int64_t cells, std::int32_t page_size) { return cells / page_size + 2; }

    /// Brings the pages up to date with the rows of cells. Returns the first sequence that has no pages, or -1. May
    /// throw.
    Sequence update(CellRows& cells) {
        clear_batch();
        for (const Sequence s : cells.sequences())
            if (!update(s, cells.take_change(s), cells.entries(s), cells.positions(s))) return s;
        for (const Sequence s : cells.sequences()) { // the table moves if a row outgrows it
            const std::span<const std::int32_t> positions = cells.positions(s);
            if (positions.empty()) {
                add_to_batch(s, {0, 0, 0});
                continue;
            }
            const std::int32_t last = positions.back() % page_size_ + 1;
            add_to_batch(s, {positions.front() % page_size_, last, (extent(s).size() - 1) * page_size_ + last});
        }
        return Sequence{-1};
    }

private:
    // Cells at positions from `changed` on are others than before.
    bool update(Sequence s, Position changed, std::span<const std::int32_t> cells,
                std::span<const std::int32_t> positions) {
        PageRow& row = state(s);
        row.to = std::min(row.to, changed.value);
        if (positions.empty()) {
            clear(s);
            row = {};
            return true;
        }
        const std::int32_t from = positions.front();
        const std::int32_t page = from / page_size_;
        if (row.to <= from || page < row.first_page) {
            clear(s);
            row = {page, from};
        } else {
            drop(s, page - row.first_page);
            row.first_page = page;
            cut(s, extent(s).begin + pages_below(row.to) - page);
        }
        if (positions.back() - from + 1 != static_cast<std::int32_t>(positions.size())) return false;

        const std::int32_t end = positions.back() + 1;
        make_room(s, pages_below(end) - page - extent(s).size());
        std::int32_t* const pages = room(s, 0);
        for (; row.to < end; ++row.to) {
            const auto i = static_cast<std::size_t>(row.to - from);
            const std::int32_t place = row.to % page_size_;
            if (positions[i] != row.to || cells[i] % page_size_ != place) return false;
            if (row.to == from || place == 0) {
                pages[extent(s).end] = cells[i] / page_size_;
                append(s, 1);
            } else if (pages[extent(s).end - 1] != cells[i] / page_size_) {
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
};

} // namespace cellar::detail
