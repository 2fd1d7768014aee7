// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "generate/arithmetic.hpp"
#include "generate/hybrid_members.hpp"
#include "generate/recurrence.hpp"
#include "ordered_attention.hpp"
#include "text_pool.hpp"
#include "texts_in_memory.hpp"
#include <cellar/cellar.hpp>

#include <type_traits>

namespace llama {

/// The memory of the types of `HybridMembers`.
template <class Layout>
class CellarPool final
    : public TextsInMemory<typename HybridMembers<Layout, cellar::DisabledShift, cellar::HostBackend>::Memory,
                           TextPool> {
    using Members = HybridMembers<Layout, cellar::DisabledShift, cellar::HostBackend>;
    using Sliding = typename Members::Sliding;
    using Full = typename Members::Full;
    using Base = TextsInMemory<typename Members::Memory, TextPool>;

public:
    CellarPool(const Config& config, const PoolLimits& limits)
        : Base{Members::make(config, member_limits(config, limits), {}, [] { return cellar::HostBackend{}; }), limits},
          config_{config},
          rotary_{config, limits.context},
          attention_{config} {}

    // [pass]
    void attend(int layer, Matrix& queries, Matrix& keys, const Matrix& values, Matrix& out) override {
        for (const auto& part : this->parts()) {
            rotary_.rotate(queries.middleRows(part.row, part.count), part.position);
            rotary_.rotate(keys.middleRows(part.row, part.count), part.position);
        }
        out.resize(queries.rows(), queries.cols());
        this->pass().visit(layer, [&](auto& pass, int index) {
            if constexpr (requires { pass.mask(); }) {
                pass.put(index, rows(keys), rows(values));
                for (const auto& part : this->parts())
                    attention_(cache_of(pass), pass, index, part.sequence, part.position, window_of(pass),
                               queries.middleRows(part.row, part.count), out.middleRows(part.row, part.count));
            }
        });
    }

    /// Token by token, so that a state does not depend on how the text was divided into batches.
    void recur(int layer, const RecurrenceWeights& w, Matrix& x) override {
        this->pass().visit(layer, [&](auto& pass, int index) {
            if constexpr (requires { pass.micro_batches(); }) {
                for (const cellar::MicroBatch& micro_batch : pass.micro_batches()) {
                    const auto inputs = pass.template get<RecentInputs>(index, micro_batch);
                    const auto hidden = pass.template get<Hidden>(index, micro_batch);
                    for (int i = 0; i < micro_batch.sequences(); ++i) {
                        const RecurrentLayerState state{{&inputs(i, 0, 0), inputs.extent(1), inputs.extent(2)},
                                                        {&hidden(i, 0), hidden.extent(1)}};
                        for (const int token : micro_batch.tokens(i)) llama::recur(w, state, x.middleRows(token, 1));
                    }
                    pass.put(index, micro_batch);
                }
            }
        });
    }
    // [/pass]

private:
    static MemberLimits member_limits(const Config& config, const PoolLimits& limits) {
        const int windows = (limits.texts + limits.snapshots) * config.sliding_window;
        return {.sequences = limits.texts,
                .capacity = limits.context,
                .cells = limits.cells,
                .sliding_cells = windows + limits.batch,
                .batch = limits.batch,
                .snapshots = limits.snapshots};
    }

    template <class Pass>
    static constexpr bool is_full = std::is_same_v<Pass, cellar::PassOf<Full>>;
    template <class Pass>
    const auto& cache_of(const Pass&) const {
        return this->memory().template member<std::conditional_t<is_full<Pass>, Full, Sliding>>();
    }
    template <class Pass>
    int window_of(const Pass&) const {
        return is_full<Pass> ? this->limits().context : config_.sliding_window;
    }

    cellar::StridedView<const float, 3> rows(const Matrix& m) const {
        return cellar::contiguous_view(m.data(), m.rows(), config_.num_key_value_heads, config_.head_dim);
    }

    Config config_;
    Rotary rotary_;
    OrderedAttention attention_;
};

} // namespace llama
