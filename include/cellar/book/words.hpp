// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>

#include <cstdint>

/// Sets of cells are bitmaps of 64-bit words: cell c is bit c % 64 of word c / 64.
namespace cellar::detail {

using Word = std::uint64_t;
inline constexpr std::int64_t word_bits = 64;

constexpr std::int64_t words_for(std::int64_t bits) {
    return (bits + word_bits - 1) / word_bits;
}

/// The bits [first, first + count) of one word; `count` from 1 to 64.
constexpr Word bit_range(std::int64_t first, std::int64_t count) {
    return (~Word{0} >> (word_bits - count)) << first;
}

/// Calls `visit(word, mask)` for every word that [first, first + count) touches, in order.
template <class Visit>
constexpr void for_each_word(Cell first, std::int32_t count, Visit visit) {
    if (count <= 0) return;
    const std::int64_t last = std::int64_t{first} + count - 1;
    const std::int64_t last_word = last / word_bits;
    Word mask = ~Word{0} << (first % word_bits);
    for (std::int64_t at = first / word_bits; at < last_word; ++at, mask = ~Word{0}) visit(at, mask);
    visit(last_word, mask & (~Word{0} >> (word_bits - 1 - last % word_bits)));
}

} // namespace cellar::detail
