// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/attention/detail/attention_plan.hpp>
#include <cellar/attention/detail/packed_products.hpp>
#include <cellar/attention/detail/row_source.hpp>
#include <cellar/attention/detail/tile.hpp>
#include <cellar/attention/detail/tile_kernels.hpp>
#include <cellar/attention/detail/tile_stream.hpp>
#include <cellar/base/attention_work.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/score.hpp>
#include <cellar/base/scratch.hpp>
#include <cellar/base/view.hpp>
#include <cellar/element/convert.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace cellar::detail {

/// The softmax of some rows so far: the largest score, the sum of the weights, and the weighted values, all relative to
/// that score.
struct PartialRows {
    float* largest; ///< [rows]
    float* sums;    ///< [rows]
    float* values;  ///< [rows, padded_dim(value_dim)]
};

/// Attention of one layer, on the host. Each item of the plan goes through its part of the history a tile at a time.
///
/// - A block with few queries reads keys and values in place, all heads of a tile in turn, so that memory is read in
///   order. A token that does not see all of a tile gets the cells that it sees alone.
/// - A block with many queries packs the tile of one head once: see PackedProducts.
template <class Work>
class HostAttention;
template <class Keys, class Values, class Q, class Out>
class HostAttention<AttentionWork<Keys, Values, Q, Out>> {
public:
    HostAttention(const AttentionWork<Keys, Values, Q, Out>& work, const AttentionPlan& plan, Instructions instructions)
        : work_{work},
          plan_{plan},
          floats_{float_kernels(instructions)},
          unit_{Products::unit_pays(plan.max_packed_rows()) ? matrix_kernels(instructions) : MatrixKernels{}},
          key_kernels_{instructions},
          value_kernels_{instructions},
          key_dim_{padded_dim(work.shape.key_dim)},
          value_dim_{padded_dim(work.shape.value_dim)} {}

    /// The bytes that a thread needs for itself.
    std::int64_t bytes_of_worker() const {
        ScratchArrays arrays;
        Worker{*this, arrays};
        return arrays.bytes();
    }
    /// The bytes of all partial results.
    std::int64_t bytes_of_parts() const { return plan_.part_floats() * std::int64_t{sizeof(float)}; }

    template <class Threads>
    void run(const Threads& threads, std::byte* parts, std::byte* workers, std::int64_t bytes_of_worker) {
        parts_ = reinterpret_cast<float*>(parts);
        const Room room{workers, bytes_of_worker};
        share(threads, room, plan_.items(), [this](Worker& worker, std::int64_t i) { worker.run(plan_.item(i)); });
        if (plan_.part_floats() == 0) return;
        share(threads, room, plan_.blocks(), [this](Worker& worker, std::int64_t index) {
            const TokenBlock& block = plan_.block(static_cast<std::int32_t>(index));
            if (block.has_partial_results() && !block.is_shared) worker.join(block);
        });
    }

private:
    using Products = PackedProducts<Q, Keys, Values>;
    class Worker;

    // Memory of all workers, and the bytes of one.
    struct Room {
        std::byte* workers;
        std::int64_t bytes;
    };

    // Calls work(worker, i) for i in [0, n), each by the first thread that is free.
    template <class Threads, class Task>
    void share(const Threads& threads, const Room& room, std::int64_t n, Task work) {
        const int count = threads.count();
        std::atomic<std::int64_t> next{0};
        threads.run([&](int thread) {
            CELLAR_EXPECTS(thread >= 0 && thread < count, "attend: thread ", thread, ", expected 0 to ", count - 1);
            ScratchArrays arrays{room.workers + thread * room.bytes};
            Worker worker{*this, arrays};
            for (std::int64_t i = next++; i < n; i = next++) work(worker, i);
        });
    }

    const AttentionWork<Keys, Values, Q, Out>& work_;
    const AttentionPlan& plan_;
    FloatKernels floats_;
    MatrixKernels unit_;
    typename TileRows<Keys>::Kernels key_kernels_;
    typename TileRows<Values>::Kernels value_kernels_;
    std::int64_t key_dim_;
    std::int64_t value_dim_;
    float* parts_ = nullptr;
};

/// One thread, and its memory.
template <class Keys, class Values, class Q, class Out>
class HostAttention<AttentionWork<Keys, Values, Q, Out>>::Worker {
public:
    Worker(const HostAttention& all, ScratchArrays& arrays)
        : all_{all},
          keys_{all.work_.keys, all.key_kernels_, all.plan_.max_rows(), arrays},
          values_{all.work_.values, all.value_kernels_, all.plan_.max_rows(), arrays},
          products_{all.floats_, all.unit_, keys_, values_, all.plan_.max_packed_rows(), arrays} {
        const std::int64_t rows = all.plan_.max_rows();
        q_ = arrays.take<float>(rows * all.key_dim_);
        own_ = {arrays.take<float>(rows), arrays.take<float>(rows), arrays.take<float>(rows * all.value_dim_)};
        scores_ = arrays.take<float>(rows * tile_cells);
        of_rows_ = arrays.take<HeadRule>(rows);
        queries_ = arrays.take<std::int32_t>(rows);
        visible_ = arrays.take<std::uint64_t>(rows);
    }

    void run(std::int64_t item) {
        block_ = &all_.plan_.block_of(item);
        const std::int64_t index = item - block_->first_item;
        const int nth = static_cast<int>(index % block_->parts);
        const int head = static_cast<int>(index / block_->parts);
        read_queries(head);
        rows_ = block_->has_partial_results() ? part(*block_, index) : own_;
        std::fill_n(rows_.largest, block_->rows, -infinity);
        std::fill_n(rows_.sums, block_->rows, 0.0F);
        std::fill_n(rows_.values, block_->rows * all_.value_dim_, 0.0F);
        if (block_->packs) {
            products_.start(q_, block_->rows);
            const auto visit = [&](const Tile& tile, const Tile* next) { add_packed(tile, next, head); };
            go_through(nth, visit);
        } else {
            keys_.start_queries(q_, block_->rows, AttentionPlan::padded_rows(shape().group()));
            const auto visit = [&](const Tile& tile, const Tile* next) { add_in_place(tile, next); };
            go_through(nth, visit);
        }
        if (!block_->has_partial_results()) write(rows_, head);
    }

    /// Joins the partial results of a block, in the order of positions, and writes them.
    void join(const TokenBlock& block) {
        block_ = &block;
        const int heads = block.packs ? shape().kv_heads : 1;
        for (int head = 0; head < heads; ++head) {
            const std::int64_t first = std::int64_t{head} * block.parts;
            const PartialRows sum = part(block, first);
            for (int nth = 1; nth < block.parts; ++nth)
                for (int row = 0; row < block.rows; ++row) join_row(sum, row, part(block, first + nth), row);
            if (block.prefix != TokenBlock::none) join_prefix(sum, head);
            write(sum, head);
        }
    }

private:
    static constexpr float infinity = std::numeric_limits<float>::infinity();

    const AttentionShape& shape() const { return all_.work_.shape; }
    const ScoreRule<float>& rule() const { return all_.work_.rule; }
    const VisibleRange* ranges() const { return all_.plan_.tokens().ranges; }

    // Of an item of a block.
    PartialRows part(const TokenBlock& block, std::int64_t index) const {
        float* const first = all_.parts_ + block.first_part + index * all_.plan_.part_floats(block);
        return {first, first + block.rows, first + 2 * std::ptrdiff_t{block.rows}};
    }

    // Adds what the tokens of the block see of the prefix that their sequence shares.
    void join_prefix(const PartialRows& sum, int head) const {
        const TokenBlock& prefix = all_.plan_.block(block_->prefix);
        const int group = shape().group();
        for_each_row(head, [&](int row, const VisibleRange& token, int query_head) {
            const auto t = static_cast<std::int32_t>(&token - ranges()) - prefix.first;
            const int kv_head = query_head / group;
            const int other = row_of(prefix, t, kv_head, query_head % group);
            const std::int64_t first = prefix.packs ? std::int64_t{kv_head} * prefix.parts : 0;
            for (int nth = 0; nth < prefix.parts; ++nth) join_row(sum, row, part(prefix, first + nth), other);
        });
    }

    // The row of a query in an item of the block: for a head of the keys if the block packs, else for all of them.
    int row_of(const TokenBlock& block, std::int32_t token, int kv_head, int nth) const {
        const int group = shape().group();
        if (block.packs) return token * group + nth;
        return (token * shape().kv_heads + kv_head) * AttentionPlan::padded_rows(group) + nth;
    }

    template <class Visit>
    void go_through(int nth, Visit& visit) {
        const PositionRuns& runs = *block_->runs;
        TileStream<Visit> tiles{visit};
        // The sinks that the first part does not contain by itself.
        if (nth == 0) tiles.add(runs, Position{0}, Position{std::min(block_->sinks, block_->from.value)});
        const std::int64_t from = block_->from.value + std::int64_t{nth} * block_->step;
        const std::int64_t to = std::min<std::int64_t>(from + block_->step, block_->to.value);
        tiles.add(runs, Position{static_cast<std::int32_t>(from)}, Position{static_cast<std::int32_t>(to)});
        const std::int64_t end = std::min<std::int64_t>(to + tile_cells, block_->to.value);
        tiles.finish(runs, Position{static_cast<std::int32_t>(to)}, Position{static_cast<std::int32_t>(end)});
    }

    // The queries as floats, with those of padded rows as zeros.
    void read_queries(int head) {
        std::fill_n(q_, block_->rows * all_.key_dim_, 0.0F);
        const auto& q = all_.work_.q;
        for_each_row(head, [&](int row, const VisibleRange& token, int query_head) {
            const std::int64_t dim = shape().key_dim;
            const StridedView<const Q, 1> from{&q(token.token, query_head, 0), {dim}, {q.stride(2)}};
            float* const to = q_ + row * all_.key_dim_;
            convert_view(from, contiguous_view(to, dim));
            multiply(to, all_.work_.factors.keys, query_head, dim, dim);
        });
        keys_.rotate_queries(q_, block_->rows);
        if (!rule().needs_head()) return;
        std::fill_n(of_rows_, block_->rows, HeadRule{});
        std::fill_n(queries_, block_->rows, 0);
        for_each_row(head, [&](int row, const VisibleRange& token, int query_head) {
            of_rows_[row] = rule().of_head(query_head);
            queries_[row] = token.position;
        });
    }

    // Calls f(row, range of the token, query head) for each row of an item that is not padding.
    template <class F>
    void for_each_row(int head, F f) const {
        const int group = shape().group();
        const int first = block_->packs ? head : 0;
        const int end = block_->packs ? head + 1 : shape().kv_heads;
        for (std::int32_t t = 0; t < block_->count; ++t)
            for (int h = first; h < end; ++h)
                for (int g = 0; g < group; ++g) f(row_of(*block_, t, h, g), ranges()[block_->first + t], h * group + g);
    }

    // By the factors of the query's head of keys and values, if there are any.
    void multiply(float* to, const float* factors, int query_head, std::int64_t pitch, std::int64_t dim) const {
        if (factors == nullptr) return;
        const float* const own = factors + query_head / shape().group() * pitch;
        for (std::int64_t d = 0; d < dim; ++d) to[d] *= own[d];
    }

    std::uint64_t seen_by(const Tile& tile, const VisibleRange& token) const {
        const std::uint64_t seen = tile.seen_by(token, all_.plan_.tokens().sinks);
        const TokenTree& tree = all_.work_.tree;
        return tree.parents == nullptr ? seen : seen & tile.seen_by(token, tree, block_->first_position);
    }

    void add_in_place(const Tile& tile, const Tile* next) {
        const int kv_heads = shape().kv_heads;
        const int group = AttentionPlan::padded_rows(shape().group());
        for (std::int32_t t = 0; t < block_->count; ++t) visible_[t] = seen_by(tile, ranges()[block_->first + t]);
        keys_.start(tile, next);
        values_.start(tile, next);
        for (int head = 0; head < kv_heads; ++head) {
            bool found = false; // the rows of the whole tile
            for (std::int32_t t = 0; t < block_->count; ++t) {
                const std::uint64_t seen = visible_[t];
                if (seen == 0) continue;
                const int row = (t * kv_heads + head) * group;
                if (seen == tile.all()) {
                    if (!found) {
                        keys_.find(tile, head);
                        values_.find(tile, head);
                        keys_.fetch_after(next, head);
                        values_.fetch_after(next, head);
                    }
                    found = true;
                    add_rows(row, group, tile);
                } else {
                    pick(tile, seen);
                    keys_.find_some(seen_.cells, seen_.count, head);
                    values_.find_some(seen_.cells, seen_.count, head);
                    found = false;
                    add_rows(row, group, seen_);
                }
            }
        }
    }

    void pick(const Tile& tile, std::uint64_t seen) {
        seen_.count = 0;
        for (int i = 0; i < tile.count; ++i)
            if ((seen >> i & 1) != 0) {
                seen_.cells[seen_.count] = tile.cells[i];
                seen_.positions[seen_.count++] = tile.positions[i];
            }
    }

    // Rows that see all of the tile, whose rows were found.
    void add_rows(int first, int count, const Tile& tile) {
        keys_.dot(first, count, tile.count, scores_);
        SoftmaxStep softmax = step(first, count, tile, nullptr);
        values_.fetch_in(softmax);
        all_.floats_.softmax(softmax);
        values_.add_values(scores_, count, tile.count, rows_.values + first * all_.value_dim_);
    }

    SoftmaxStep step(int first, int count, const Tile& tile, const std::uint64_t* visible) const {
        return {.scores = scores_,
                .rows = count,
                .cells = tile.count,
                .visible = visible,
                .rule = rule(),
                .of_rows = of_rows_ + first,
                .positions = tile.positions,
                .queries = queries_ + first,
                .largest = rows_.largest + first,
                .sums = rows_.sums + first,
                .values = rows_.values + first * all_.value_dim_,
                .value_stride = all_.value_dim_,
                .value_dim = all_.value_dim_};
    }

    void add_packed(const Tile& tile, const Tile* next, int head) {
        const int group = shape().group();
        bool all = true;
        std::fill_n(visible_, block_->rows, std::uint64_t{0});
        for (std::int32_t t = 0; t < block_->count; ++t) {
            const std::uint64_t seen = seen_by(tile, ranges()[block_->first + t]);
            all = all && seen == tile.all();
            std::fill_n(visible_ + std::ptrdiff_t{t} * group, group, seen);
        }
        keys_.start(tile, next);
        values_.start(tile, next);
        keys_.find_to_pack(tile, head);
        products_.multiply(tile.count, scores_, keys_.fetched(next, head));
        all_.floats_.softmax(step(0, block_->rows, tile, all ? nullptr : visible_));
        values_.find_to_pack(tile, head);
        if (!products_.add_values(scores_, tile.count, all, rows_.values, values_.fetched(next, head)))
            add_seen_values(tile);
    }

    // A row touches no value that it does not see.
    void add_seen_values(const Tile& tile) {
        for (int row = 0; row < block_->rows; ++row) {
            RowPointers<float> rows;
            float weights[tile_cells];
            int n = 0;
            for (int i = 0; i < tile.count; ++i)
                if ((visible_[row] >> i & 1) != 0) {
                    weights[n] = scores_[row * tile_cells + i];
                    rows.rows[n++] = products_.packed_values() + i * all_.value_dim_;
                }
            if (n == 0) continue;
            rows.repeat_last(n);
            const HeadRows<float> seen{rows.rows, 0};
            all_.floats_.rows.add_values(weights, 1, n, seen, seen, all_.value_dim_,
                                         rows_.values + row * all_.value_dim_, all_.value_dim_);
        }
    }

    void join_row(const PartialRows& sum, int row, const PartialRows& other, int other_row) const {
        const MergedSoftmax all =
            merge_softmax({sum.largest[row], sum.sums[row]}, {other.largest[other_row], other.sums[other_row]});
        sum.largest[row] = all.sum.largest;
        sum.sums[row] = all.sum.sum;
        float* const to = sum.values + row * all_.value_dim_;
        const float* const from = other.values + other_row * all_.value_dim_;
        for (std::int64_t d = 0; d < all_.value_dim_; ++d) to[d] = to[d] * all.own + from[d] * all.other;
    }

    void write(const PartialRows& rows, int head) const {
        const auto& work = all_.work_;
        for_each_row(head, [&](int row, const VisibleRange& token, int query_head) {
            const SoftmaxEnd end = end_softmax({rows.largest[row], rows.sums[row]}, rule().sink(query_head));
            float* const values = rows.values + row * all_.value_dim_;
            const std::int64_t dim = shape().value_dim;
            // Without a weight, values that are not finite do not count.
            for (std::int64_t d = 0; d < dim; ++d) values[d] = end.has_scores() ? values[d] * end.weight : 0;
            values_.undo_rotation(values, 1);
            multiply(values, work.factors.values, query_head, work.factors.value_pitch, dim);
            const StridedView<Out, 1> to{&work.out(token.token, query_head, 0), {dim}, {work.out.stride(2)}};
            convert_view(StridedView<const float, 1>{values, {dim}, {1}}, to);
            if (work.log_sum_exp.pointer != nullptr) work.log_sum_exp(token.token, query_head) = end.log_sum_exp;
        });
    }

    const HostAttention& all_;
    TileRows<Keys> keys_;
    TileRows<Values> values_;
    Products products_;
    const TokenBlock* block_ = nullptr;
    PartialRows rows_{}; // of the item
    PartialRows own_{};
    Tile seen_;
    float* q_;
    float* scores_;
    HeadRule* of_rows_;
    std::int32_t* queries_;
    std::uint64_t* visible_;
};

} // namespace cellar::detail
