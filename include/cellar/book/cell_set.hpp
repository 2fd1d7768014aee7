// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/zeroed.hpp>
#include <cellar/book/words.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>

namespace cellar {

/// A set of cells: a bitmap with a summary that has one bit for each word that is not zero. Adding and removing n
/// neighbouring cells costs O(n / 64); the lowest, the highest and emptying the set cost O(cells / 4096) beside the
/// words that are not zero. Memory is touched only where a cell has been in the set.
class CellSet {
public:
    explicit CellSet(Cell cells) : words_{detail::words_for(cells)}, summary_{detail::words_for(words_.size())} {}

    void add(Cell first, std::int32_t n) {
        detail::for_each_word(first, n, [&](std::int64_t at, Word cells) { add_word(at, cells); });
    }

    void remove(Cell first, std::int32_t n) {
        detail::for_each_word(first, n, [&](std::int64_t at, Word cells) { remove_word(at, cells); });
    }

    /// The same for these cells of word `at`.
    void add_word(std::int64_t at, detail::Word cells) {
        words_[at] |= cells;
        summary_[at / 64] |= Word{1} << (at % 64);
    }

    void remove_word(std::int64_t at, detail::Word cells) {
        words_[at] &= ~cells;
        if (words_[at] == 0) summary_[at / 64] &= ~(Word{1} << (at % 64));
    }

    void clear() {
        for_each_word([&](std::int64_t at, Word) { words_[at] = 0; });
        for (std::int64_t i = 0; i < summary_.size(); ++i) summary_[i] = 0;
    }

    /// Calls `visit(word, cells)` for every word that has cells, in order. The visit may remove them.
    template <class Visit>
    void for_each_word(Visit visit) const {
        for (std::int64_t i = 0; i < summary_.size(); ++i) {
            for (detail::Word rest = summary_[i]; rest != 0; rest &= rest - 1) {
                const std::int64_t at = i * 64 + std::countr_zero(rest);
                visit(at, words_[at]);
            }
        }
    }

    /// Becomes equal to `other`, a set over as many cells.
    void assign(const CellSet& other) {
        for (std::int64_t i = 0; i < summary_.size(); ++i) {
            const Word used = summary_[i] | other.summary_[i];
            const Word* const from = other.words_.data() + i * 64;
            Word* const to = words_.data() + i * 64;
            if (used == ~Word{0}) {
                std::copy(from, from + 64, to);
            } else {
                for (Word rest = used; rest != 0; rest &= rest - 1)
                    to[std::countr_zero(rest)] = from[std::countr_zero(rest)];
            }
            summary_[i] = other.summary_[i];
        }
    }

    /// The lowest cell below `end`, or `end` if there is none.
    Cell lowest_below(Cell end) const {
        for (std::int64_t i = 0; i * 4096 < end; ++i) {
            if (summary_[i] == 0) continue;
            const std::int64_t at = i * 64 + std::countr_zero(summary_[i]);
            return std::min(end, static_cast<Cell>(at * 64 + std::countr_zero(words_[at])));
        }
        return end;
    }

    /// The highest cell above `begin`, or `begin` if there is none.
    Cell highest_above(Cell begin) const {
        for (std::int64_t i = summary_.size() - 1; i >= 0 && i * 4096 + 4095 > begin; --i) {
            if (summary_[i] == 0) continue;
            const std::int64_t at = i * 64 + 63 - std::countl_zero(summary_[i]);
            return std::max(begin, static_cast<Cell>(at * 64 + 63 - std::countl_zero(words_[at])));
        }
        return begin;
    }

    bool contains(Cell cell) const { return (words_[cell / 64] >> (cell % 64) & 1) != 0; }

    /// The 64 cells from `first` on as bits; cells beyond the last are not in the set.
    detail::Word bits_from(Cell first) const {
        const std::int64_t at = first / 64;
        const int shift = first % 64;
        const Word low = words_[at] >> shift;
        if (shift == 0 || at + 1 >= words_.size()) return low;
        return low | words_[at + 1] << (64 - shift);
    }

private:
    using Word = detail::Word;

    ZeroedArray<Word> words_;
    ZeroedArray<Word> summary_;
};

} // namespace cellar
