// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/book/cell_set_memory.hpp>
#include <cellar/book/words.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
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

/// A set of cells: a bitmap in blocks of 512 cells, below a tree of two levels. Adding or removing n neighbouring cells
/// is O(n / 64). Visiting and clearing cost O(blocks with a cell), plus O(cells / 8192) between the lowest and the
/// highest cell, which are tracked.
///
/// Members that add cells need blocks and branches that were reserved in the memory.
class CellSet {
    using Block = CellSetMemory::Blocks::Node;
    using Branch = CellSetMemory::Branches::Node;
    static constexpr std::int64_t block_words = CellSetMemory::block_words;
    static constexpr std::int64_t branch_blocks = CellSetMemory::branch_blocks;
    static constexpr std::int64_t branch_words = block_words * branch_blocks;

public:
    /// Set number `index` of `memory`, which must outlive it.
    CellSet(CellSetMemory& memory, std::int32_t index) : memory_{&memory}, root_{memory.root(index)} {}

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

    /// Cells that are not in the set are ignored.
    void remove_word(std::int64_t at, Word cells) {
        const auto number = static_cast<std::int32_t>(static_cast<std::size_t>(at) / block_words);
        if (removed_from_.at != number) {
            const std::uint32_t block = node_of(at);
            if (block == 0) return;
            removed_from_ = {number, block};
        }
        Block& block = blocks()[removed_from_.block];
        Word& word = block.values[in_block(at)];
        word &= ~cells;
        if (word == 0 && block.empty()) give_block(at);
        if (at == word_of(within_.lowest) || at == word_of(within_.highest)) is_tight_ = false;
    }

    /// The same for cells of one word, or for all cells of several.
    void remove(const CellsOfWords& cells) {
        if (cells.words == 1) return remove_word(cells.at, cells.cells);
        const std::int64_t end = cells.at + cells.words;
        for (std::int64_t at = cells.at; at < end;) {
            const std::int64_t next = std::min((at | (block_words - 1)) + 1, end);
            if (const std::uint32_t node = node_of(at); node != 0) {
                Block& block = blocks()[node];
                for (std::size_t i = in_block(at), n = i + static_cast<std::size_t>(next - at); i < n; ++i)
                    block.values[i] = 0;
                if (block.empty()) give_block(at);
            }
            at = next;
        }
        const auto has = [&](Cell bound) { return cells.at <= word_of(bound) && word_of(bound) < end; };
        if (has(within_.lowest) || has(within_.highest)) is_tight_ = false;
    }

    void clear() {
        for_each_root([&](std::int64_t i) {
            for (const std::uint32_t block : branches()[root_[i]].values)
                if (block != 0) blocks().give(block);
            branches().give(root_[i]);
            root_[i] = 0;
        });
        block_count_ = 0;
        added_to_ = removed_from_ = {};
        within_ = {};
        is_tight_ = true;
    }

    /// Calls `visit(word, cells)` for every non-zero word, in order. The visit may remove its cells.
    template <class Visit>
    void for_each_word(Visit visit) const {
        for_each_root([&](std::int64_t i) {
            const Branch branch = branches()[root_[i]]; // a copy, because the visit may give it back
            for (std::int64_t child = 0; child < branch_blocks; ++child) {
                const std::int64_t at = i * branch_words + child * block_words;
                if (branch.values[static_cast<std::size_t>(child)] != 0) visit_block(at, visit);
            }
        });
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

    /// Calls `visit(i, bits)` for each 64 cells of a range, which begin at its cell 64 * i. The last bits may reach
    /// beyond it; cells that do not exist are not in the set.
    template <class Visit>
    void for_each_64(CellRange range, Visit visit) const {
        if (range.count <= 0) return;
        const std::int64_t shift = bit_of(range.first);
        const auto joined = [shift](Word low, Word high) { return low >> shift | high << 1 << (63 - shift); };
        const std::int64_t n = (std::int64_t{range.count} + word_bits - 1) / word_bits;
        std::int64_t at = word_of(range.first);
        if (shift == 0) {
            for (std::int64_t i = 0; i < n; at += block_words - at % block_words) {
                const Block& block = block_of(at);
                for (std::size_t k = in_block(at); k < block_words && i < n; ++k, ++i) visit(i, block.values[k]);
            }
            return;
        }
        const Block* block = &block_of(at);
        for (std::int64_t i = 0; i < n; ++i) {
            const Word low = block->values[in_block(at)];
            if (++at % block_words == 0) block = at < memory_->words() ? &block_of(at) : &blocks()[0];
            visit(i, joined(low, block->values[in_block(at)]));
        }
    }

    /// Becomes equal to `other`, another set of the same memory.
    void assign(const CellSet& other) {
        clear();
        other.for_each_root([&](std::int64_t i) {
            root_[i] = branches().take();
            for (std::size_t child = 0; child < branch_blocks; ++child) {
                const std::uint32_t from = branches()[other.root_[i]].values[child];
                if (from == 0) continue;
                const std::uint32_t block = blocks().take();
                blocks()[block] = blocks()[from];
                branches()[root_[i]].values[child] = block;
            }
        });
        within_ = other.within_;
        is_tight_ = other.is_tight_;
        block_count_ = other.block_count_;
    }

    /// O(1), except after the lowest or the highest cell was removed: then the search continues from there.
    CellBounds bounds() {
        if (!is_tight_) tighten();
        return within_;
    }

    bool contains(Cell cell) const { return (word(word_of(cell)) >> bit_of(cell) & 1) != 0; }

    /// How many blocks have cells of the set. At most as many branches lie above them.
    std::int64_t block_count() const { return block_count_; }

private:
    // Unsigned, because dividing a signed number costs more instructions.
    static std::size_t branch_at(std::int64_t at) { return static_cast<std::size_t>(at) / branch_words; }
    static std::size_t child_of(std::int64_t at) { return static_cast<std::size_t>(at) / block_words % branch_blocks; }
    static std::size_t in_block(std::int64_t at) { return static_cast<std::size_t>(at) % block_words; }

    static Cell lowest_of(std::int64_t at, Word cells) {
        return static_cast<Cell>(at * word_bits + std::countr_zero(cells));
    }
    static Cell highest_of(std::int64_t at, Word cells) {
        return static_cast<Cell>(at * word_bits + word_bits - 1 - std::countl_zero(cells));
    }

    CellSetMemory::Blocks& blocks() const { return memory_->blocks(); }
    CellSetMemory::Branches& branches() const { return memory_->branches(); }

    // The block of word `at`; 0, which is empty, if the set has none there.
    std::uint32_t node_of(std::int64_t at) const { return branches()[root_[branch_at(at)]].values[child_of(at)]; }
    const Block& block_of(std::int64_t at) const { return blocks()[node_of(at)]; }
    Word word(std::int64_t at) const { return block_of(at).values[in_block(at)]; }

    void set(std::int64_t at, Word cells) {
        if (added_to_.at != at / block_words) added_to_ = {static_cast<std::int32_t>(at / block_words), make_block(at)};
        blocks()[added_to_.block].values[in_block(at)] |= cells;
    }

    [[gnu::noinline]] std::uint32_t make_block(std::int64_t at) {
        std::uint32_t& branch = root_[at / branch_words];
        if (branch == 0) branch = branches().take();
        std::uint32_t& block = branches()[branch].values[child_of(at)];
        if (block == 0) {
            block = blocks().take();
            ++block_count_;
        }
        return block;
    }

    // Gives back the block of word `at`, which is empty.
    [[gnu::noinline]] void give_block(std::int64_t at) {
        std::uint32_t& branch = root_[branch_at(at)];
        Branch& node = branches()[branch];
        std::uint32_t& block = node.values[child_of(at)];
        if (added_to_.block == block) added_to_ = {};
        if (removed_from_.block == block) removed_from_ = {};
        blocks().give_empty(block);
        block = 0;
        --block_count_;
        if (!node.empty()) return;
        branches().give_empty(branch);
        branch = 0;
    }

    template <class Visit>
    void visit_block(std::int64_t at, Visit& visit) const {
        const Block block = block_of(at); // a copy, because the visit may give it back
        for (std::int64_t i = 0; i < block_words; ++i)
            if (const Word cells = block.values[in_block(i)]; cells != 0) visit(at + i, cells);
    }

    template <class Visit>
    void for_each_root(Visit visit) const {
        if (within_.empty()) return;
        const std::int64_t last = word_of(within_.highest) / branch_words;
        for (std::int64_t i = word_of(within_.lowest) / branch_words; i <= last; ++i)
            if (root_[i] != 0) visit(i);
    }

    void tighten() {
        within_ = {find_lowest(), find_highest()};
        is_tight_ = true;
    }

    Cell find_lowest() const {
        const std::int64_t last = word_of(within_.highest);
        for (std::int64_t at = word_of(within_.lowest); at <= last;) {
            const Block& block = block_of(at);
            for (std::size_t i = in_block(at); i < block_words; ++i)
                if (block.values[i] != 0)
                    return lowest_of(at - at % block_words + static_cast<std::int64_t>(i), block.values[i]);
            const std::int64_t empty = empty_words(at);
            at = (at / empty + 1) * empty;
        }
        return CellBounds{}.lowest;
    }

    Cell find_highest() const {
        const std::int64_t first = word_of(within_.lowest);
        for (std::int64_t at = word_of(within_.highest); at >= first;) {
            const Block& block = block_of(at);
            for (std::size_t i = in_block(at) + 1; i-- > 0;)
                if (block.values[i] != 0)
                    return highest_of(at - at % block_words + static_cast<std::int64_t>(i), block.values[i]);
            const std::int64_t empty = empty_words(at);
            at = at / empty * empty - 1;
        }
        return CellBounds{}.highest;
    }

    // How many words to step over behind a block without further cells: the rest of it, or of its branch.
    std::int64_t empty_words(std::int64_t at) const {
        return root_[at / branch_words] == 0 ? branch_words : block_words;
    }

    CellSetMemory* memory_;
    std::uint32_t* root_; // the numbers of branches, for 8192 cells each; 0: none
    CellBounds within_;   // contains all cells
    // Where cells were added and removed last. From one token to the next, it is usually the same block.
    struct Place {
        std::int32_t at = -1; // the number of the block among the cells
        std::uint32_t block = 0;
    };
    Place added_to_;
    Place removed_from_;
    std::int32_t block_count_ = 0;
    bool is_tight_ = true; // within_ is exact
};

} // namespace cellar::detail
