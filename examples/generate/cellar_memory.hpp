// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "arithmetic.hpp"
#include "config.hpp"
#include "hybrid_members.hpp"
#include "memory.hpp"
#include "weights.hpp"
#include <cellar/cellar.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace llama {

/// The memory of one text in a `cellar::Hybrid`: all that the model needs of cellar. `Compute` runs attention and
/// recurrences: `HostCompute` or `KokkosCompute`.
template <class Layout, class Shift, class Compute>
class CellarMemory final : public TextMemory {
    using Backend = typename Compute::Backend;
    using Members = HybridMembers<Layout, Shift, Backend>;
    using Recurrent = typename Members::Recurrent;
    using Sliding = typename Members::Sliding;
    using Full = typename Members::Full;
    using Memory = typename Members::Memory;

public:
    CellarMemory(const Config& config, const TextLimits& limits)
        : config_{config},
          limits_{limits},
          rotary_{config, limits.context},
          compute_{config},
          memory_{Members::make(config, member_limits(), shift(), [this] { return compute_.backend(); })} {}

    // [pass]
    cellar::Result<void> begin(int first, int tokens) override {
        first_ = first;
        batch_.clear();
        batch_.add(text, cellar::Position{first}, tokens);
        auto pass = memory_.begin(batch_);
        if (!pass) return pass.error();
        static_cast<void>(pass_.emplace(*std::move(pass)));
        return {};
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

    void recur(int layer, const RecurrenceWeights& w, Matrix& x) override {
        compute_.upload(x);
        pass_->visit(layer, [&](auto& pass, int index) {
            if constexpr (requires { pass.micro_batches(); }) {
                for (const cellar::MicroBatch& micro_batch : pass.micro_batches()) {
                    const auto inputs = pass.template get<RecentInputs>(index, micro_batch);
                    const auto hidden = pass.template get<Hidden>(index, micro_batch);
                    compute_.recur(index, w, micro_batch, inputs, hidden, x);
                    pass.put(index, micro_batch);
                }
            }
        });
        compute_.download(x);
    }

    void commit() override {
        const int before = sliding_tokens();
        pass_->commit();
        pass_.reset();
        evicted_ += before - sliding_tokens();
    }

    cellar::Result<void> remove(int begin, int end) override {
        return memory_.remove(text, cellar::Position{begin}, cellar::Position{end});
    }
    // [/pass]

    const TextLimits& limits() const override { return limits_; }

    MemoryUse use() const override {
        MemoryUse use;
        if (has(LayerKind::sliding_attention)) use.sliding = use_of(memory_.template member<Sliding>());
        if (has(LayerKind::full_attention)) use.full = use_of(memory_.template member<Full>());
        if (has(LayerKind::recurrent)) {
            const Recurrent& states = memory_.template member<Recurrent>();
            use.recurrent = {states.layers(), states.statistics().used, states.slots(), states.bytes()};
        }
        use.evicted = evicted_;
        return use;
    }

    double unit_roundoff() const override {
        return std::max(roundoff<typename Layout::key_format>(), roundoff<typename Layout::value_format>());
    }

private:
    static constexpr cellar::Sequence text{0};

    MemberLimits member_limits() const {
        return {.capacity = limits_.context,
                .batch = limits_.batch,
                .rollback = limits_.rollback,
                // A removal may move forgotten positions into the window: a gap.
                .positions = cellar::Positions::any};
    }
    Shift shift() const {
        return Shift{cellar::rope_frequencies(config_.head_dim, config_.rope_theta),
                     {.interleaved = config_.rope_pairing == Pairing::interleaved}};
    }

    template <class Format>
    static double roundoff() {
        if (std::is_same_v<Format, float>) return 0x1p-24;
        if (std::is_same_v<Format, cellar::half>) return 0x1p-11;
        if (std::is_same_v<Format, cellar::bfloat16>) return 0x1p-8;
        constexpr std::size_t bits =
            8 * sizeof(cellar::detail::unit_of<Format>) / cellar::detail::values_per_unit<Format>;
        return bits < 8 ? 1.0 / 8 : 1.0 / 127;
    }

    bool has(LayerKind kind) const { return config_.layers(kind) > 0; }

    int sliding_tokens() const {
        return has(LayerKind::sliding_attention) ? memory_.template member<Sliding>().tokens(text) : 0;
    }

    template <class Cache>
    static CacheUse use_of(const Cache& cache) {
        return {cache.layers(), cache.tokens(text), cache.cells(), cache.bytes()};
    }

    Config config_;
    TextLimits limits_;
    Rotary rotary_;
    Compute compute_;
    Memory memory_;
    std::optional<cellar::PassOf<Memory>> pass_; // after memory_, because it must not outlive it
    cellar::BatchBuilder batch_;
    int first_ = 0; // position of the batch
    std::int64_t evicted_ = 0;
};

/// A `CellarMemory` whose types are chosen at run time.
template <class Compute>
std::unique_ptr<TextMemory> make_cellar_memory(const Config& config, const TextLimits& limits,
                                               const CacheFormat& format) {
    const auto make = [&]<class Layout>(Layout) -> std::unique_ptr<TextMemory> {
        using Shift = cellar::RopeShift<cellar::RunTimePairing>;
        return std::make_unique<CellarMemory<Layout, Shift, Compute>>(config, limits);
    };
    const auto with_element = [&]<class Element>(Element) {
        if (format.layout == "standard") return make(cellar::StandardV<Element>{});
        if (format.layout == "permuted") return make(cellar::PermutedV<Element>{});
        throw std::runtime_error{"layout '" + format.layout + "', expected 'standard' or 'permuted'"};
    };
    if (format.element == "float") return with_element(float{});
    if (format.element == "half") return with_element(cellar::half{});
    if (format.element == "bf16") return with_element(cellar::bfloat16{});
    throw std::runtime_error{"element type '" + format.element + "', expected 'float', 'half' or 'bf16'"};
}

} // namespace llama
