// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>

/// Sets of cells are bitmaps of 64-bit words: cell c is bit c % 64 of word c / 64.
namespace cellar::detail {

using Word = std::uint64_t;
inline constexpr std::int64_t word_bits = 64;

constexpr std::int64_t words_for(std::int64_t bits) {
    return (bits + word_bits - 1) / word_bits;
}

/// A word with bits [first, first + count) set; `count` from 1 to 64.
constexpr Word bit_range(std::int64_t first, std::int64_t count) {
    return (~Word{0} >> (word_bits - count)) << first;
}

/// The word and the bit that stand for an index counted from 0. Shifts, because dividing a signed number costs more
/// instructions.
constexpr std::int64_t word_of(std::int64_t index) {
    return index >> 6;
}
constexpr std::int64_t bit_of(std::int64_t index) {
    return index & 63;
}

/// Some cells of word `at`, or all cells of several words from there on.
struct CellsOfWords {
    std::int64_t at = 0;
    Word cells = 0;
    std::int64_t words = 1;
};

/// Calls `visit(word, bits)` for every word that [first, first + count) touches, in order.
template <class Visit>
constexpr void visit_words(Cell first, std::int32_t count, Visit visit) {
    if (count <= 0) return;
    const std::int64_t last = std::int64_t{first} + count - 1;
    std::int64_t at = word_of(first);
    // One call, because every caller's visit is inlined here.
    for (Word bits = ~Word{0} << bit_of(first);; bits = ~Word{0}, ++at) {
        const bool ends = at == word_of(last);
        if (ends) bits &= ~Word{0} >> (word_bits - 1 - bit_of(last));
        visit(at, bits);
        if (ends) return;
    }
}

/// The runs of ones in a bitmap, or of zeros, in order. Finding one costs as many words as it spans.
class BitRuns {
public:
    /// The runs within [first, end). `flip`: no bits set to find ones, all bits set to find zeros.
    BitRuns(const Word* words, Word flip, Cell first, Cell end)
        : words_{words},
          flip_{flip},
          end_{end},
          at_{word_of(first)},
          bits_{first < end ? (words[at_] ^ flip) & (~Word{0} << bit_of(first)) : 0} {}

    /// The next run; empty if there is none.
    CellRange next() {
        const std::int64_t last = word_of(end_ - 1);
        std::int64_t at = at_;
        Word bits = bits_;
        while (bits == 0) {
            if (at >= last) return {end_, 0};
            bits = words_[++at] ^ flip_;
        }
        const int begin = std::countr_zero(bits);
        const std::int64_t first = at * word_bits + begin;
        bits |= (Word{1} << begin) - 1; // so that the run begins with the word
        while (bits == ~Word{0} && at < last) bits = words_[++at] ^ flip_;
        const std::int64_t end = std::min<std::int64_t>(at * word_bits + std::countr_one(bits), end_);
        at_ = at;
        bits_ = bits & (bits + 1); // the carry clears the run
        return {static_cast<Cell>(first), static_cast<std::int32_t>(std::max<std::int64_t>(end - first, 0))};
    }

private:
    const Word* words_;
    Word flip_;
    Cell end_;
    std::int64_t at_;
    Word bits_; // of word at_, without those of earlier runs
};

} // namespace cellar::detail
