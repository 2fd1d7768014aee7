// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/memory_bytes.hpp>
#include <cellar/base/zeroed.hpp>
#include <cellar/book/words.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace cellar::detail {

/// Numbered nodes of one cache line each. Node 0 always exists and is empty. Only `reserve` allocates; it may move the
/// nodes, so references end there.
template <class Value>
class NodePool {
public:
    struct alignas(64) Node {
        std::array<Value, 64 / sizeof(Value)> values;

        /// Reads value by value, because one was just written, and a wider load would wait for it; from the end,
        /// because cells are usually removed in ascending order.
        bool empty() const {
            for (std::size_t i = values.size(); i-- > 0;)
                if (values[i] != 0) return false;
            return true;
        }
    };

    explicit NodePool(std::int64_t planned) : nodes_{1 + planned} {}
    static constexpr std::int64_t bytes_for(std::int64_t planned) { return bytes_of<Node>(1 + planned); }

    Node& operator[](std::uint32_t node) { return nodes_[node]; }
    const Node& operator[](std::uint32_t node) const { return nodes_[node]; }

    /// Afterwards, `take` can be called `more` times. Returns true if it allocated. Throws `std::bad_alloc`, with
    /// nothing changed.
    bool reserve(std::int64_t more) {
        const std::int64_t left = nodes_.size() - used_ + given_;
        if (more <= left) return false;
        grow(more - left);
        return true;
    }

    /// An empty node.
    std::uint32_t take() {
        if (given_ == 0) return static_cast<std::uint32_t>(used_++);
        const auto node = static_cast<std::uint32_t>(last_given_);
        last_given_ = std::exchange(nodes_[node].values[0], Value{0});
        --given_;
        return node;
    }

    /// Gives back a node that `take` returned.
    void give(std::uint32_t node) {
        nodes_[node] = {};
        give_empty(node);
    }
    /// The same for a node that is empty.
    void give_empty(std::uint32_t node) {
        nodes_[node].values[0] = std::exchange(last_given_, Value{node}); // a list through the nodes themselves
        ++given_;
    }

    /// How many nodes were taken and not given back.
    std::int64_t taken() const { return used_ - 1 - given_; }

private:
    [[gnu::noinline, gnu::cold]] void grow(std::int64_t more) {
        ZeroedArray<Node> larger{std::max(nodes_.size() + more, 2 * nodes_.size())};
        std::memcpy(static_cast<void*>(larger.data()), nodes_.data(), static_cast<std::size_t>(used_) * sizeof(Node));
        nodes_ = std::move(larger);
    }

    ZeroedArray<Node> nodes_;
    std::int64_t used_ = 1;  // nodes from here on were never taken
    std::int64_t given_ = 0; // nodes that were given back
    Value last_given_ = 0;
};

/// The memory of a number of sets over the same cells. A set takes 64 bytes for each block of 512 cells in which it has
/// any, and 64 for each group of 16 blocks with such a block. An empty one also takes 4 bytes for every 8192 cells of
/// the pool.
class CellSetMemory {
public:
    static constexpr std::int64_t block_words = 8;
    static constexpr std::int64_t branch_blocks = 16;
    using Blocks = NodePool<Word>;            ///< of 512 cells each
    using Branches = NodePool<std::uint32_t>; ///< the numbers of 16 blocks each

    static constexpr std::int64_t plan_of_blocks = std::int64_t{1} << 20; // 64 MB

    /// `planned`: the most blocks, and the most branches, to plan with from the start. The operating system commits
    /// them as they are used.
    CellSetMemory(Cell cells, std::int32_t sets, std::int64_t planned = plan_of_blocks)
        : words_{words_for(cells)},
          blocks_per_set_{blocks_for(cells)},
          branches_per_set_{branches_for(cells)},
          is_complete_{sets * blocks_per_set_ <= planned},
          roots_{sets * branches_per_set_},
          blocks_{std::min(sets * blocks_per_set_, planned)},
          branches_{std::min(sets * branches_per_set_, planned)} {}
    static constexpr std::int64_t bytes_for(Cell cells, std::int32_t sets, std::int64_t planned = plan_of_blocks) {
        return bytes_of<std::uint32_t>(sets * branches_for(cells))
               + Blocks::bytes_for(std::min(sets * blocks_for(cells), planned))
               + Branches::bytes_for(std::min(sets * branches_for(cells), planned));
    }

    std::int64_t words() const { return words_; }
    std::uint32_t* root(std::int32_t set) { return roots_.data() + set * branches_per_set_; }
    Blocks& blocks() { return blocks_; }
    Branches& branches() { return branches_; }

    /// True if all sets have room for all cells from the start: nothing needs to be reserved.
    bool is_complete() const { return is_complete_; }

    /// The most blocks that so many cells lie in, if they are so many runs of neighbours.
    std::int64_t max_blocks(std::int64_t cells, std::int64_t runs) const {
        return std::min({cells, 2 * runs + cells / (block_words * word_bits), blocks_per_set_});
    }
    /// The most branches that these blocks lie below.
    std::int64_t max_branches(std::int64_t cells, std::int64_t runs) const {
        return std::min({cells, 2 * runs + cells / (branch_blocks * block_words * word_bits), branches_per_set_});
    }

private:
    static constexpr std::int64_t quotient_up(std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit; }
    // Of one set.
    static constexpr std::int64_t blocks_for(Cell cells) { return quotient_up(words_for(cells), block_words); }
    static constexpr std::int64_t branches_for(Cell cells) { return quotient_up(blocks_for(cells), branch_blocks); }

    std::int64_t words_;
    std::int64_t blocks_per_set_;
    std::int64_t branches_per_set_;
    bool is_complete_;
    ZeroedArray<std::uint32_t> roots_;
    Blocks blocks_;
    Branches branches_;
};

} // namespace cellar::detail
