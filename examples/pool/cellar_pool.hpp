// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "generate/arithmetic.hpp"
#include "generate/hybrid_members.hpp"
#include "generate/recurrence.hpp"
#include "ordered_attention.hpp"
#include "text_pool.hpp"
#include <cellar/cache/audit.hpp>
#include <cellar/cache/describe.hpp>
#include <cellar/cellar.hpp>
#include <cellar/files/snapshot_file.hpp>
#include <cellar/prefix/audit.hpp>

#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace llama {

/// The memory of many texts in a `cellar::Hybrid`, with a `cellar::PrefixTree` over it.
template <class Layout>
class CellarPool final : public TextPool {
    using Members = HybridMembers<Layout, cellar::DisabledShift, cellar::HostBackend>;
    using Recurrent = typename Members::Recurrent;
    using Sliding = typename Members::Sliding;
    using Full = typename Members::Full;
    using Memory = typename Members::Memory;

public:
    CellarPool(const Config& config, const PoolLimits& limits)
        : config_{config},
          limits_{limits},
          rotary_{config, limits.context},
          attention_{config},
          memory_{Members::make(config, member_limits(), {}, [] { return cellar::HostBackend{}; })},
          tree_{memory_, limits.prefixes} {}

    // [pass]
    cellar::Result<void> begin(std::span<const NewTokens> batch) override {
        parts_.clear();
        batch_.clear();
        for (const NewTokens& part : batch) {
            const auto count = static_cast<int>(part.tokens.size());
            parts_.push_back({{part.text}, length(part.text), batch_.size(), count});
            batch_.add({part.text}, {length(part.text)}, count);
        }
        auto pass = tree_.begin(batch_);
        if (!pass) return pass.error();
        static_cast<void>(pass_.emplace(*std::move(pass)));
        return {};
    }

    void attend(int layer, Matrix& queries, Matrix& keys, const Matrix& values, Matrix& out) override {
        for (const Part& part : parts_) {
            rotary_.rotate(queries.middleRows(part.row, part.count), part.position);
            rotary_.rotate(keys.middleRows(part.row, part.count), part.position);
        }
        out.resize(queries.rows(), queries.cols());
        pass_->visit(layer, [&](auto& pass, int index) {
            if constexpr (requires { pass.mask(); }) {
                pass.put(index, rows(keys), rows(values));
                for (const Part& part : parts_)
                    attention_(cache_of(pass), pass, index, part.sequence, part.position, window_of(pass),
                               queries.middleRows(part.row, part.count), out.middleRows(part.row, part.count));
            }
        });
    }

    /// Token by token, so that a state does not depend on how the text was divided into batches.
    void recur(int layer, const RecurrenceWeights& w, Matrix& x) override {
        pass_->visit(layer, [&](auto& pass, int index) {
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

    void commit() override {
        pass_->commit();
        pass_.reset();
    }
    // [/pass]

    int length(int text) const override { return memory_.next({text}).value; }
    void clear(int text) override { expect(memory_.remove({text}, {0}, cellar::to_end), "forget a text"); }

    int match(std::span<const int> tokens) const override { return tree_.match(tokens).length; }
    int attach(int text, std::span<const int> tokens) override { return tree_.attach({text}, tokens).length; }
    void keep(int text, std::span<const int> tokens) override { expect(tree_.insert({text}, tokens), "keep a text"); }

    void save(const std::string& path, int text, const cellar::SaveOptions& options) override {
        with_room(cellar::Reason::too_many_snapshots,
                  [&] { return cellar::save(path, memory_, cellar::Sequence{text}, options); });
    }

    void load(const std::string& path, int text, const cellar::LoadOptions& options) override {
        with_room(cellar::Reason::full, [&] { return cellar::load(path, memory_, cellar::Sequence{text}, options); });
    }

    const PoolLimits& limits() const override { return limits_; }

    PoolUse use() const override {
        if (has(LayerKind::full_attention)) return use_of(memory_.template member<Full>());
        if (has(LayerKind::sliding_attention)) return use_of(memory_.template member<Sliding>());
        return {};
    }
    std::int64_t bytes() const override { return memory_.bytes(); }
    cellar::PrefixStatistics prefixes() const override { return tree_.statistics(); }

    std::string map(bool colour) const override {
        std::string drawn;
        if (has(LayerKind::full_attention))
            drawn += "full layers: " + describe(memory_.template member<Full>(), colour);
        if (has(LayerKind::sliding_attention))
            drawn += "sliding layers: " + describe(memory_.template member<Sliding>(), colour);
        return drawn;
    }

    std::string audit() const override {
        std::string found = cellar::audit(tree_);
        if (found.empty() && has(LayerKind::full_attention)) found = cellar::audit(memory_.template member<Full>());
        if (found.empty() && has(LayerKind::sliding_attention))
            found = cellar::audit(memory_.template member<Sliding>());
        return found;
    }

private:
    /// The tokens of one text in the batch.
    struct Part {
        cellar::Sequence sequence;
        int position; // of the first one
        int row;      // of the first one
        int count;
    };

    MemberLimits member_limits() const {
        const int windows = (limits_.texts + limits_.snapshots) * config_.sliding_window;
        return {.sequences = limits_.texts,
                .capacity = limits_.context,
                .cells = limits_.cells,
                .sliding_cells = windows + limits_.batch,
                .batch = limits_.batch,
                .snapshots = limits_.snapshots};
    }

    bool has(LayerKind kind) const { return config_.layers(kind) > 0; }

    template <class Pass>
    static constexpr bool is_full = std::is_same_v<Pass, cellar::PassOf<Full>>;
    template <class Pass>
    const auto& cache_of(const Pass&) const {
        return memory_.template member<std::conditional_t<is_full<Pass>, Full, Sliding>>();
    }
    template <class Pass>
    int window_of(const Pass&) const {
        return is_full<Pass> ? limits_.context : config_.sliding_window;
    }

    cellar::StridedView<const float, 3> rows(const Matrix& m) const {
        return cellar::contiguous_view(m.data(), m.rows(), config_.num_key_value_heads, config_.head_dim);
    }

    template <class Cache>
    PoolUse use_of(const Cache& cache) const {
        std::vector<bool> owned(static_cast<std::size_t>(cache.cells()));
        PoolUse use{.cells = cache.cells()};
        for (int text = 0; text < limits_.texts; ++text)
            cache.visit_cells({text}, [&](cellar::Position, cellar::Cell cell, int count) {
                for (auto c = static_cast<std::size_t>(cell); count > 0; --count, ++c) {
                    use.live += owned[c] ? 0 : 1;
                    owned[c] = true;
                }
            });
        use.kept = use.cells - cache.statistics().free - use.live;
        return use;
    }

    /// Repeats an operation with a file as long as the tree can make room for it.
    template <class Operation>
    void with_room(cellar::Reason refusal, Operation operation) {
        cellar::FileResult<void> done = operation();
        while (!done && done.error() == refusal && tree_.evict()) done = operation();
        if (!done) throw std::runtime_error{to_string(done.error())};
    }

    static void expect(const cellar::Result<void>& result, const std::string& what) {
        if (!result) throw std::runtime_error{"the memory refused to " + what + ": " + to_string(result.error())};
    }

    Config config_;
    PoolLimits limits_;
    Rotary rotary_;
    OrderedAttention attention_;
    Memory memory_;
    cellar::PrefixTree<Memory> tree_;
    std::optional<cellar::PassOf<Memory>> pass_; // after memory_, because it must not outlive it
    cellar::Tokens batch_;
    std::vector<Part> parts_;
};

} // namespace llama
