// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "config.hpp"
#include "layer_work.hpp"
#include "memory.hpp"
#include <cellar/cellar.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace llama {

/// The layers of one kind in one memory. A model without such layers has none, and then there is
/// nothing to do.
template <class Memory>
class LayerGroup {
    using Pass = decltype(std::declval<Memory&>().reserve(0));

public:
    void emplace(Memory memory) { memory_.emplace(std::move(memory)); }

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
    CacheUse use() const { return memory_ ? use_of(*memory_) : CacheUse{}; }

private:
    std::optional<Memory> memory_;
    std::optional<Pass> pass_; // declared later, so that it goes before the memory
};

/// A text in a memory for each kind of layers, whatever their order in the model is. `Work` says where it lies, and
/// reads it.
template <class Layout, class Shift, class Work = LayerWork<Layout>>
class CachedMemory final : public TextMemory {
    using Memories = MemoryOf<Layout, Shift, Work>;

public:
    CachedMemory(const Config& config, Shift shift, int capacity, int batch, int rollback = 0)
        : work_{config, capacity}, kinds_{config.layer_types} {
        const Memories memories{work_, config, shift, capacity, batch, rollback};
        if (config.layers(LayerKind::sliding_attention) > 0) sliding_.emplace(memories.sliding());
        if (config.layers(LayerKind::full_attention) > 0) full_.emplace(memories.full());
        if (config.layers(LayerKind::recurrent) > 0) recurrent_.emplace(memories.recurrent());
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
        work_.rotate(queries, keys, positions_.front().value);
        if (kinds_[l] == LayerKind::sliding_attention) {
            work_.attend(sliding_.pass(), places_[l], queries, keys, values, out);
        } else {
            work_.attend(full_.pass(), places_[l], queries, keys, values, out);
        }
    }

    void recur(int layer, const RecurrenceWeights& w, Matrix& x) override {
        work_.recur(recurrent_.pass(), places_[static_cast<std::size_t>(layer)], w, x);
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

    double unit_roundoff() const override { return work_.unit_roundoff(); }

private:
    void drop() {
        sliding_.drop();
        full_.drop();
        recurrent_.drop();
    }

    Work work_;
    std::vector<LayerKind> kinds_;
    std::vector<int> places_;                 // of a layer among those of its kind
    std::vector<cellar::Sequence> sequences_; // of the batch: all 0
    std::vector<cellar::Position> positions_; // of the batch
    LayerGroup<typename Memories::Sliding> sliding_;
    LayerGroup<typename Memories::Full> full_;
    LayerGroup<typename Memories::Recurrent> recurrent_;
    std::int64_t fed_ = 0;
    std::int64_t removed_ = 0; // from the sliding cache, by `remove`
};

} // namespace llama
