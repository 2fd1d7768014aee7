// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/host.hpp>
#include <cellar/base/attention_work.hpp>
#include <cellar/base/score.hpp>

#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

namespace cellar_test {

/// A backend of a user's own that computes attention itself: one cell after the other, from the lists that it is given.
/// It merges that over two memories.
struct OwnAttention : cellar::HostBackend {
    void begin_attention(const cellar::AttentionLists& of_pass) {
        ++passes;
        lists = of_pass;
        if (fails) throw std::bad_alloc{};
    }

    template <class Keys, class Values, class Q, class Out>
    void attend(const cellar::AttentionWork<Keys, Values, Q, Out>& work) {
        ++layers;
        for (const cellar::AttentionLists::Sequence& s : lists.sequences)
            for (std::int32_t t = s.first_token; t < s.first_token + s.tokens; ++t)
                for (int head = 0; head < work.shape.heads; ++head)
                    attend_one(work, s, lists.tokens[static_cast<std::size_t>(t)], head);
    }

    bool shares_order(const OwnAttention& other) const { return queue == other.queue; }
    float* prior_results(std::int64_t n) {
        prior.resize(static_cast<std::size_t>(n));
        return prior.data();
    }

    cellar::AttentionLists lists;
    int queue = 0;
    bool fails = false; ///< as a device without memory for the lists
    std::vector<float> prior;
    int passes = 0;
    int layers = 0;

private:
    void attend_one(const auto& work, const cellar::AttentionLists::Sequence& s, const cellar::VisibleRange& token,
                    int head) const {
        cellar::SoftmaxSum sum{cellar::no_score(), 0};
        std::vector<float> values(static_cast<std::size_t>(work.shape.value_dim));
        const int kv_head = head / work.shape.group();
        for_each_cell(s, [&](std::int32_t position, cellar::Cell cell) {
            if (!token.sees(position, lists.sinks)) return;
            const std::int32_t other = work.tree.parents == nullptr ? -1 : work.tree.token_in(cell);
            if (other >= 0 && !work.tree.is_in_branch(other, token.token)) return;
            float product = 0;
            for (std::int32_t d = 0; d < work.keys.dim; ++d)
                product += static_cast<float>(work.q(token.token, head, d))
                           * static_cast<float>(work.keys.data[work.keys.mapping(cell, kv_head, d)]);
            const float score = work.rule.score(product, token.position - position, work.rule.of_head(head));
            const cellar::MergedSoftmax merged = cellar::merge_softmax(sum, {score, 1});
            sum = merged.sum;
            for (std::int32_t d = 0; d < work.values.dim; ++d) {
                float& value = values[static_cast<std::size_t>(d)];
                const auto added = static_cast<float>(work.values.data[work.values.mapping(cell, kv_head, d)]);
                value = value * merged.own + added * merged.other;
            }
        });
        if (work.prior.out != nullptr) {
            const std::int64_t row = std::int64_t{token.token} * work.shape.heads + head;
            const cellar::MergedSoftmax merged = cellar::merge_softmax(sum, {work.prior.log_sum_exp[row], 1});
            sum = merged.sum;
            for (std::int32_t d = 0; d < work.values.dim; ++d) {
                float& value = values[static_cast<std::size_t>(d)];
                value = value * merged.own + work.prior.out[row * work.values.dim + d] * merged.other;
            }
        }
        const cellar::SoftmaxEnd end = cellar::end_softmax(sum, work.rule.sink(head));
        for (std::int32_t d = 0; d < work.values.dim; ++d) {
            auto& out = work.out(token.token, head, d);
            out = static_cast<std::remove_reference_t<decltype(out)>>(values[static_cast<std::size_t>(d)] * end.weight);
        }
        if (work.log_sum_exp.pointer != nullptr) work.log_sum_exp(token.token, head) = end.log_sum_exp;
    }

    // Calls f(position, cell) for each cell of a sequence.
    template <class F>
    void for_each_cell(const cellar::AttentionLists::Sequence& s, F f) const {
        for (std::int32_t r = s.first_run; r < s.first_run + s.runs; ++r) {
            const cellar::VisibleRun& run = lists.runs[static_cast<std::size_t>(r)];
            const bool is_last = r + 1 == s.first_run + s.runs;
            const std::int32_t end = is_last ? s.cells : lists.runs[static_cast<std::size_t>(r) + 1].first;
            for (std::int32_t i = 0; i < end - run.first; ++i) f(run.position + i, run.cell + i);
        }
    }
};

} // namespace cellar_test
