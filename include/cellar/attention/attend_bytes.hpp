// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/attention/detail/attention_plan.hpp>
#include <cellar/attention/detail/code_tile.hpp>
#include <cellar/attention/detail/matrix_unit.hpp>
#include <cellar/attention/detail/pass_tokens.hpp>
#include <cellar/attention/detail/tile.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/named_only.hpp>
#include <cellar/base/score_rule.hpp>
#include <cellar/layout/layer_shape.hpp>

#include <algorithm>
#include <cstdint>

namespace cellar {

/// The largest call of `attend`, for `attend_bytes`.
struct AttendCall {
    NamedOnly named_only{};
    std::int32_t tokens = 1;        ///< of the batch: `CacheLimits::batch`
    std::int32_t sequences = 1;     ///< of the batch, at most
    int heads = 1;                  ///< of queries
    int threads = 1;                ///< `count()` of the threads that it gets
    bool reads_shared_once = false; ///< as in `AttentionOptions`
    bool rotates_on_read = false;   ///< the cache has `RotateOnRead`
    bool has_residual = false;      ///< this is the memory beside a residual: it also takes what is merged
};

namespace detail {

/// As `ScratchArrays` counts an array.
template <class T>
constexpr std::int64_t bytes_of_array(std::int64_t n) {
    return (n * std::int64_t{sizeof(T)} + 63) / 64 * 64;
}

/// What the keys or the values of a tile take at most, in any format. `dim` is padded.
constexpr std::int64_t bytes_of_tile_rows(std::int64_t dim, std::int64_t rows) {
    const std::int64_t groups = dim / dim_unit; // with a factor each, in formats that have the most
    const std::int64_t stride = padded_codes(dim);
    const std::int64_t queries_in_bytes =
        bytes_of_array<std::int8_t>(rows * stride + code_unit) + 3 * bytes_of_array<float>(rows * groups);
    const std::int64_t queries_in_bfloat16 = bytes_of_array<std::int8_t>(2 * rows * stride + code_unit);
    return bytes_of_array<float>(tile_cells * dim) + bytes_of_array<std::int16_t>(tile_cells * stride)
           + 2 * bytes_of_array<float>(2 * groups * tile_cells)
           + bytes_of_array<float>(scratch_rows(groups) * tile_cells) + std::max(queries_in_bytes, queries_in_bfloat16);
}

/// What a thread takes besides if keys are rotated as they are read: see `RotatedRows`.
constexpr std::int64_t bytes_of_angles(std::int64_t key_dim) {
    return 2 * bytes_of_array<float>(key_dim) + 2 * bytes_of_array<float>(tile_cells * key_dim);
}

/// What `attend_residual` merges, where the results are not of float: see `ResidualParts`.
constexpr std::int64_t bytes_of_residual_parts(std::int64_t rows, std::int64_t value_dim) {
    return 2 * bytes_of_array<float>(rows * value_dim) + 2 * bytes_of_array<float>(rows);
}

/// What a thread takes at most: see `HostAttention`. `rows` and `packed`: of an item, and of one whose block packs.
constexpr std::int64_t bytes_of_thread(std::int64_t key_dim, std::int64_t value_dim, std::int64_t rows,
                                       std::int64_t packed) {
    const std::int64_t of_rows = bytes_of_array<float>(rows * key_dim) + 2 * bytes_of_array<float>(rows)
                                 + bytes_of_array<float>(rows * value_dim) + bytes_of_array<float>(rows * tile_cells)
                                 + bytes_of_array<HeadRule>(rows) + bytes_of_array<std::int32_t>(rows)
                                 + bytes_of_array<std::uint64_t>(rows);
    const std::int64_t of_products =
        bytes_of_array<float>(tile_cells * key_dim) + bytes_of_array<float>(tile_cells * value_dim)
        + bytes_of_array<std::int8_t>(split_bytes(packed, key_dim, max_pieces))
        + bytes_of_array<std::int8_t>(split_bytes(packed, tile_cells, max_pieces))
        + bytes_of_array<std::int8_t>(
            std::max(split_bytes(tile_cells, key_dim, max_pieces), split_bytes(value_dim, tile_cells, max_pieces)));
    const std::int64_t dim = std::max(key_dim, value_dim); // values may be the first elements of keys
    return of_rows + of_products + 2 * bytes_of_tile_rows(dim, rows);
}

} // namespace detail

/// The most that a memory allocates for calls of `attend` that are no larger than this, on layers of this shape, on a
/// host: the plan of a pass, the partial results of histories that threads share, and what each thread computes with.
/// All layers of a memory have it in common: of layers with different shapes, take the largest. It is allocated when it
/// is first used, for the largest call so far; while it grows, the old and the new are there.
///
/// A bound for every format, window, processor and history, not counted in `Cache::bytes_for`: calls of short histories
/// take much less. Beside a residual, both memories take this, each for its own format. O(1). Devices have other lists.
constexpr std::int64_t attend_bytes(const LayerShape& layer, const AttendCall& call) {
    using OfPass = detail::AttentionPlan;
    CELLAR_EXPECTS(call.heads >= layer.kv_heads && call.heads % layer.kv_heads == 0, "attend_bytes: ", call.heads,
                   " query heads, expected a multiple of the layer's ", layer.kv_heads, " heads of keys");
    CELLAR_EXPECTS(call.tokens >= 0 && call.sequences >= 0 && call.threads > 0, "attend_bytes: ", call.tokens,
                   " tokens of ", call.sequences, " sequences, ", call.threads,
                   " threads, expected 0 or more, and at least one thread");
    const std::int64_t tokens = call.tokens;
    const std::int64_t sequences = std::min(call.sequences, call.tokens);
    const std::int64_t kv_heads = layer.kv_heads;
    const int group = call.heads / layer.kv_heads;
    const std::int64_t key_dim = detail::padded_dim(layer.key_dim);
    const std::int64_t value_dim = detail::padded_dim(layer.value_dim != 0 ? layer.value_dim : layer.key_dim);
    // The rows of an item that does not pack are those of all heads; of one that packs, those of one head.
    const std::int64_t of_token = kv_heads * OfPass::padded_rows(group);
    const std::int64_t in_place = std::min<std::int64_t>(tokens, (OfPass::packed_rows - 1) / group) * of_token;
    const std::int64_t together = std::max(1, OfPass::block_rows / group);
    const std::int64_t packed = OfPass::padded_rows(static_cast<int>(std::min(tokens, together) * group));
    // Each sequence has that many items, or as many as it has blocks and heads.
    const std::int64_t parts = call.reads_shared_once ? std::max<std::int64_t>(OfPass::usual_parts, kv_heads)
                                                      : std::int64_t{OfPass::usual_parts};
    const std::int64_t items = sequences * (parts + kv_heads) + tokens / together * kv_heads;
    const std::int64_t partial_rows =
        parts * std::min(sequences * std::max(in_place, packed), tokens * of_token + 3 * sequences);
    const std::int64_t times = call.reads_shared_once ? 2 : 1; // also for the prefixes that sequences share
    return detail::bytes_of_array<OfPass>(1) + detail::bytes_of_array<detail::TokenBlock>(OfPass::max_blocks(tokens))
           + detail::bytes_of_array<VisibleRange>(tokens) + detail::bytes_of_array<detail::SequenceTokens>(tokens)
           + detail::bytes_of_array<CellToken>(tokens) + times * OfPass::bytes_of_order(items)
           + times * detail::bytes_of_array<float>(partial_rows * (value_dim + 2))
           + call.threads * detail::bytes_of_thread(key_dim, value_dim, std::max(in_place, packed), packed)
           + (call.rotates_on_read ? call.threads * detail::bytes_of_angles(key_dim) : 0)
           + (call.has_residual ? detail::bytes_of_residual_parts(tokens * call.heads, value_dim) : 0);
}

} // namespace cellar
