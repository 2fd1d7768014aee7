// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/base/plan.hpp>
#include <cellar/base/trivial_list.hpp>
#include <cellar/book/free_cells.hpp>
#include <cellar/book/owner_count.hpp>
#include <cellar/book/position_runs.hpp>
#include <cellar/book/words.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace cellar::detail {

/// A page of a sequence, and where its tokens move to.
struct FormedPage {
    Position first; ///< of `size` positions
    Cell room = 0;  ///< of as many cells
    int plan = 0;   ///< by which they move
};

/// Tokens of a sequence that move to pages of its own. A page has `size` positions, the first a multiple of `size`, and
/// as many cells, in the same order.
struct PageForming {
    Sequence sequence{};
    std::int32_t size = 1;
    TrivialList<FormedPage> pages{}; ///< those that move
    std::int32_t tokens = 0;         ///< of these pages
    std::vector<Plan> plans{};       ///< to be carried out in this order: later ones use cells that earlier ones free

    /// Room for all moves.
    void reserve_plans() {
        std::vector<std::size_t> moves(static_cast<std::size_t>(pages.back().plan) + 1);
        for (const FormedPage& page : pages)
            moves[static_cast<std::size_t>(page.plan)] += static_cast<std::size_t>(size);
        plans.resize(moves.size());
        for (std::size_t i = 0; i < plans.size(); ++i) plans[i].moves.reserve(moves[i]);
    }
    /// All cells that get tokens lie below.
    Cell end() const {
        Cell end = 0;
        for (const FormedPage& page : pages) end = std::max(end, page.room + size);
        return end;
    }
};

/// Free cells for pages: of wholly free blocks, neighbours if there are enough, then of others; and those that tokens
/// leave which have moved.
class PageRooms {
public:
    /// For so many pages.
    PageRooms(const FreeCells& free, Cell cells, std::int32_t size, std::int64_t pages)
        : free_{free},
          blocks_{word_of(cells)},
          size_{size},
          page_{bit_range(0, size)},
          at_{word_of(free.find_blocks(static_cast<std::int32_t>(size * pages)).first)} {}

    /// The first cell of a page that was free from the beginning, each once; -1 if there are no more. O(1) amortised,
    /// but for O(cells / 64) in all.
    Cell take() {
        for (; phase_ < 2; ++phase_, at_ = place_ = 0)
            for (; at_ < blocks_; ++at_, place_ = 0) {
                const Word bits = free_.bits(at_);
                if ((bits == ~Word{0}) != (phase_ == 0)) continue;
                for (; place_ < word_bits; place_ += size_)
                    if (is_page(bits, place_))
                        return static_cast<Cell>(at_ * word_bits + std::exchange(place_, place_ + size_));
            }
        return -1;
    }

    /// These cells will be free. O(log words given, or more if they are in descending order). May throw.
    void give(std::int64_t at, Word cells) {
        Given* given = std::lower_bound(given_.begin(), given_.end(), at,
                                        [](const Given& g, std::int64_t word) { return g.at < word; });
        if (given == given_.end() || given->at != at) {
            const auto place = given - given_.begin();
            given_.insert(given, {at, free_.bits(at)});
            given = given_.begin() + place;
        }
        const Word before = std::exchange(given->free, given->free | cells);
        for (std::int64_t place = 0; place < word_bits && at < blocks_; place += size_)
            if (!is_page(before, place) && is_page(given->free, place))
                freed_.push_back(static_cast<Cell>(at * word_bits + place));
    }

    /// The first cells of pages that were given as a whole, since the last call.
    TrivialList<Cell> freed() { return std::exchange(freed_, {}); }

private:
    struct Given {
        std::int64_t at;
        Word free; ///< once all moves are done, if nothing moves here
    };

    bool is_page(Word bits, std::int64_t place) const { return (bits >> place & page_) == page_; }

    const FreeCells& free_;
    std::int64_t blocks_; // of 64 cells each
    std::int32_t size_;
    Word page_;
    std::int64_t at_;
    std::int64_t place_ = 0;
    int phase_ = 0; // 0: wholly free blocks; 1: others
    TrivialList<Given> given_;
    TrivialList<Cell> freed_;
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
        forming_.pages.push_back({.first = Position{page_}});
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
