// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/attention/attention_options.hpp>
#include <cellar/attention/detail/attention_plan.hpp>
#include <cellar/attention/detail/packed_products.hpp>
#include <cellar/attention/detail/row_source.hpp>
#include <cellar/attention/detail/sight.hpp>
#include <cellar/attention/detail/tile.hpp>
#include <cellar/attention/detail/tile_kernels.hpp>
#include <cellar/attention/detail/tree.hpp>
#include <cellar/base/contract.hpp>
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
template <class Keys, class Values, class Q, class Out>
class HostAttention {
public:
    HostAttention(const AttentionShape& shape, const AttentionOptions& options, const Keys& keys, const Values& values,
                  StridedView<const Q, 3> q, StridedView<Out, 3> out, const Sight* sights, const Tree& tree,
                  const AttentionPlan& plan, Instructions instructions)
        : shape_{shape},
          options_{options},
          keys_{keys},
          values_{values},
          q_{q},
          out_{out},
          sights_{sights},
          tree_{tree},
          plan_{plan},
          floats_{float_kernels(instructions)},
          unit_{Products::unit_pays(plan.max_packed_rows()) ? matrix_kernels(instructions) : MatrixKernels{}},
          key_kernels_{row_kernels<typename Keys::element_type>(instructions)},
          value_kernels_{row_kernels<typename Values::element_type>(instructions)},
          key_dim_{padded_dim(shape.key_dim)},
          value_dim_{padded_dim(shape.value_dim)},
          scale_{options.scale != 0 ? options.scale : 1 / std::sqrt(static_cast<float>(shape.key_dim))} {}

    /// The bytes that a thread needs for itself.
    std::int64_t bytes_of_worker() const {
        ScratchArrays arrays;
        Worker{*this, arrays};
        return arrays.bytes();
    }
    /// The bytes of all partial results.
    std::int64_t bytes_of_parts() const { return plan_.part_floats() * std::int64_t{sizeof(float)}; }

    template <class Threads>
    void run(const Threads& threads, std::byte* parts, std::byte* workers) {
        parts_ = reinterpret_cast<float*>(parts);
        share(threads, workers, plan_.items(), [this](Worker& worker, std::int64_t i) { worker.run(plan_.item(i)); });
        if (plan_.part_floats() == 0) return;
        share(threads, workers, plan_.blocks(), [this](Worker& worker, std::int64_t index) {
            const TokenBlock& block = plan_.block(static_cast<std::int32_t>(index));
            if (block.has_partial_results() && !block.is_shared) worker.join(block);
        });
    }

private:
    using Products = PackedProducts<std::remove_const_t<Q>, Keys, Values>;
    class Worker;

    // Calls work(worker, i) for i in [0, n), each by the first thread that is free.
    template <class Threads, class Work>
    void share(const Threads& threads, std::byte* workers, std::int64_t n, Work work) {
        const std::int64_t bytes = bytes_of_worker();
        const int count = threads.count();
        std::atomic<std::int64_t> next{0};
        threads.run([&](int thread) {
            CELLAR_EXPECTS(thread >= 0 && thread < count, "attend: thread ", thread, ", expected 0 to ", count - 1);
            ScratchArrays arrays{workers + thread * bytes};
            Worker worker{*this, arrays};
            for (std::int64_t i = next++; i < n; i = next++) work(worker, i);
        });
    }

    AttentionShape shape_;
    AttentionOptions options_;
    Keys keys_;
    Values values_;
    StridedView<const Q, 3> q_;
    StridedView<Out, 3> out_;
    const Sight* sights_;
    const Tree& tree_;
    const AttentionPlan& plan_;
    FloatKernels floats_;
    MatrixKernels unit_;
    RowKernels<typename Keys::element_type> key_kernels_;
    RowKernels<typename Values::element_type> value_kernels_;
    std::int64_t key_dim_;
    std::int64_t value_dim_;
    float scale_;
    float* parts_ = nullptr;
};

/// One thread, and its memory.
template <class Keys, class Values, class Q, class Out>
class HostAttention<Keys, Values, Q, Out>::Worker {
public:
    Worker(const HostAttention& all, ScratchArrays& arrays)
        : all_{all},
          keys_{all.keys_, all.key_kernels_, all.floats_.rows, arrays.take<float>(tile_cells * all.key_dim_)},
          values_{all.values_, all.value_kernels_, all.floats_.rows, arrays.take<float>(tile_cells * all.value_dim_)},
          products_{all.floats_, all.unit_, keys_, values_, all.plan_.max_packed_rows(), arrays} {
        const std::int64_t rows = all.plan_.max_rows();
        q_ = arrays.take<float>(rows * all.key_dim_);
        own_ = {arrays.take<float>(rows), arrays.take<float>(rows), arrays.take<float>(rows * all.value_dim_)};
        scores_ = arrays.take<float>(rows * tile_cells);
        slopes_ = arrays.take<float>(rows);
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
            const auto visit = [&](const Tile& tile, const Tile* next) { add_in_place(tile, next); };
            go_through(nth, visit);
        }
        if (!block_->has_partial_results()) write(rows_, head);
    }

    /// Joins the partial results of a block, in the order of positions, and writes them.
    void join(const TokenBlock& block) {
        block_ = &block;
        const int heads = block.packs ? all_.shape_.kv_heads : 1;
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

    // Of an item of a block.
    PartialRows part(const TokenBlock& block, std::int64_t index) const {
        float* const first = all_.parts_ + block.first_part + index * all_.plan_.part_floats(block);
        return {first, first + block.rows, first + 2 * std::ptrdiff_t{block.rows}};
    }

    // Adds what the tokens of the block see of the prefix that their sequence shares.
    void join_prefix(const PartialRows& sum, int head) const {
        const TokenBlock& prefix = all_.plan_.block(block_->prefix);
        const int group = all_.shape_.group();
        for_each_row(head, [&](int row, const Sight& sight, int query_head) {
            const auto t = static_cast<std::int32_t>(&sight - all_.sights_) - prefix.first;
            const int kv_head = query_head / group;
            const int other = row_of(prefix, t, kv_head, query_head % group);
            const std::int64_t first = prefix.packs ? std::int64_t{kv_head} * prefix.parts : 0;
            for (int nth = 0; nth < prefix.parts; ++nth) join_row(sum, row, part(prefix, first + nth), other);
        });
    }

    // The row of a query in an item of the block: for a head of the keys if the block packs, else for all of them.
    int row_of(const TokenBlock& block, std::int32_t token, int kv_head, int nth) const {
        const int group = all_.shape_.group();
        if (block.packs) return token * group + nth;
        return (token * all_.shape_.kv_heads + kv_head) * AttentionPlan::padded_rows(group) + nth;
    }

    template <class Visit>
    void go_through(int nth, Visit& visit) {
        const Sight& first = all_.sights_[block_->first];
        TileStream<Visit> tiles{visit};
        // The sinks that the first part does not contain by itself.
        if (nth == 0) tiles.add(*first.runs, {0}, {std::min(block_->sinks, block_->from.value)});
        const std::int64_t from = block_->from.value + std::int64_t{nth} * block_->step;
        const std::int64_t to = std::min<std::int64_t>(from + block_->step, block_->to.value);
        tiles.add(*first.runs, {static_cast<std::int32_t>(from)}, {static_cast<std::int32_t>(to)});
        const std::int64_t end = std::min<std::int64_t>(to + tile_cells, block_->to.value);
        tiles.finish(*first.runs, {static_cast<std::int32_t>(to)}, {static_cast<std::int32_t>(end)});
    }

    // The queries as floats, with those of padded rows as zeros.
    void read_queries(int head) {
        std::fill_n(q_, block_->rows * all_.key_dim_, 0.0F);
        for_each_row(head, [&](int row, const Sight& sight, int query_head) {
            const std::int64_t dim = all_.shape_.key_dim;
            const StridedView<const Q, 1> from{&all_.q_(sight.token, query_head, 0), {dim}, {all_.q_.stride(2)}};
            convert_view(from, contiguous_view(q_ + row * all_.key_dim_, dim));
        });
        if (all_.options_.slopes.empty()) return;
        std::fill_n(slopes_, block_->rows, 0.0F);
        std::fill_n(queries_, block_->rows, 0);
        for_each_row(head, [&](int row, const Sight& sight, int query_head) {
            slopes_[row] = all_.options_.slopes[static_cast<std::size_t>(query_head)];
            queries_[row] = sight.at.value;
        });
    }

    // Calls f(row, sight of the token, query head) for each row of an item that is not padding.
    template <class F>
    void for_each_row(int head, F f) const {
        const int group = all_.shape_.group();
        const int first = block_->packs ? head : 0;
        const int end = block_->packs ? head + 1 : all_.shape_.kv_heads;
        for (std::int32_t t = 0; t < block_->count; ++t)
            for (int h = first; h < end; ++h)
                for (int g = 0; g < group; ++g)
                    f(row_of(*block_, t, h, g), all_.sights_[block_->first + t], h * group + g);
    }

    std::uint64_t seen_by(const Tile& tile, const Sight& sight) const {
        const std::uint64_t seen = tile.seen_by(sight);
        return all_.tree_.exists() ? seen & all_.tree_.seen_by(tile, sight) : seen;
    }

    void add_in_place(const Tile& tile, const Tile* next) {
        const int kv_heads = all_.shape_.kv_heads;
        const int group = AttentionPlan::padded_rows(all_.shape_.group());
        for (std::int32_t t = 0; t < block_->count; ++t) visible_[t] = seen_by(tile, all_.sights_[block_->first + t]);
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
        keys_.dot(q_ + first * all_.key_dim_, count, tile.count, scores_);
        SoftmaxStep softmax = step(first, count, tile, nullptr);
        values_.fetch_in(softmax);
        all_.floats_.softmax(softmax);
        values_.add_values(scores_, count, tile.count, rows_.values + first * all_.value_dim_);
    }

    SoftmaxStep step(int first, int count, const Tile& tile, const std::uint64_t* visible) const {
        const bool biased = !all_.options_.slopes.empty();
        return {.scores = scores_,
                .rows = count,
                .cells = tile.count,
                .visible = visible,
                .scale = all_.scale_,
                .soft_cap = all_.options_.soft_cap,
                .slopes = biased ? slopes_ + first : nullptr,
                .positions = tile.positions,
                .queries = queries_ + first,
                .largest = rows_.largest + first,
                .sums = rows_.sums + first,
                .values = rows_.values + first * all_.value_dim_,
                .value_stride = all_.value_dim_,
                .value_dim = all_.value_dim_};
    }

    void add_packed(const Tile& tile, const Tile* next, int head) {
        const int group = all_.shape_.group();
        bool all = true;
        std::fill_n(visible_, block_->rows, std::uint64_t{0});
        for (std::int32_t t = 0; t < block_->count; ++t) {
            const std::uint64_t seen = seen_by(tile, all_.sights_[block_->first + t]);
            all = all && seen == tile.all();
            std::fill_n(visible_ + std::ptrdiff_t{t} * group, group, seen);
        }
        keys_.start(tile, next);
        values_.start(tile, next);
        keys_.find(tile, head);
        products_.multiply(tile.count, scores_, keys_.fetched(next, head));
        all_.floats_.softmax(step(0, block_->rows, tile, all ? nullptr : visible_));
        values_.find(tile, head);
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
        const float largest = std::max(sum.largest[row], other.largest[other_row]);
        const float base = largest == -infinity ? 0 : largest;
        const float own = sum.sums[row] == 0 ? 0 : std::exp(sum.largest[row] - base);
        const float others = std::exp(other.largest[other_row] - base);
        sum.largest[row] = largest;
        sum.sums[row] = sum.sums[row] * own + other.sums[other_row] * others;
        float* const to = sum.values + row * all_.value_dim_;
        const float* const from = other.values + other_row * all_.value_dim_;
        for (std::int64_t d = 0; d < all_.value_dim_; ++d) to[d] = to[d] * own + from[d] * others;
    }

    void write(const PartialRows& rows, int head) const {
        for_each_row(head, [&](int row, const Sight& sight, int query_head) {
            float largest = rows.largest[row];
            float sum = rows.sums[row];
            float factor = 1;
            if (!all_.options_.sinks.empty()) {
                const float sink = all_.options_.sinks[static_cast<std::size_t>(query_head)];
                const float before = largest;
                largest = std::max(largest, sink);
                factor = before == -infinity ? 0 : std::exp(before - largest);
                sum = sum * factor + (sink == -infinity ? 0 : std::exp(sink - largest));
            }
            float* const values = rows.values + row * all_.value_dim_;
            const float weight = factor / sum;
            const std::int64_t dim = all_.shape_.value_dim;
            // Without a weight, values that are not finite do not count.
            for (std::int64_t d = 0; d < dim; ++d) values[d] = sum == 0 ? 0 : values[d] * weight;
            const StridedView<Out, 1> to{&all_.out_(sight.token, query_head, 0), {dim}, {all_.out_.stride(2)}};
            convert_view(StridedView<const float, 1>{values, {dim}, {1}}, to);
            const auto& log_sum_exp = all_.options_.log_sum_exp;
            if (log_sum_exp.pointer != nullptr)
                log_sum_exp(sight.token, query_head) = sum == 0 ? -infinity : largest + std::log(sum);
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
    float* slopes_;
    std::int32_t* queries_;
    std::uint64_t* visible_;
};

} // namespace cellar::detail
