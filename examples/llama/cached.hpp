// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "arithmetic.hpp"
#include "attention.hpp"
#include "config.hpp"
#include "memory.hpp"
#include "recurrence.hpp"
#include <cellar/cellar.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace llama {

/// The layers of one kind in one memory. A model without such layers has none, and then there is
/// nothing to do.
template <class Memory>
class LayerGroup {
    using Pass = decltype(std::declval<Memory&>().reserve(0));

public:
    template <class... Arguments>
    void emplace(Arguments&&... arguments) {
        memory_.emplace(std::forward<Arguments>(arguments)...);
    }

    cellar::Result<void> begin(const cellar::Batch& batch) {
        if (!memory_) return {};
        auto pass = memory_->begin(batch);
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
        if (!memory_) return {};
        return memory_->remove(cellar::Sequence{0}, {begin}, {end});
    }

    int tokens() const { return memory_ ? memory_->tokens(cellar::Sequence{0}) : 0; }

    CacheUse use() const {
        if (!memory_) return {};
        if constexpr (requires { memory_->slots(); }) {
            return {memory_->shape().layers(), memory_->statistics().used, memory_->slots(), memory_->bytes()};
        } else {
            return {memory_->shape().layers(), tokens(), memory_->cells(), memory_->bytes()};
        }
    }

private:
    std::optional<Memory> memory_;
    std::optional<Pass> pass_; // declared later, so that it goes before the memory
};

/// A recurrent layer's state in a `RecurrentState`.
struct RecentInputs : cellar::StateTensor<2> {}; // [taps - 1, width]
struct Hidden : cellar::StateTensor<1> {};       // [width]

/// A text in three memories: the sliding layers' cache forgets what no layer of them sees any more, the
/// full layers' one keeps all, and the recurrent layers keep the newest state and those before it that
/// `rollback` may need. Keys are stored at their rotary positions.
template <class Layout, class Shift, class Backend = cellar::HostBackend>
class CachedMemory final : public TextMemory {
    using Sliding = cellar::Cache<Layout, cellar::SlidingWindow<>, Shift, Backend>;
    using Full = cellar::Cache<Layout, cellar::FullCausal, Shift, Backend>;
    using Recurrent = cellar::RecurrentState<cellar::States<RecentInputs, Hidden>, Backend>;

public:
    CachedMemory(const Config& config, Shift shift, int capacity, int batch, int rollback = 0)
        : rotary_{config, capacity},
          attention_{config},
          kinds_{config.layer_types},
          kv_heads_{config.num_key_value_heads},
          dim_{config.head_dim} {
        const cellar::Limits limits{.sequences = 1, .capacity = capacity, .batch = batch};
        const int sliding = config.layers(LayerKind::sliding_attention);
        const int full = config.layers(LayerKind::full_attention);
        const int recurrent = config.layers(LayerKind::recurrent);
        if (sliding > 0) {
            const cellar::WindowOptions options{.retention = config.sliding_window + rollback};
            sliding_.emplace(cellar::Shape{sliding, kv_heads_, dim_}, limits,
                             cellar::SlidingWindow<>{config.sliding_window, options}, shift);
        }
        if (full > 0) {
            full_.emplace(cellar::Shape{full, kv_heads_, dim_}, limits, cellar::FullCausal{}, shift);
        }
        if (recurrent > 0) {
            recurrent_.emplace(
                cellar::StateShape{recurrent, {{config.conv1d_width - 1, config.lru_width}, {config.lru_width}}},
                cellar::StateLimits{.sequences = 1, .batch = batch, .rollback = rollback});
        }
        int next[3] = {0, 0, 0};
        for (const LayerKind kind : kinds_) places_.push_back(next[static_cast<int>(kind)]++);
    }

    cellar::Result<void> begin(int first, int tokens) override {
        positions_.clear();
        for (int i = 0; i < tokens; ++i) positions_.push_back({first + i});
        sequences_.resize(positions_.size());
        const cellar::Batch batch{positions_, sequences_};
        cellar::Result<void> begun = sliding_.begin(batch);
        if (begun) begun = full_.begin(batch);
        if (begun) begun = recurrent_.begin(batch);
        if (!begun) drop(); // all or none
        return begun;
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

    void recur(int layer, const RecurrenceWeights& w, Matrix& x) override {
        auto& pass = recurrent_.pass();
        const int place = places_[static_cast<std::size_t>(layer)];
        for (const cellar::Part& part : pass.parts()) {
            const auto inputs = pass.template get<RecentInputs>(place, part); // [1 sequence, ...]
            const auto h = pass.template get<Hidden>(place, part);
            llama::recur(w, {{inputs.pointer, inputs.extent(1), inputs.extent(2)}, {h.pointer, h.extent(1)}},
                         x.middleRows(part.tokens(0).front(), part.length()));
            pass.put(place, part);
        }
    }

    void commit() override {
        sliding_.commit();
        full_.commit();
        recurrent_.commit();
        fed_ += static_cast<std::int64_t>(positions_.size());
    }

    cellar::Result<void> remove(int begin, int end) override {
        const int before = sliding_.tokens();
        // First what may refuse: the keys of a lone sequence are shared with nobody, and can always go.
        if (auto removed = recurrent_.remove(begin, end); !removed) return removed;
        if (auto removed = sliding_.remove(begin, end); !removed) return removed;
        removed_ += before - sliding_.tokens();
        return full_.remove(begin, end);
    }

    MemoryUse use() const override {
        MemoryUse use{sliding_.use(), full_.use(), recurrent_.use(), 0};
        if (use.sliding.layers > 0) use.evicted = fed_ - removed_ - use.sliding.cells_used;
        return use;
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

    void drop() {
        sliding_.drop();
        full_.drop();
        recurrent_.drop();
    }

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
    LayerGroup<Recurrent> recurrent_;
    std::int64_t fed_ = 0;
    std::int64_t removed_ = 0; // from the sliding cache, by `remove`
};

} // namespace llama
