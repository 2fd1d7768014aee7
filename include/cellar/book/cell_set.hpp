// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/zeroed.hpp>
#include <cellar/book/words.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>

namespace cellar::detail {

/// The lowest and the highest cell of a set.
struct CellBounds {
    Cell lowest = INT32_MAX;
    Cell highest = -1;

    bool empty() const { return highest < 0; }
    void include(const CellBounds& other) {
        lowest = std::min(lowest, other.lowest);
        highest = std::max(highest, other.highest);
    }
    bool operator==(const CellBounds&) const = default;
};

/// A set of cells: a bitmap, with a summary of one bit for each non-zero word. Adding or removing n neighbouring cells
/// is O(n / 64). Clearing is O(cells / 4096) plus the non-zero words. The lowest and the highest cell are tracked.
/// Memory is touched only where a cell has been in the set.
class CellSet {
public:
    explicit CellSet(Cell cells) : word_count_{words_for(cells)}, words_{word_count_ + words_for(word_count_)} {}

    void add(Cell cell) {
        set(word_of(cell), Word{1} << bit_of(cell));
        within_.include({cell, cell});
    }

    /// `n` from 1.
    void add(Cell first, std::int32_t n) {
        visit_words(first, n, [&](std::int64_t at, Word cells) { set(at, cells); });
        within_.include({first, first + n - 1});
    }

    /// The same for these cells of word `at`.
    void add_word(std::int64_t at, Word cells) {
        set(at, cells);
        within_.include({lowest_of(at, cells), highest_of(at, cells)});
    }

    void remove_word(std::int64_t at, Word cells) {
        words_[at] &= ~cells;
        if (words_[at] == 0) summary(word_of(at)) &= ~(Word{1} << bit_of(at));
        if (at == word_of(within_.lowest) || at == word_of(within_.highest)) is_tight_ = false;
    }

    void clear() {
        for_each_word([&](std::int64_t at, Word) { words_[at] = 0; });
        for (std::int64_t i = 0; i < summaries(); ++i) summary(i) = 0;
        within_ = {};
        is_tight_ = true;
    }

    /// Calls `visit(word, cells)` for every non-zero word, in order. The visit may remove its cells.
    template <class Visit>
    void for_each_word(Visit visit) const {
        for (std::int64_t i = 0; i < summaries(); ++i) {
            for (Word rest = summary(i); rest != 0; rest &= rest - 1) {
                const std::int64_t at = i * 64 + std::countr_zero(rest);
                visit(at, words_[at]);
            }
        }
    }

    /// Calls `visit(run)` for every run of neighbouring cells, in order.
    template <class Visit>
    void for_each_run(Visit visit) const {
        CellRange run;
        for_each_word([&](std::int64_t at, Word cells) {
            while (cells != 0) {
                const int begin = std::countr_zero(cells);
                const int count = std::countr_one(cells >> begin);
                const auto first = static_cast<Cell>(at * word_bits + begin);
                if (run.count != 0 && run.first + run.count == first) {
                    run.count += count;
                } else {
                    if (run.count != 0) visit(run);
                    run = {first, count};
                }
                cells &= ~bit_range(begin, count);
            }
        });
        if (run.count != 0) visit(run);
    }

    /// Becomes equal to `other`, a set over the same number of cells.
    void assign(const CellSet& other) {
        for (std::int64_t i = 0; i < summaries(); ++i) {
            const Word used = summary(i) | other.summary(i);
            const Word* const from = other.words_.data() + i * 64;
            Word* const to = words_.data() + i * 64;
            if (used == ~Word{0}) {
                std::copy(from, from + 64, to);
            } else {
                for (Word rest = used; rest != 0; rest &= rest - 1)
                    to[std::countr_zero(rest)] = from[std::countr_zero(rest)];
            }
            summary(i) = other.summary(i);
        }
        within_ = other.within_;
        is_tight_ = other.is_tight_;
    }

    /// O(1), except after the lowest or the highest cell was removed: then the search continues from there.
    CellBounds bounds() {
        if (!is_tight_) tighten();
        return within_;
    }

    bool contains(Cell cell) const { return (words_[cell / 64] >> (cell % 64) & 1) != 0; }

    /// The 64 cells from `first` on as bits; cells beyond the last are not in the set.
    Word bits_from(Cell first) const {
        const std::int64_t at = first / 64;
        const int shift = first % 64;
        const Word low = words_[at] >> shift;
        if (shift == 0 || at + 1 >= word_count_) return low;
        return low | words_[at + 1] << (64 - shift);
    }

private:
    static Cell lowest_of(std::int64_t at, Word cells) { return static_cast<Cell>(at * 64 + std::countr_zero(cells)); }
    static Cell highest_of(std::int64_t at, Word cells) {
        return static_cast<Cell>(at * 64 + 63 - std::countl_zero(cells));
    }

    void set(std::int64_t at, Word cells) {
        words_[at] |= cells;
        summary(word_of(at)) |= Word{1} << bit_of(at);
    }

    void tighten() {
        within_ = {find_lowest(), find_highest()};
        is_tight_ = true;
    }

    Cell find_lowest() const {
        const std::int64_t first = word_of(within_.lowest);
        if (words_[first] != 0) return lowest_of(first, words_[first]);
        for (std::int64_t i = word_of(first); i < summaries(); ++i) {
            if (summary(i) == 0) continue;
            const std::int64_t at = i * 64 + std::countr_zero(summary(i));
            return lowest_of(at, words_[at]);
        }
        return CellBounds{}.lowest;
    }

    Cell find_highest() const {
        const std::int64_t last = word_of(within_.highest);
        if (words_[last] != 0) return highest_of(last, words_[last]);
        for (std::int64_t i = word_of(last); i >= 0; --i) {
            if (summary(i) == 0) continue;
            const std::int64_t at = i * 64 + 63 - std::countl_zero(summary(i));
            return highest_of(at, words_[at]);
        }
        return CellBounds{}.highest;
    }

    std::int64_t summaries() const { return words_.size() - word_count_; }
    Word& summary(std::int64_t i) { return words_[word_count_ + i]; }
    Word summary(std::int64_t i) const { return words_[word_count_ + i]; }

    std::int64_t word_count_;
    ZeroedArray<Word> words_; // the bitmap, then the summary
    CellBounds within_;       // contains all cells
    bool is_tight_ = true;    // within_ is exact
};

} // namespace cellar::detail
