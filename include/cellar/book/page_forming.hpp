// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/base/plan.hpp>
#include <cellar/base/trivial_list.hpp>
#include <cellar/book/free_cells.hpp>
#include <cellar/book/owner_count.hpp>
#include <cellar/book/position_runs.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace cellar::detail {

/// Tokens of a sequence that move to pages of its own. A page has `size` positions, the first a multiple of `size`, and
/// as many cells, in the same order.
struct PageForming {
    Sequence sequence{};
    std::int32_t size = 1;
    TrivialList<Position> pages{}; ///< the first positions of those that move
    Cell room = 0;                 ///< where the first of them will be; the others follow
    std::int32_t tokens = 0;       ///< of these pages
    Plan plan{};

    /// Where the cells of all these pages end.
    Cell end() const { return room + static_cast<Cell>(pages.size()) * size; }
};

/// Which pages of a sequence without gaps do not form.
class BrokenPages {
public:
    BrokenPages(const OwnerCount& owners, const FreeCells& free, PageForming& forming)
        : owners_{owners}, free_{free}, forming_{forming} {}

    /// Adds those of `runs` to the pages of `forming`. The last page must be the sequence's own, with room behind its
    /// last token, because the next tokens go there. O(runs + pages). May throw.
    void find(const PositionRuns& runs) {
        if (runs.empty()) return;
        runs.for_each(Position{0}, to_end, [&](Position p, Cell cell, std::int32_t n) {
            for (std::int32_t i = 0; i < n;) i += add(p.value + i, cell + i, n - i);
        });
        const std::int32_t tail = (runs.last().value + 1) % forming_.size;
        const std::int32_t own = std::min(tail, tokens_);
        const Cell next = first_ + tail;
        forms_ = forms_ && (tail == 0 || (owners_.shared(next - own, own) == 0 && free_.contains(next)));
        close();
    }

private:
    // The tokens from here on that are in the same page, n at most. Returns how many these are.
    std::int32_t add(std::int32_t position, Cell cell, std::int32_t n) {
        const std::int32_t place = position % forming_.size;
        const Cell first = cell - place;
        if (position - place != page_) {
            close();
            page_ = position - place;
            first_ = first;
            tokens_ = 0;
            forms_ = first >= 0 && first % forming_.size == 0;
        }
        forms_ = forms_ && first == first_;
        const std::int32_t count = std::min(n, forming_.size - place);
        tokens_ += count;
        return count;
    }

    void close() {
        if (forms_) return;
        forming_.pages.push_back(Position{page_});
        forming_.tokens += tokens_;
    }

    const OwnerCount& owners_;
    const FreeCells& free_;
    PageForming& forming_;
    std::int32_t page_ = -1;  // the first position of the page that is looked at
    Cell first_ = 0;          // the cell of that position, from its first token
    std::int32_t tokens_ = 0; // of the page
    bool forms_ = true;
};

} // namespace cellar::detail
