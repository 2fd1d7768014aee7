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

/// A text in one `Hybrid`, for a model of two recurrent layers and a sliding one, twice, and then a full one. What
/// `CachedMemory` works out at run time is known to the compiler here: which layer has which memory, and that all
/// memories do what a verb says, or none.
template <class Layout, class Shift, class Work = LayerWork<Layout>>
class HybridMemory final : public TextMemory {
    using Memories = MemoryOf<Layout, Shift, Work>;
    using Sliding = typename Memories::Sliding;
    using Full = typename Memories::Full;
    using Recurrent = typename Memories::Recurrent;
    template <class M>
    using Twice = cellar::Times<2, M>;
    using Pattern = cellar::LayerList<Twice<Recurrent>, Sliding, Twice<Recurrent>, Sliding, Full>;
    using Hybrid = cellar::Hybrid<Pattern, Recurrent, Sliding, Full>;

public:
    /// Whether the layers of a model are those of the pattern.
    static bool fits(const Config& config) {
        using enum LayerKind;
        const LayerKind kinds[] = {recurrent, sliding_attention, full_attention}; // of the members
        const std::vector<LayerKind>& types = config.layer_types;
        using Map = cellar::LayerMap<Pattern, Recurrent, Sliding, Full>;
        if (config.layers() != Map::period) return false;
        for (int layer = 0; layer < Map::period; ++layer) {
            if (types[static_cast<std::size_t>(layer)] != kinds[Map::place(layer).member]) return false;
        }
        return true;
    }

    HybridMemory(const Config& config, Shift shift, int capacity, int batch, int rollback)
        : work_{config, capacity}, hybrid_{hybrid_of({work_, config, shift, capacity, batch, rollback})} {}

    cellar::Result<void> begin(int first, int tokens) override {
        positions_.clear();
        for (int i = 0; i < tokens; ++i) positions_.push_back({first + i});
        sequences_.resize(positions_.size());
        auto pass = hybrid_.begin({positions_, sequences_});
        if (!pass) return pass.error().reason;
        pass_.emplace(std::move(*pass));
        return {};
    }

    void attend(int layer, Matrix& queries, Matrix& keys, const Matrix& values, Matrix& out) override {
        work_.rotate(queries, keys, positions_.front().value);
        pass_->visit(layer, [&](auto& pass, int place) {
            if constexpr (requires { pass.mask(); }) work_.attend(pass, place, queries, keys, values, out);
        });
    }

    void recur(int layer, const RecurrenceWeights& w, Matrix& x) override {
        pass_->visit(layer, [&](auto& pass, int place) {
            if constexpr (requires { pass.micro_batches(); }) work_.recur(pass, place, w, x);
        });
    }

    void commit() override {
        pass_->commit();
        pass_.reset();
        fed_ += static_cast<std::int64_t>(positions_.size());
    }

    cellar::Result<void> remove(int begin, int end) override {
        const int before = sliding().tokens(text);
        if (const auto removed = hybrid_.remove(text, {begin}, {end}); !removed) return removed.error().reason;
        removed_ += before - sliding().tokens(text);
        return {};
    }

    MemoryUse use() const override {
        return {use_of(sliding()), use_of(hybrid_.template member<Full>()),
                use_of(hybrid_.template member<Recurrent>()), fed_ - removed_ - sliding().tokens(text)};
    }

    double unit_roundoff() const override { return work_.unit_roundoff(); }

private:
    static Hybrid hybrid_of(const Memories& memories) {
        return Hybrid{memories.config.layers(), memories.recurrent(), memories.sliding(), memories.full()};
    }

    const Sliding& sliding() const { return hybrid_.template member<Sliding>(); }

    static constexpr cellar::Sequence text{0};

    Work work_;
    Hybrid hybrid_;
    std::optional<cellar::PassOf<Hybrid>> pass_; // declared later, so that it goes before the memory
    std::vector<cellar::Sequence> sequences_;    // of the batch: all the text
    std::vector<cellar::Position> positions_;    // of the batch
    std::int64_t fed_ = 0;
    std::int64_t removed_ = 0; // from the sliding cache, by `remove`
};

} // namespace llama
