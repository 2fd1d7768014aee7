// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/attention/detail/sight.hpp>
#include <cellar/attention/detail/tile.hpp>

#include <algorithm>
#include <cstddef>
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

/// Tokens of one sequence, whose queries go through its history together. Or tokens of several, with a prefix that they
/// share.
struct TokenBlock {
    static constexpr std::int32_t none = -1;

    std::int32_t first; ///< in the list of sights
    std::int32_t count;
    std::int32_t sinks;
    Position from; ///< of all that its tokens see, or of what they see of the prefix; sinks apart
    Position to;
    bool is_shared;          ///< of several sequences: other blocks join and write its results
    std::int32_t prefix;     ///< the block with what its tokens see before `from`, or `none`
    bool packs;              ///< the tile is packed for many queries; else it is read in place, by all heads in turn
    int rows;                ///< queries of an item
    int parts;               ///< the parts into which the history is divided, each of `step` positions
    std::int32_t step;       ///< in positions
    std::int64_t first_item; ///< an item is a part for all heads, or for one head if the block packs
    std::int64_t first_part; ///< where the partial results of its items begin, in floats; only if it has any

    /// True if its items leave partial results, which are joined when all are there.
    bool has_partial_results() const { return parts > 1 || is_shared || prefix != none; }
};

/// Divides the work of a call into items. It depends on the batch and on what its tokens see, not on the number of
/// threads.
class AttentionPlan {
public:
    /// `sights`: see find_sights; sequences may change places. `blocks`: room for `max_blocks`.
    AttentionPlan(const AttentionShape& shape, Sight* sights, TokenBlock* blocks, bool reads_shared_once)
        : shape_{shape}, sights_{sights}, blocks_{blocks} {
        for (std::int32_t i = 0; i < shape.tokens;) {
            const Shared shared = reads_shared_once ? find_shared(i) : Shared{};
            if (shared.end != 0) {
                add_shared(i, shared);
                i = shared.end;
            } else {
                const std::int32_t end = end_of_sequence(i);
                add_sequence(i, end, {0}, TokenBlock::none);
                i = end;
            }
        }
    }

    /// Of a batch of n tokens.
    static std::int64_t max_blocks(std::int64_t n) { return n + n / 2; }

    std::int64_t items() const { return items_; }
    /// The nth item to work on.
    std::int64_t item(std::int64_t nth) const { return order_ == nullptr ? nth : order_[nth].item; }

    /// What `order_items` needs.
    std::int64_t bytes_of_order() const { return has_order() ? items_ * std::int64_t{sizeof(PlacedItem)} : 0; }
    /// Puts the items in the order of the cells with which they begin. Where the cells of sequences alternate, one
    /// sequence after another would skip most of what the processor fetches ahead.
    void order_items(std::byte* memory) {
        if (!has_order()) return;
        auto* const order = reinterpret_cast<PlacedItem*>(memory);
        PlacedItem* end = order;
        for (std::int32_t b = 0; b < count_; ++b) {
            const TokenBlock& block = blocks_[b];
            for (int head = 0; head < (block.packs ? shape_.kv_heads : 1); ++head)
                for (int nth = 0; nth < block.parts; ++nth, ++end)
                    *end = {sights_[block.first].runs->cell_from(block.from + nth * block.step), end - order};
        }
        const auto is_before = [](const PlacedItem& a, const PlacedItem& b) {
            return a.cell == b.cell ? a.item < b.item : a.cell < b.cell;
        };
        if (std::is_sorted(order, end, is_before)) return;
        std::sort(order, end, is_before);
        order_ = order;
    }
    std::int32_t blocks() const { return count_; }
    const TokenBlock& block(std::int32_t i) const { return blocks_[i]; }

    /// The block of an item.
    const TokenBlock& block_of(std::int64_t item) const {
        return *(std::upper_bound(blocks_, blocks_ + count_, item,
                                  [](std::int64_t i, const TokenBlock& block) { return i < block.first_item; })
                 - 1);
    }

    int max_rows() const { return max_rows_; }                ///< of an item
    int max_packed_rows() const { return max_packed_rows_; }  ///< of an item of a block that packs; 0: none does
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

    struct PlacedItem {
        Cell cell;
        std::int64_t item;
    };

    // Blocks of one item are in order: sights are sorted by the first cells of their sequences.
    bool has_order() const { return count_ > 1 && items_ > count_; }

    // Sequences with the same tokens in the same cells below `until`. Their sights are those up to `end`.
    struct Shared {
        std::int32_t end = 0;
        Position until{};
    };

    std::int32_t end_of_sequence(std::int32_t begin) const {
        std::int32_t end = begin + 1;
        while (end < shape_.tokens && sights_[end].runs == sights_[begin].runs) ++end;
        return end;
    }

    bool packs_alone(std::int32_t begin, std::int32_t end) const {
        return (end - begin) * shape_.group() >= packed_rows;
    }

    // How many positions below `until` all these tokens see.
    std::int32_t seen_below(Position until, std::int32_t begin, std::int32_t end) const {
        Position from{0};
        for (std::int32_t t = begin; t < end; ++t) from = std::max(from, sights_[t].from);
        return until - from;
    }

    // Sequences that share a long prefix with the one that begins at `begin`. One joins if as many or more positions
    // are saved with it, although the common prefix may be shorter. Joined ones move to the front.
    Shared find_shared(std::int32_t begin) {
        Shared shared{end_of_sequence(begin), to_end};
        if (packs_alone(begin, shared.end)) return {};
        std::int32_t joined = 1;
        const Cell cell = sights_[begin].runs->first_cell();
        for (std::int32_t i = shared.end, end = 0; i < shape_.tokens; i = end) {
            if (sights_[i].runs->first_cell() != cell) break; // they are sorted by that
            end = end_of_sequence(i);
            if (packs_alone(i, end)) continue;
            const Position until = std::min(shared.until, sights_[begin].runs->shared_until(*sights_[i].runs));
            const std::int64_t seen = std::min(seen_below(until, begin, shared.end), seen_below(until, i, end));
            if (seen < smallest_step) continue;
            if (joined > 1 && joined * seen < (joined - 1) * std::int64_t{seen_below(shared.until, begin, shared.end)})
                continue;
            std::rotate(sights_ + shared.end, sights_ + i, sights_ + end);
            shared.end += end - i;
            shared.until = until;
            ++joined;
        }
        return joined > 1 ? shared : Shared{};
    }

    // Blocks of whole sequences for the prefix, and one for the rest of each sequence.
    void add_shared(std::int32_t begin, const Shared& shared) {
        const int group = shape_.group();
        const bool packs = packs_alone(begin, shared.end);
        while (begin < shared.end) {
            std::int32_t end = end_of_sequence(begin);
            for (std::int32_t next = end; next < shared.end; end = next) {
                next = end_of_sequence(end);
                if ((next - begin) * group > block_rows) break;
            }
            const std::int32_t prefix = count_;
            TokenBlock& block = add_block(begin, end, packs);
            block.is_shared = true;
            block.to = std::min(block.to, shared.until);
            divide(block, packs ? shape_.kv_heads : 1);
            for (std::int32_t i = begin; i < end;) {
                const std::int32_t behind = end_of_sequence(i);
                add_sequence(i, behind, shared.until, prefix);
                i = behind;
            }
            begin = end;
        }
    }

    // `prefix`: the block for the positions below `from`, or none.
    void add_sequence(std::int32_t begin, std::int32_t end, Position from, std::int32_t prefix) {
        const int group = shape_.group();
        const bool packs = packs_alone(begin, end);
        const std::int32_t tokens = packs ? std::max(1, block_rows / group) : end - begin;
        const std::int64_t items = (end - begin + tokens - 1) / tokens * std::int64_t{packs ? shape_.kv_heads : 1};
        for (std::int32_t i = begin; i < end; i += tokens) {
            TokenBlock& block = add_block(i, std::min(i + tokens, end), packs);
            if (prefix != TokenBlock::none) {
                block.prefix = prefix;
                block.from = std::max(block.from, from);
                block.sinks = 0; // they are part of the prefix
            }
            divide(block, items);
        }
    }

    TokenBlock& add_block(std::int32_t begin, std::int32_t end, bool packs) {
        TokenBlock& block = blocks_[count_++];
        block = {.first = begin,
                 .count = end - begin,
                 .sinks = 0,
                 .from = sights_[begin].from,
                 .to = sights_[begin].to,
                 .is_shared = false,
                 .prefix = TokenBlock::none,
                 .packs = packs,
                 .rows = 0,
                 .parts = 1,
                 .step = 0,
                 .first_item = items_,
                 .first_part = 0};
        for (std::int32_t t = begin; t < end; ++t) {
            block.sinks = std::max(block.sinks, std::min(sights_[t].sinks, sights_[t].to.value));
            block.from = std::min(block.from, sights_[t].from);
            block.to = std::max(block.to, sights_[t].to);
        }
        return block;
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
        if (block.packs) max_packed_rows_ = std::max(max_packed_rows_, block.rows);
        if (!block.has_partial_results()) return;
        block.first_part = part_floats_;
        part_floats_ += heads * block.parts * part_floats(block);
    }

    AttentionShape shape_;
    Sight* sights_;
    TokenBlock* blocks_;
    const PlacedItem* order_ = nullptr;
    std::int32_t count_ = 0;
    std::int64_t items_ = 0;
    std::int64_t part_floats_ = 0;
    int max_rows_ = 0;
    int max_packed_rows_ = 0;
};

} // namespace cellar::detail
