// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/attention/detail/pass_tokens.hpp>
#include <cellar/attention/detail/tile.hpp>
#include <cellar/base/attention_work.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/last_where.hpp>
#include <cellar/base/scratch.hpp>
#include <cellar/book/position_runs.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace cellar::detail {

/// Tokens of one sequence, whose queries go through its history together. Or tokens of several, with a prefix that they
/// share.
struct TokenBlock {
    static constexpr std::int32_t none = -1;

    const PositionRuns* runs; ///< of its first sequence
    std::int32_t first;       ///< among the ranges
    std::int32_t count;
    std::int32_t first_position; ///< no token of its sequences in the batch has one before
    std::int32_t sinks;
    Position from; ///< of all that its tokens see, or of what they see of the prefix; sinks apart
    Position to;
    bool is_shared;          ///< its tokens are of several sequences, whose own blocks merge its results
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

/// Divides the work of the layers of a pass into items. It depends on the batch and on what its tokens see, not on the
/// number of threads.
class AttentionPlan {
    struct PlacedItem {
        Cell cell;
        std::int64_t item;
    };

public:
    static constexpr int packed_rows = 16; ///< as many queries a head pay for packing a tile
    static constexpr int block_rows = 128; ///< queries a head of a block that packs
    static constexpr int usual_parts = 16; ///< of one sequence's history, so that threads share it

    /// `tokens`: their sequences may change places. `blocks`: room for `max_blocks`.
    AttentionPlan(const AttentionShape& shape, const PassTokens& tokens, TokenBlock* blocks, bool reads_shared_once)
        : shape_{shape}, tokens_{tokens}, blocks_{blocks}, reads_shared_once_{reads_shared_once} {
        for (std::int32_t s = 0; s < tokens_.count;) {
            const Shared shared = reads_shared_once ? find_shared(s) : Shared{};
            if (shared.end != 0) {
                add_shared(s, shared);
                s = shared.end;
            } else {
                add_sequence(s++, Position{0}, TokenBlock::none);
            }
        }
    }

    /// True for another layer in which tokens see the same, if this plan divides its work, too.
    bool serves(const AttentionShape& shape, bool reads_shared_once) const {
        return shape.heads == shape_.heads && shape.kv_heads == shape_.kv_heads && shape.value_dim == shape_.value_dim
               && reads_shared_once == reads_shared_once_;
    }

    PassTokens& tokens() { return tokens_; }
    const PassTokens& tokens() const { return tokens_; }

    /// Of a batch of n tokens.
    static constexpr std::int64_t max_blocks(std::int64_t n) { return n + n / 2; }
    /// Of the order of that many items.
    static constexpr std::int64_t bytes_of_order(std::int64_t items) {
        return items * std::int64_t{sizeof(PlacedItem)};
    }

    std::int64_t items() const { return items_; }
    /// The nth item to work on.
    std::int64_t item(std::int64_t nth) const { return order_ == nullptr ? nth : order_[nth].item; }

    /// Puts the items in the order of the cells with which they begin. Where the cells of sequences alternate, one
    /// sequence after another would skip most of what the processor fetches ahead. Blocks of one item are in order:
    /// sequences are sorted by their first cells.
    void order_items(Scratch& memory) {
        if (count_ <= 1 || items_ <= count_) return;
        auto* const order = reinterpret_cast<PlacedItem*>(memory.reserve(bytes_of_order(items_)));
        PlacedItem* end = order;
        for (std::int32_t b = 0; b < count_; ++b) {
            const TokenBlock& block = blocks_[b];
            for (int head = 0; head < (block.packs ? shape_.kv_heads : 1); ++head)
                for (int nth = 0; nth < block.parts; ++nth, ++end)
                    *end = {block.runs->cell_from(block.from + nth * block.step), end - order};
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
        return blocks_[last_where(count_, [&](std::int32_t i) { return blocks_[i].first_item <= item; })];
    }

    int max_rows() const { return max_rows_; }                ///< of an item
    int max_packed_rows() const { return max_packed_rows_; }  ///< of an item of a block that packs; 0: none does
    std::int64_t part_floats() const { return part_floats_; } ///< of all partial results
    /// Of one item of a block: for each row, the largest score, the sum of the weights, and the values.
    std::int64_t part_floats(const TokenBlock& block) const { return block.rows * (padded_dim(shape_.value_dim) + 2); }

    /// Rows of a kernel are 1, 2, or a multiple of 4.
    static constexpr int padded_rows(int rows) { return rows <= 2 ? rows : (rows + 3) / 4 * 4; }

private:
    static constexpr int smallest_step = 256; // positions of a part

    // Sequences up to `end` with the same tokens in the same cells below `until`.
    struct Shared {
        std::int32_t end = 0;
        Position until{};
    };

    // Of sequences [begin, end).
    std::int32_t token_count(std::int32_t begin, std::int32_t end) const {
        return tokens_.sequences[end - 1].end() - tokens_.sequences[begin].first;
    }
    bool packs_alone(std::int32_t begin, std::int32_t end) const {
        return token_count(begin, end) * shape_.group() >= packed_rows;
    }

    // How many positions below `until` all tokens of these sequences see.
    std::int32_t seen_below(Position until, std::int32_t begin, std::int32_t end) const {
        const VisibleSpan seen = tokens_.seen(tokens_.sequences[begin].first, tokens_.sequences[end - 1].end());
        return std::min(until.value, seen.all_to) - seen.all_from;
    }

    // Moves sequence `from` to the place `to` before it.
    void move_to(std::int32_t to, std::int32_t from) const {
        SequenceTokens* const s = tokens_.sequences;
        std::rotate(tokens_.ranges + s[to].first, tokens_.ranges + s[from].first, tokens_.ranges + s[from].end());
        std::int32_t first = s[to].first;
        std::rotate(s + to, s + from, s + from + 1);
        for (std::int32_t i = to; i <= from; ++i) {
            s[i].first = first;
            first = s[i].end();
        }
    }

    // Sequences that share a long prefix with the one at `begin`. One joins if as many or more positions are saved with
    // it, although the common prefix may be shorter. Joined ones move to the front.
    Shared find_shared(std::int32_t begin) {
        Shared shared{begin + 1, to_end};
        if (packs_alone(begin, shared.end)) return {};
        const PositionRuns& runs = *tokens_.sequences[begin].runs;
        for (std::int32_t i = shared.end; i < tokens_.count; ++i) {
            const PositionRuns& other = *tokens_.sequences[i].runs;
            if (other.first_cell() != runs.first_cell()) break; // they are sorted by that
            if (packs_alone(i, i + 1)) continue;
            const std::int64_t joined = shared.end - begin;
            const Position until = std::min(shared.until, runs.shared_until(other));
            const std::int64_t seen = std::min(seen_below(until, begin, shared.end), seen_below(until, i, i + 1));
            if (seen < smallest_step) continue;
            if (joined > 1 && joined * seen < (joined - 1) * seen_below(shared.until, begin, shared.end)) continue;
            move_to(shared.end++, i);
            shared.until = until;
        }
        return shared.end > begin + 1 ? shared : Shared{};
    }

    // Blocks of whole sequences for the prefix, and one for the rest of each sequence.
    void add_shared(std::int32_t begin, const Shared& shared) {
        const bool packs = packs_alone(begin, shared.end);
        for (std::int32_t end = begin; begin < shared.end; begin = end) {
            do ++end;
            while (end < shared.end && token_count(begin, end + 1) * shape_.group() <= block_rows);
            const std::int32_t prefix = count_;
            TokenBlock& block = add_block(begin, end, packs);
            block.is_shared = true;
            block.to = std::min(block.to, shared.until);
            divide(block, packs ? shape_.kv_heads : 1);
            for (std::int32_t s = begin; s < end; ++s) add_sequence(s, shared.until, prefix);
        }
    }

    // `prefix`: the block for the positions below `from`, or none.
    void add_sequence(std::int32_t s, Position from, std::int32_t prefix) {
        const SequenceTokens& sequence = tokens_.sequences[s];
        const int group = shape_.group();
        const bool packs = packs_alone(s, s + 1);
        const std::int32_t tokens = packs ? std::max(1, block_rows / group) : sequence.count;
        const std::int64_t items = (sequence.count + tokens - 1) / tokens * std::int64_t{packs ? shape_.kv_heads : 1};
        for (std::int32_t i = sequence.first; i < sequence.end(); i += tokens) {
            TokenBlock& block = add_block(sequence, i, std::min(i + tokens, sequence.end()), packs);
            if (prefix != TokenBlock::none) {
                block.prefix = prefix;
                block.from = std::max(block.from, from);
                block.sinks = 0; // they are part of the prefix
            }
            divide(block, items);
        }
    }

    // Of whole sequences [begin, end).
    TokenBlock& add_block(std::int32_t begin, std::int32_t end, bool packs) {
        const SequenceTokens* const s = tokens_.sequences;
        TokenBlock& block = add_block(s[begin], s[begin].first, s[end - 1].end(), packs);
        for (std::int32_t i = begin; i < end; ++i)
            block.first_position = std::min(block.first_position, s[i].first_position);
        return block;
    }
    // Of tokens [begin, end), the first ones of that sequence.
    TokenBlock& add_block(const SequenceTokens& sequence, std::int32_t begin, std::int32_t end, bool packs) {
        const VisibleSpan seen = tokens_.seen(begin, end);
        return blocks_[count_++] = {.runs = sequence.runs,
                                    .first = begin,
                                    .count = end - begin,
                                    .first_position = sequence.first_position,
                                    .sinks = std::min(tokens_.sinks, seen.to),
                                    .from = Position{seen.from},
                                    .to = Position{seen.to},
                                    .is_shared = false,
                                    .prefix = TokenBlock::none,
                                    .packs = packs,
                                    .rows = 0,
                                    .parts = 1,
                                    .step = 0,
                                    .first_item = items_,
                                    .first_part = 0};
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
    PassTokens tokens_;
    TokenBlock* blocks_;
    bool reads_shared_once_;
    const PlacedItem* order_ = nullptr;
    std::int32_t count_ = 0;
    std::int64_t items_ = 0;
    std::int64_t part_floats_ = 0;
    int max_rows_ = 0;
    int max_packed_rows_ = 0;
};

/// The plan for a layer of the open pass: that of the layer before, if it serves this one.
template <AttentionSource Source>
AttentionPlan& plan_of(Source& source, const AttentionShape& shape, bool reads_shared_once) {
    auto* const kept = kept_for<AttentionPlan>(source);
    if (kept != nullptr && kept->serves(shape, reads_shared_once)) return *kept;
    struct Taken {
        AttentionPlan* plan;
        TokenBlock* blocks;
        PassTokens tokens;
    };
    Taken taken = take_kept(source, [&](ScratchArrays& arrays) {
        return Taken{arrays.take<AttentionPlan>(1), arrays.take<TokenBlock>(AttentionPlan::max_blocks(shape.tokens)),
                     PassTokens{shape.tokens, arrays}};
    });
    taken.tokens.find(source);
    auto& plan = *std::construct_at(taken.plan, shape, taken.tokens, taken.blocks, reads_shared_once);
    plan.order_items(source.memory().lists);
    source.memory().planned_for = source.shown_by();
    return plan;
}

} // namespace cellar::detail
