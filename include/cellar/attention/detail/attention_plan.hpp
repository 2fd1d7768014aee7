// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/attention/detail/sight.hpp>
#include <cellar/attention/detail/tile.hpp>

#include <algorithm>
#include <cstdint>

namespace cellar::detail {

/// The heads and dims of a call of `attend`.
struct AttentionShape {
    std::int32_t tokens;
    int heads;
    int kv_heads;
    std::int64_t key_dim;
    std::int64_t value_dim;

    /// Query heads for each head of the keys.
    int group() const { return heads / kv_heads; }
};

/// Tokens of one sequence, whose queries go through its history together.
struct TokenBlock {
    std::int32_t first; ///< in the list of sights
    std::int32_t count;
    std::int32_t sinks;
    Position from; ///< of all that its tokens see; sinks apart
    Position to;
    bool packs;              ///< the tile is packed for many queries; else it is read in place, by all heads in turn
    int rows;                ///< queries of an item
    int parts;               ///< the parts into which the history is divided, each of `step` positions
    std::int32_t step;       ///< in positions
    std::int64_t first_item; ///< an item is a part for all heads, or for one head if the block packs
    std::int64_t first_part; ///< where the partial results of its items begin, in floats; only with several parts
};

/// Divides the work of a call into items. It depends on the batch and on what its tokens see, not on the number of
/// threads.
class AttentionPlan {
public:
    /// `sights`: sorted by sequence, then by token. `blocks`: room for as many.
    AttentionPlan(const AttentionShape& shape, const Sight* sights, TokenBlock* blocks)
        : shape_{shape}, sights_{sights}, blocks_{blocks} {
        for (std::int32_t i = 0; i < shape.tokens;) {
            std::int32_t end = i + 1;
            while (end < shape.tokens && sights[end].runs == sights[i].runs) ++end;
            add_sequence(i, end);
            i = end;
        }
    }

    std::int64_t items() const { return items_; }
    std::int32_t blocks() const { return count_; }
    const TokenBlock& block(std::int32_t i) const { return blocks_[i]; }

    /// The block of an item.
    const TokenBlock& block_of(std::int64_t item) const {
        return *(std::upper_bound(blocks_, blocks_ + count_, item,
                                  [](std::int64_t i, const TokenBlock& block) { return i < block.first_item; })
                 - 1);
    }

    int max_rows() const { return max_rows_; }                ///< of an item
    std::int64_t part_floats() const { return part_floats_; } ///< of all partial results
    /// Of one item of a block: for each row, the largest score, the sum of the weights, and the values.
    std::int64_t part_floats(const TokenBlock& block) const { return block.rows * (padded_dim(shape_.value_dim) + 2); }

    /// Rows of a kernel are 1, 2, or a multiple of 4.
    static int padded_rows(int rows) { return rows <= 2 ? rows : (rows + 3) / 4 * 4; }

private:
    static constexpr int packed_rows = 16;    // as many queries a head pay for packing a tile
    static constexpr int block_rows = 128;    // queries a head of a block that packs
    static constexpr int usual_parts = 16;    // of one sequence's history, so that threads share it
    static constexpr int smallest_step = 256; // positions of a part

    void add_sequence(std::int32_t begin, std::int32_t end) {
        const int group = shape_.group();
        const bool packs = (end - begin) * group >= packed_rows;
        const std::int32_t tokens = packs ? std::max(1, block_rows / group) : end - begin;
        const std::int64_t items = (end - begin + tokens - 1) / tokens * std::int64_t{packs ? shape_.kv_heads : 1};
        for (std::int32_t i = begin; i < end; i += tokens) {
            TokenBlock& block = blocks_[count_++];
            block = {.first = i,
                     .count = std::min(tokens, end - i),
                     .sinks = 0,
                     .from = sights_[i].from,
                     .to = sights_[i].to,
                     .packs = packs,
                     .rows = 0,
                     .parts = 1,
                     .step = 0,
                     .first_item = items_,
                     .first_part = 0};
            for (std::int32_t t = i; t < i + block.count; ++t) {
                block.sinks = std::max(block.sinks, std::min(sights_[t].sinks, sights_[t].to.value));
                block.from = std::min(block.from, sights_[t].from);
                block.to = std::max(block.to, sights_[t].to);
            }
            divide(block, items);
        }
    }

    void divide(TokenBlock& block, std::int64_t items_of_sequence) {
        const int group = shape_.group();
        const std::int64_t heads = block.packs ? shape_.kv_heads : 1;
        block.rows =
            block.packs ? padded_rows(block.count * group) : block.count * shape_.kv_heads * padded_rows(group);
        const std::int64_t span = std::max(0, block.to - block.from);
        const std::int64_t most = std::max<std::int64_t>(1, usual_parts / items_of_sequence);
        const std::int64_t parts = std::clamp<std::int64_t>(span / smallest_step, 1, most);
        const std::int64_t step =
            std::max<std::int64_t>(1, (span + parts * tile_cells - 1) / (parts * tile_cells)) * tile_cells;
        block.parts = static_cast<int>(std::max<std::int64_t>(1, (span + step - 1) / step));
        block.step = static_cast<std::int32_t>(std::min<std::int64_t>(step, INT32_MAX));
        items_ += heads * block.parts;
        max_rows_ = std::max(max_rows_, block.rows);
        if (block.parts == 1) return;
        block.first_part = part_floats_;
        part_floats_ += heads * block.parts * part_floats(block);
    }

    AttentionShape shape_;
    const Sight* sights_;
    TokenBlock* blocks_;
    std::int32_t count_ = 0;
    std::int64_t items_ = 0;
    std::int64_t part_floats_ = 0;
    int max_rows_ = 0;
};

} // namespace cellar::detail
