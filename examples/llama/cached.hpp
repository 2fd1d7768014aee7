// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "arithmetic.hpp"
#include "attention.hpp"
#include "config.hpp"
#include "memory.hpp"
#include <cellar/cellar.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace llama {

/// The layers of one kind in one cache. A model without such layers has none, and then there is
/// nothing to do.
template <class Cache>
class LayerGroup {
    using Pass = decltype(std::declval<Cache&>().reserve(0));

public:
    template <class... Arguments>
    void emplace(Arguments&&... arguments) {
        cache_.emplace(std::forward<Arguments>(arguments)...);
    }

    cellar::Result<void> begin(const cellar::Batch& batch) {
        if (!cache_) return {};
        auto pass = cache_->begin(batch);
        if (!pass) return pass.error();
        pass_.emplace(std::move(*pass));
        return {};
    }

    void drop() { pass_.reset(); }

    void commit() {
        if (pass_) pass_->commit();
        pass_.reset();
    }

    Pass& pass() { return *pass_; }

    cellar::Result<void> remove(int begin, int end) {
        if (!cache_) return {};
        return cache_->remove(cellar::Sequence{0}, {begin}, {end});
    }

    int tokens() const { return cache_ ? cache_->tokens(cellar::Sequence{0}) : 0; }

    CacheUse use() const {
        if (!cache_) return {};
        return {cache_->shape().layers(), cache_->tokens(cellar::Sequence{0}), cache_->cells(), cache_->bytes()};
    }

private:
    std::optional<Cache> cache_;
    std::optional<Pass> pass_; // declared later, so that it goes before the cache
};

/// A text in two caches: the sliding layers' one forgets what no layer of them sees any more, the
/// full layers' one keeps all. Keys are stored at their rotary positions.
template <class Layout, class Shift, class Backend = cellar::HostBackend>
class CachedMemory final : public TextMemory {
    using Sliding = cellar::Cache<Layout, cellar::SlidingWindow<>, Shift, Backend>;
    using Full = cellar::Cache<Layout, cellar::FullCausal, Shift, Backend>;

public:
    CachedMemory(const Config& config, Shift shift, int capacity, int batch)
        : rotary_{config, capacity},
          attention_{config},
          kinds_{config.layer_types},
          kv_heads_{config.num_key_value_heads},
          dim_{config.head_dim} {
        const cellar::Limits limits{.sequences = 1, .capacity = capacity, .batch = batch};
        const int sliding = config.layers(LayerKind::sliding_attention);
        const int full = config.layers(LayerKind::full_attention);
        if (sliding > 0) {
            sliding_.emplace(cellar::Shape{sliding, kv_heads_, dim_}, limits,
                             cellar::SlidingWindow<>{config.sliding_window}, shift);
        }
        if (full > 0) {
            full_.emplace(cellar::Shape{full, kv_heads_, dim_}, limits, cellar::FullCausal{}, shift);
        }
        int next[2] = {0, 0};
        for (const LayerKind kind : kinds_) {
            places_.push_back(next[kind == LayerKind::full_attention]++);
        }
    }

    cellar::Result<void> begin(int first, int tokens) override {
        positions_.clear();
        for (int i = 0; i < tokens; ++i) positions_.push_back({first + i});
        sequences_.resize(positions_.size());
        const cellar::Batch batch{positions_, sequences_};
        if (auto begun = sliding_.begin(batch); !begun) return begun;
        if (auto begun = full_.begin(batch); !begun) {
            sliding_.drop(); // both or neither
            return begun;
        }
        return {};
    }

    void attend(int layer, Matrix& queries, Matrix& keys, const Matrix& values, Matrix& out) override {
        const auto l = static_cast<std::size_t>(layer);
        rotary_.turn(queries, positions_.front().value);
        rotary_.turn(keys, positions_.front().value);
        if (kinds_[l] == LayerKind::sliding_attention) {
            attend(sliding_.pass(), places_[l], queries, keys, values, out);
        } else {
            attend(full_.pass(), places_[l], queries, keys, values, out);
        }
    }

    void commit() override {
        sliding_.commit();
        full_.commit();
        fed_ += static_cast<std::int64_t>(positions_.size());
    }

    cellar::Result<void> remove(int begin, int end) override {
        const int before = sliding_.tokens();
        if (auto removed = sliding_.remove(begin, end); !removed) return removed;
        removed_ += before - sliding_.tokens();
        return full_.remove(begin, end); // a lone sequence shares nothing: it cannot be refused
    }

    MemoryUse use() const override {
        const MemoryUse use{sliding_.use(), full_.use(), 0};
        const bool slides = use.sliding.layers > 0;
        return {use.sliding, use.full, slides ? fed_ - removed_ - use.sliding.cells_used : 0};
    }

    double unit_roundoff() const override {
        using Element = typename Layout::key_element;
        if (std::is_same_v<Element, cellar::half>) return 0x1p-11;
        if (std::is_same_v<Element, cellar::bfloat16>) return 0x1p-8;
        return 0x1p-24;
    }

private:
    // [attend]
    template <class Pass>
    void attend(Pass& pass, int layer, const Matrix& queries, const Matrix& keys, const Matrix& values, Matrix& out) {
        const auto tokens = keys.rows();
        pass.put(layer, cellar::contiguous_view(keys.data(), tokens, kv_heads_, dim_),
                 cellar::contiguous_view(values.data(), tokens, kv_heads_, dim_));
        const auto [seen_keys, seen_values, mask] = pass.get(layer);
        attention_(queries, seen_keys, seen_values, mask, out);
    }
    // [/attend]

    Rotary rotary_;
    ViewAttention<Layout> attention_;
    std::vector<LayerKind> kinds_;
    std::vector<int> places_; // of a layer among those of its kind
    int kv_heads_;
    int dim_;
    std::vector<cellar::Sequence> sequences_; // of the batch: all 0
    std::vector<cellar::Position> positions_; // of the batch
    LayerGroup<Sliding> sliding_;
    LayerGroup<Full> full_;
    std::int64_t fed_ = 0;
    std::int64_t removed_ = 0; // from the sliding cache, by `remove`
};

} // namespace llama
