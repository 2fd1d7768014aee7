// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/zeroed.hpp>
#include <cellar/book/words.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace cellar::detail {

constexpr std::int64_t leaves_for(Cell cells) {
    return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(words_for(cells))));
}

/// Which cells are free, and where n neighbouring ones are. Above a bitmap lies a tree that stores, for every span of
/// words, the free cells at its start, at its end, and its longest free run. A query or a change is O(log cells); a
/// change of n neighbouring cells O(n / 64 + log cells). The tree is updated lazily, by the next query, once for all
/// changes of neighbouring words. Taking the lowest free cell repeatedly needs no query.
class FreeCells {
public:
    /// All cells are free.
    explicit FreeCells(Cell cells) : leaves_{leaves_for(cells)}, words_{leaves_}, nodes_{2 * leaves_} {
        give(0, cells);
    }

    std::int32_t count() const { return count_; }
    bool contains(Cell cell) const { return (word(cell / 64) >> (cell % 64) & 1) != 0; }

    /// The length of the longest free run. O(1), or O(cells / 64) while the tree is out of date.
    std::int32_t longest_run() const {
        if (touched_last_ < touched_first_) return nodes_[1].longest;
        std::int32_t longest = 0;
        std::int32_t run = 0;
        for (std::int64_t at = 0; at < leaves_; ++at) {
            const Word free = word(at);
            if (free == ~Word{0}) {
                run += 64;
            } else {
                longest = std::max({longest, run + std::countr_one(free), longest_run_of(free)});
                run = std::countl_one(free);
            }
        }
        return std::max(longest, run);
    }

    /// The lowest free cell, or -1.
    Cell lowest() {
        const Cell found = next(static_cast<Cell>(lowest_word_ * 64));
        if (found >= 0) lowest_word_ = found / 64;
        return found;
    }

    /// The lowest free cell from `from` on, or -1.
    Cell next(Cell from) {
        const std::int64_t at = from / 64;
        if (at >= leaves_) return -1;
        const Word rest = word(at) & (~Word{0} << (from % 64));
        if (rest != 0) return lowest_of(at, rest);
        settle();
        std::int64_t node = leaves_ + at;
        while (node % 2 == 1 || nodes_at(node + 1).longest == 0) {
            node /= 2;
            if (node <= 1) return -1;
        }
        for (++node; node < leaves_;) node = 2 * node + (nodes_at(2 * node).longest == 0 ? 1 : 0);
        return lowest_of(node - leaves_, word(node - leaves_));
    }

    /// The runs of free cells within [first, end), in order.
    BitRuns free_runs(Cell first, Cell end) const { return {words_.data(), 0, first, end}; }

    /// The runs of cells in use within [first, end), in order.
    BitRuns used_runs(Cell first, Cell end) const { return {words_.data(), ~Word{0}, first, end}; }

    /// The first cell of the lowest run of n >= 1 free cells, or -1.
    Cell find_run(std::int32_t n) {
        settle();
        if (nodes_[1].longest < n) return -1;
        std::int64_t node = 1;
        std::int64_t first = 0;
        for (std::int64_t half = leaves_ * 32; node < leaves_; half /= 2) {
            const Node& left = nodes_at(2 * node);
            const Node& right = nodes_at(2 * node + 1);
            if (left.longest >= n) {
                node = 2 * node;
            } else if (left.suffix + right.prefix >= n) {
                return static_cast<Cell>(first + half - left.suffix);
            } else {
                node = 2 * node + 1;
                first += half;
            }
        }
        return static_cast<Cell>(first + std::countr_zero(run_starts(word(node - leaves_), n)));
    }

    /// Takes [first, first + n), all of them free.
    void take(Cell first, std::int32_t n) {
        visit_words(first, n, [&](std::int64_t at, Word cells) { word(at) &= ~cells; });
        count_ -= n;
        touch(first / 64, (first + n - 1) / 64);
    }

    /// Frees [first, first + n), none of them free.
    void give(Cell first, std::int32_t n) {
        visit_words(first, n, [&](std::int64_t at, Word cells) { give_word(at, cells); });
    }

    /// The same for these cells of word `at`.
    void give_word(std::int64_t at, Word cells) {
        if (cells == 0) return;
        word(at) |= cells;
        count_ += cells == ~Word{0} ? 64 : std::popcount(cells); // popcount is a function call on plain x86-64
        lowest_word_ = std::min(lowest_word_, at);
        touch(at, at);
    }

    /// Makes [0, used) used and [used, cells) free. O(cells / 64).
    void pack(Cell used, Cell cells) {
        std::fill_n(words_.data(), words_.size(), Word{0});
        std::fill_n(nodes_.data(), nodes_.size(), Node{});
        count_ = 0;
        lowest_word_ = 0;
        give(used, cells - used);
    }

private:
    struct Node {
        std::int32_t prefix = 0;  ///< free cells at the start of the span
        std::int32_t suffix = 0;  ///< and at its end
        std::int32_t longest = 0; ///< the longest run inside

        bool operator==(const Node&) const = default;
    };

    static Cell lowest_of(std::int64_t at, Word bits) { return static_cast<Cell>(at * 64 + std::countr_zero(bits)); }

    // The bits at which n consecutive ones begin, found by joining runs of 1, 2, 4, ... ones.
    static Word run_starts(Word bits, std::int32_t n) {
        for (std::int32_t have = 1; have < n;) {
            const std::int32_t more = std::min(have, n - have);
            bits &= bits >> more;
            have += more;
        }
        return bits;
    }

    static std::int32_t longest_run_of(Word bits) {
        if (bits == 0 || bits == ~Word{0}) return std::popcount(bits);
        Word starts[6] = {bits}; // starts[k]: where 2^k consecutive ones begin
        for (int k = 1; k < 6; ++k) starts[k] = starts[k - 1] & (starts[k - 1] >> (1 << (k - 1)));
        Word found = ~Word{0};
        std::int32_t length = 0;
        for (int k = 5; k >= 0; --k) {
            const Word longer = found & (starts[k] >> length);
            if (longer == 0) continue;
            found = longer;
            length += 1 << k;
        }
        return length;
    }

    static Node leaf(Word bits) { return {std::countr_one(bits), std::countl_one(bits), longest_run_of(bits)}; }

    static Node join(const Node& left, const Node& right, std::int64_t half) {
        return {left.prefix == half ? left.prefix + right.prefix : left.prefix,
                right.suffix == half ? right.suffix + left.suffix : right.suffix,
                std::max({left.longest, right.longest, left.suffix + right.prefix})};
    }

    void settle() {
        if (touched_first_ <= touched_last_) refresh(touched_first_, touched_last_);
        touched_first_ = untouched;
        touched_last_ = -1;
    }

    void touch(std::int64_t from, std::int64_t to) {
        if (to + 1 < touched_first_ || from > touched_last_ + 1) settle();
        touched_first_ = std::min(touched_first_, from);
        touched_last_ = std::max(touched_last_, to);
    }

    // Updates the nodes above words [first, last], level by level, until a level does not change.
    void refresh(std::int64_t first, std::int64_t last) {
        for (std::int64_t at = first; at <= last; ++at) nodes_at(leaves_ + at) = leaf(word(at));
        first += leaves_;
        last += leaves_;
        bool changed = true;
        for (std::int64_t half = 64; changed && first > 1; half *= 2) {
            first /= 2;
            last /= 2;
            changed = false;
            for (std::int64_t node = first; node <= last; ++node) {
                const Node joined = join(nodes_at(2 * node), nodes_at(2 * node + 1), half);
                changed = changed || joined != nodes_at(node);
                nodes_at(node) = joined;
            }
        }
    }

    Word& word(std::int64_t at) { return words_[at]; }
    const Word& word(std::int64_t at) const { return words_[at]; }
    Node& nodes_at(std::int64_t node) { return nodes_[node]; }
    const Node& nodes_at(std::int64_t node) const { return nodes_[node]; }

    std::int64_t leaves_;
    ZeroedArray<Word> words_;
    ZeroedArray<Node> nodes_; // a heap: node k has the children 2k and 2k + 1, the leaves stand at leaves_
    std::int32_t count_ = 0;
    std::int64_t lowest_word_ = 0; // no word below has a free cell
    // The words that changed since the tree was updated.
    static constexpr std::int64_t untouched = INT64_MAX / 2;
    std::int64_t touched_first_ = untouched;
    std::int64_t touched_last_ = -1;
};

} // namespace cellar::detail
