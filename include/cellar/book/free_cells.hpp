// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/base/memory_bytes.hpp>
#include <cellar/base/zeroed.hpp>
#include <cellar/book/number_set.hpp>
#include <cellar/book/words.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>

namespace cellar::detail {

constexpr std::int64_t leaves_for(Cell cells) {
    return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(words_for(cells))));
}

/// Which cells are free, and where n neighbouring ones are. Above a bitmap lies a tree that stores, for every span of
/// words, the free cells at its start, at its end, and its longest free run. A query of the tree is O(log cells). It
/// first updates the nodes above the words that changed since the last one: O(log cells) for each, and O(cells / 2048)
/// for words that lie far apart. A change of n neighbouring cells is O(n / 64).
///
/// A block is a word's cells, 64 neighbours; the last block of a pool may have fewer. Which blocks are wholly free is
/// known without the tree.
///
/// The larger members are not inlined, because every caller's copy of them takes time to compile.
class FreeCells {
public:
    /// All cells are free.
    explicit FreeCells(Cell cells)
        : cells_{cells},
          leaves_{leaves_for(cells)},
          words_{leaves_},
          nodes_{2 * leaves_},
          dirty_{words_for(2 * leaves_)},
          whole_{words_for(cells)} {
        pack(0);
    }
    static constexpr std::int64_t bytes_for(Cell cells) {
        const std::int64_t leaves = leaves_for(cells);
        return bytes_of<Word>(leaves + words_for(2 * leaves)) + bytes_of<Node>(2 * leaves)
               + NumberSet::bytes_for(words_for(cells));
    }

    std::int32_t count() const { return count_; }
    /// The free cells of word `at`.
    Word bits(std::int64_t at) const { return word(at); }
    bool contains(Cell cell) const { return (word(cell / 64) >> (cell % 64) & 1) != 0; }

    /// The length of the longest free run. O(1), or O(cells / 64) while the tree is out of date.
    std::int32_t longest_run() const {
        if (!is_dirty()) return nodes_[1].longest;
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

    /// The lowest of the longest free runs; empty if no cell is free.
    CellRange find_longest_run() {
        settle();
        const std::int32_t n = nodes_[1].longest;
        return {n == 0 ? 0 : find_run(n), n};
    }

    /// How many cells from `from` on are free, within its block.
    std::int32_t free_in_block(Cell from) const {
        return from < cells_ ? std::countr_one(word(word_of(from)) >> bit_of(from)) : 0;
    }

    /// The number of blocks that are wholly free.
    std::int64_t whole_blocks() const { return whole_.count(); }
    bool is_whole(std::int64_t block) const { return block < words_for(cells_) && whole_.contains(block); }

    /// The first cell of the lowest block that is wholly free, or -1. O(log cells), without the tree.
    Cell lowest_block() const {
        const std::int64_t block = whole_.lowest();
        return block < 0 ? -1 : static_cast<Cell>(block * 64);
    }

    /// The cells of the lowest run of wholly free blocks with at least n >= 1 cells; empty if there is none.
    /// O(cells / 4096), however many runs there are.
    CellRange find_blocks(std::int32_t n) const {
        std::int32_t most = n;
        return find_blocks(n, most);
    }
    /// The same, for several queries between which no cell becomes free. `most`: no run has more cells. A query that
    /// finds none lowers it, and later ones for more cells than that are O(1).
    [[gnu::noinline]] CellRange find_blocks(std::int32_t n, std::int32_t& most) const {
        if (n > most || whole_.count() == 0) return {};
        std::int64_t longest = 0;
        const std::int64_t first = find_whole(words_for(n), longest);
        if (first >= 0) {
            BitRuns runs{whole_.words(), 0, static_cast<Cell>(first), static_cast<Cell>(words_for(cells_))};
            if (const CellRange found = cells_of(runs.next()); found.count >= n) return found;
            return {}; // the last block has fewer cells
        }
        most = static_cast<std::int32_t>(std::min<std::int64_t>(most, longest * word_bits));
        return {};
    }

    /// The cells of the wholly free blocks from `block` on, up to one that is not, or until they are at least n.
    std::int32_t free_in_blocks(std::int64_t block, std::int32_t n) const {
        std::int64_t free = 0;
        for (; free < n && is_whole(block); ++block) free += std::min<std::int64_t>(cells_ - block * 64, 64);
        return static_cast<std::int32_t>(free);
    }

    /// The lowest free cell, or -1.
    Cell lowest() {
        const Cell found = next(static_cast<Cell>(lowest_word_ * 64));
        if (found >= 0) lowest_word_ = found / 64;
        return found;
    }

    /// The lowest free cell from `from` on, or -1.
    [[gnu::noinline]] Cell next(Cell from) {
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
    [[gnu::noinline]] Cell find_run(std::int32_t n) {
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
    [[gnu::noinline]] void take(Cell first, std::int32_t n) {
        visit_words(first, n, [&](std::int64_t at, Word cells) { take_from(at, cells); });
        count_ -= n;
    }
    void take(Cell cell) {
        take_from(word_of(cell), Word{1} << bit_of(cell));
        --count_;
    }

    /// Frees [first, first + n), none of them free.
    void give(Cell first, std::int32_t n) {
        visit_words(first, n, [&](std::int64_t at, Word cells) { give_word(at, cells); });
    }

    /// The same for these cells of word `at`.
    [[gnu::noinline]] void give_word(std::int64_t at, Word cells) {
        if (cells == 0) return;
        const Word free = word(at) |= cells;
        count_ += cells == ~Word{0} ? 64 : std::popcount(cells); // popcount is a function call on plain x86-64
        lowest_word_ = std::min(lowest_word_, at);
        if (free == ~Word{0} || free == whole(at)) whole_.add(at);
        touch(at);
    }

    /// The same for cells of one word, or for all cells of several.
    void give(const CellsOfWords& cells) {
        if (cells.words == 1) return give_word(cells.at, cells.cells);
        std::fill_n(words_.data() + cells.at, cells.words, ~Word{0});
        count_ += static_cast<std::int32_t>(cells.words * word_bits);
        lowest_word_ = std::min(lowest_word_, cells.at);
        whole_.add(cells.at, cells.at + cells.words);
        touch(cells.at, cells.words);
    }

    /// Makes [0, used) used and [used, cells) free. O(cells / 64).
    void pack(Cell used) {
        const std::int64_t words = words_for(cells_);
        Word* const free = words_.data();
        std::fill(free, free + word_of(used), Word{0});
        std::fill(free + word_of(used), free + words, ~Word{0});
        if (words != 0) word(words - 1) &= whole(words - 1);
        if (bit_of(used) != 0) word(word_of(used)) &= ~Word{0} << bit_of(used);
        count_ = cells_ - used;
        lowest_word_ = word_of(used);
        whole_.assign(words_for(used), words);
        touch(0, words);
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

    // Word `at` with all cells that it has.
    Word whole(std::int64_t at) const {
        const std::int64_t cells = cells_ - at * 64;
        return cells >= 64 ? ~Word{0} : ~(~Word{0} << cells);
    }

    // The first of the lowest `wanted` neighbouring blocks that are wholly free, or -1. Then `longest` becomes the
    // length of the longest run.
    std::int64_t find_whole(std::int64_t wanted, std::int64_t& longest) const {
        const std::int64_t words = words_for(words_for(cells_));
        std::int64_t run = 0; // wholly free blocks right before word `at`
        for (std::int64_t at = word_of(whole_.lowest()); at <= words; ++at) {
            const Word bits = at < words ? whole_.words()[at] : 0;
            const int front = std::countr_one(bits);
            run += front;
            if (bits == ~Word{0}) continue;
            if (run >= wanted) return at * word_bits + front - run;
            const std::int32_t inside = longest_run_of(bits);
            if (inside >= wanted)
                return at * word_bits + std::countr_zero(run_starts(bits, static_cast<std::int32_t>(wanted)));
            longest = std::max({longest, run, std::int64_t{inside}});
            run = std::countl_one(bits);
        }
        return -1;
    }

    CellRange cells_of(const CellRange& blocks) const {
        const std::int64_t first = std::int64_t{blocks.first} * 64;
        const std::int64_t end = std::min<std::int64_t>(first + std::int64_t{blocks.count} * 64, cells_);
        return {static_cast<Cell>(first), static_cast<std::int32_t>(end - first)};
    }

    void take_from(std::int64_t at, Word cells) {
        Word& free = word(at);
        if (free == whole(at)) whole_.remove(at);
        free &= ~cells;
        touch(at);
    }

    bool is_dirty() const { return dirty_first_ <= dirty_last_; }

    void touch(std::int64_t at) {
        const std::int64_t leaf = leaves_ + at;
        dirty_[word_of(leaf)] |= Word{1} << bit_of(leaf);
        dirty_first_ = std::min(dirty_first_, leaf);
        dirty_last_ = std::max(dirty_last_, leaf);
    }

    void touch(std::int64_t at, std::int64_t words) {
        visit_words(static_cast<Cell>(leaves_ + at), static_cast<std::int32_t>(words),
                    [&](std::int64_t dirty, Word leaves) { dirty_[dirty] |= leaves; });
        dirty_first_ = std::min(dirty_first_, leaves_ + at);
        dirty_last_ = std::max(dirty_last_, leaves_ + at + words - 1);
    }

    // Updates the nodes above the words that changed, level by level, until a level does not change.
    void settle() {
        if (!is_dirty()) return;
        std::int64_t first = dirty_first_;
        std::int64_t last = dirty_last_;
        dirty_first_ = untouched;
        dirty_last_ = -1;
        bool changed = update(first, last, [&](std::int64_t node) { return leaf(word(node - leaves_)); });
        for (std::int64_t half = 64; changed && first > 1; half *= 2) {
            first /= 2;
            last /= 2;
            changed = update(first, last,
                             [&](std::int64_t node) { return join(nodes_at(2 * node), nodes_at(2 * node + 1), half); });
        }
    }

    // Updates those of the nodes [first, last], of one level, that are dirty. Where one changes, its parent is dirty.
    template <class NodeOf>
    bool update(std::int64_t first, std::int64_t last, NodeOf node_of) {
        bool changed = false;
        visit_words(static_cast<Cell>(first), static_cast<std::int32_t>(last - first + 1),
                    [&](std::int64_t at, Word level) {
                        Word nodes = dirty_[at] & level;
                        dirty_[at] ^= nodes;
                        for (; nodes != 0; nodes &= nodes - 1) {
                            const std::int64_t node = at * word_bits + std::countr_zero(nodes);
                            const Node updated = node_of(node);
                            if (updated == nodes_at(node)) continue;
                            nodes_at(node) = updated;
                            dirty_[word_of(node / 2)] |= Word{1} << bit_of(node / 2);
                            changed = true;
                        }
                    });
        return changed;
    }

    Word& word(std::int64_t at) { return words_[at]; }
    const Word& word(std::int64_t at) const { return words_[at]; }
    Node& nodes_at(std::int64_t node) { return nodes_[node]; }
    const Node& nodes_at(std::int64_t node) const { return nodes_[node]; }

    Cell cells_;
    std::int64_t leaves_;
    ZeroedArray<Word> words_;
    ZeroedArray<Node> nodes_; // a heap: node k has the children 2k and 2k + 1, the leaves stand at leaves_
    ZeroedArray<Word> dirty_; // a bit for each node that is out of date, except those above others
    NumberSet whole_;         // the blocks that are wholly free
    std::int32_t count_ = 0;
    std::int64_t lowest_word_ = 0; // no word below has a free cell
    // The dirty leaves lie between these.
    static constexpr std::int64_t untouched = INT64_MAX;
    std::int64_t dirty_first_ = untouched;
    std::int64_t dirty_last_ = -1;
};

} // namespace cellar::detail
