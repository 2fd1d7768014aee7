// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "generate/arithmetic.hpp"
#include "generate/host_compute.hpp"
#include "generate/hybrid_members.hpp"
#include "generate/memory.hpp"
#include <cellar/cellar.hpp>

#include <optional>
#include <stdexcept>
#include <type_traits>
#include <utility>

namespace llama {

/// The caches of a model with full and sliding attention layers.
using Members = HybridMembers<cellar::StandardV<float>, cellar::RopeShift<cellar::Neox>, cellar::HostBackend>;
using Caches = Members::Memory;

/// For the layers and heads of `config`.
inline Caches make_caches(const Config& config) {
    const int context = config.max_position_embeddings;
    const cellar::RopeShift<cellar::Neox> shift{cellar::rope_frequencies(config.head_dim, config.rope_theta)};
    return Members::make(config, {.capacity = context, .batch = context}, shift, [] { return cellar::HostBackend{}; });
}

inline constexpr cellar::Sequence the_text{0};

/// A text in any memory whose passes visit layers: the caches, or the caches of several ranks.
template <class Memory>
class AttentionMemory final : public LayerMemory {
public:
    AttentionMemory(const Config& config, Memory memory)
        : rotary_{config, config.max_position_embeddings}, compute_{config}, memory_{std::move(memory)} {}

    Memory& memory() { return memory_; }

    /// Tokens at positions first, first + 1, ...
    cellar::Result<void> begin(int first, int tokens) {
        return begin(cellar::BatchBuilder{the_text, cellar::Position{first}, tokens});
    }
    cellar::Result<void> begin(const cellar::Batch& batch) {
        first_ = batch.positions[0].value;
        auto pass = memory_.begin(batch);
        if (!pass) return pass.error();
        static_cast<void>(pass_.emplace(*std::move(pass)));
        return {};
    }

    /// Opens the pass that the first stage of a pipeline has begun. False after the last one.
    bool begin_received() requires(requires(Memory& m) { m.begin_received(); }) {
        auto pass = memory_.begin_received();
        if (!pass) return false;
        static_cast<void>(pass_.emplace(*std::move(pass)));
        first_ = memory_.received().batch().positions[0].value;
        return true;
    }

    void attend(int layer, Matrix& queries, Matrix& keys, const Matrix& values, Matrix& out) override {
        rotary_.rotate(queries, first_);
        rotary_.rotate(keys, first_);
        const auto rows = compute_.upload(queries, keys, values);
        pass_->visit(layer, [&](auto& pass, int index) {
            if constexpr (requires { pass.mask(); }) {
                pass.put(index, rows.keys, rows.values);
                compute_.attend(pass, index, rows.queries, out);
            }
        });
    }

    void recur(int /*layer*/, const RecurrenceWeights& /*w*/, Matrix& /*x*/) override {
        throw std::logic_error{"a recurrent layer, expected attention"};
    }

    void commit() {
        pass_->commit();
        pass_.reset();
    }

private:
    using Pass = std::remove_cvref_t<decltype(*std::declval<Memory&>().begin(cellar::Batch{}))>;

    Rotary rotary_;
    HostCompute compute_;
    Memory memory_;
    std::optional<Pass> pass_; // after memory_, because it must not outlive it
    int first_ = 0;            // position of the batch
};

} // namespace llama
