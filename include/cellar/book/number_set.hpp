// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/memory_bytes.hpp>
#include <cellar/base/zeroed.hpp>
#include <cellar/book/words.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>

namespace cellar::detail {

/// A set of numbers below a size: a bitmap, above it a bitmap with a bit for each word that is not zero, and so on, up
/// to one word. Adding or removing a number, and finding the lowest one, is O(log size), with 64 as the base.
class NumberSet {
public:
    explicit NumberSet(std::int64_t size) : words_{words_in_all(size)} {
        for (std::int64_t end = 0; levels_ == 0 || size > 1; end += size) {
            first_[levels_++] = end;
            size = words_for(size);
        }
    }
    static constexpr std::int64_t bytes_for(std::int64_t size) { return bytes_of<Word>(words_in_all(size)); }

    std::int64_t count() const { return count_; }
    bool contains(std::int64_t number) const { return (words_[word_of(number)] >> bit_of(number) & 1) != 0; }

    /// The bitmap of the numbers.
    const Word* words() const { return words_.data(); }

    /// Adds a number that the set does not have.
    void add(std::int64_t number) {
        ++count_;
        for (int level = 0; level < levels_; ++level, number = word_of(number)) {
            Word& word = words_[first_[level] + word_of(number)];
            const bool was_empty = word == 0;
            word |= Word{1} << bit_of(number);
            if (!was_empty) return;
        }
    }

    /// Adds [first, end), none of which the set has.
    void add(std::int64_t first, std::int64_t end) {
        count_ += end - first;
        add_bits(first, end);
    }

    /// Removes a number that the set has.
    void remove(std::int64_t number) {
        --count_;
        for (int level = 0; level < levels_; ++level, number = word_of(number)) {
            Word& word = words_[first_[level] + word_of(number)];
            word &= ~(Word{1} << bit_of(number));
            if (word != 0) return;
        }
    }

    /// Replaces all numbers by [first, end).
    void assign(std::int64_t first, std::int64_t end) {
        std::fill_n(words_.data(), words_.size(), Word{0});
        count_ = end - first;
        add_bits(first, end);
    }

    /// -1 if the set is empty.
    std::int64_t lowest() const {
        if (count_ == 0) return -1;
        std::int64_t at = 0;
        for (int level = levels_; level-- > 0;) at = at * word_bits + std::countr_zero(words_[first_[level] + at]);
        return at;
    }

private:
    // Of all levels.
    static constexpr std::int64_t words_in_all(std::int64_t size) {
        std::int64_t words = 0;
        do words += size = words_for(size);
        while (size > 1);
        return words;
    }

    void add_bits(std::int64_t first, std::int64_t end) {
        for (int level = 0; first < end && level < levels_; ++level) {
            visit_words(static_cast<Cell>(first), static_cast<std::int32_t>(end - first),
                        [&](std::int64_t at, Word numbers) { words_[first_[level] + at] |= numbers; });
            first = word_of(first);
            end = word_of(end - 1) + 1;
        }
    }

    int levels_ = 0;
    std::int64_t first_[6] = {}; // word of each level: enough for 64^6 numbers
    std::int64_t count_ = 0;
    ZeroedArray<Word> words_;
};

} // namespace cellar::detail
