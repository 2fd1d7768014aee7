// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The code of docs/how-to/compute-attention.md, and of the attention in docs/put-it-into-your-model.md.
#include <cellar/attention/attend.hpp>
#include <cellar/attention/op_threads.hpp>
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace test_attend {

using cellar::BatchBuilder;
using cellar::CellRange;
using cellar::StridedView;

namespace {

constexpr int heads = 6;
constexpr int kv_heads = 2;
constexpr int dim = 8;

std::vector<float> numbers(int n, int first) {
    std::vector<float> all;
    for (int i = 0; i < n; ++i) all.push_back(static_cast<float>(std::sin(first + 1.7 * i)));
    return all;
}

template <class Cache>
auto put(Cache& cache, const BatchBuilder& tokens) {
    auto pass = cache.begin(tokens).value();
    pass.put(0, numbers(tokens.size() * kv_heads * dim, 1), numbers(tokens.size() * kv_heads * dim, 2));
    return pass;
}

// [own]
/// softmax(q * keys^T / sqrt(dim)) * values, for each token over the cells that it sees.
template <class Pass>
std::vector<float> own_attention(Pass& pass, int layer, const std::vector<float>& q) {
    const auto keys = pass.keys(layer);
    const auto values = pass.values(layer);
    std::vector<float> out(q.size());
    std::vector<std::int64_t> cells; // as indices into the views, which begin with the first cell of the history
    std::vector<float> weights;
    for (int token = 0; token < pass.tokens(); ++token) {
        cells.clear();
        for (const CellRange run : pass.visible(token))
            for (int i = 0; i < run.count; ++i) cells.push_back(run.first + i - pass.history().first);
        for (int head = 0; head < heads; ++head) {
            const int kv_head = head * kv_heads / heads;
            const float* const query = &q[static_cast<std::size_t>((token * heads + head) * dim)];
            float* const result = &out[static_cast<std::size_t>((token * heads + head) * dim)];
            weights.clear();
            for (const std::int64_t cell : cells) {
                float score = 0;
                for (int i = 0; i < dim; ++i) score += query[i] * static_cast<float>(keys(cell, kv_head, i));
                weights.push_back(score / std::sqrt(static_cast<float>(dim)));
            }
            const float largest = *std::max_element(weights.begin(), weights.end());
            float sum = 0;
            for (float& weight : weights) sum += weight = std::exp(weight - largest);
            for (std::size_t c = 0; c < cells.size(); ++c)
                for (int i = 0; i < dim; ++i)
                    result[i] += weights[c] / sum * static_cast<float>(values(cells[c], kv_head, i));
        }
    }
    return out;
}
// [/own]

// [openmp]
/// The threads of OpenMP, which stay alive between calls.
struct OpenMpThreads {
    int threads;
    int count() const { return threads; }
    template <class F>
    void run(F&& f) const {
#pragma omp parallel for
        for (int i = 0; i < threads; ++i) f(i);
    }
};
// [/openmp]

// [threads]
/// Threads that are started for each call.
struct NewThreads {
    int threads;
    int count() const { return threads; }
    template <class F>
    void run(F&& f) const {
        std::vector<std::jthread> others; // joined at the end
        for (int i = 1; i < threads; ++i) others.emplace_back([&f, i] { f(i); });
        f(0);
    }
};
// [/threads]

bool equal(const std::vector<float>& a, const std::vector<float>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) { return std::abs(x - y) < 1e-5F; });
}

} // namespace

TEST_CASE("attend, of queries with strides") {
    const int tokens = 5;
    const int layer = 0;
    cellar::Cache<> cache{{.layers = 1, .kv_heads = kv_heads, .head_dim = dim}, {.capacity = 16, .batch = 8}};
    const std::vector<float> fused = numbers(tokens * (heads + 2 * kv_heads) * dim, 3);
    auto pass = cache.begin(BatchBuilder{cellar::Sequence{0}, cellar::Position{0}, tokens});
    REQUIRE(pass);
    // [call]
    // One row for each token: its queries, its keys, its values.
    const std::int64_t row = (heads + 2 * kv_heads) * dim;
    const auto part = [&](std::int64_t first_head, std::int64_t n) {
        return StridedView<const float, 3>{
            &fused[static_cast<std::size_t>(first_head * dim)], {tokens, n, dim}, {row, dim, 1}};
    };
    pass->put(layer, part(heads, kv_heads), part(heads + kv_heads, kv_heads));
    std::vector<float> out(tokens * heads * dim); // [tokens, heads, dim]
    cellar::attend(*pass, layer, part(0, heads), out);
    // [/call]
    std::vector<float> q;
    for (std::ptrdiff_t token = 0; token < tokens; ++token)
        q.insert(q.end(), fused.begin() + token * row, fused.begin() + token * row + heads * dim);
    CHECK(equal(out, own_attention(*pass, layer, q)));
}

TEST_CASE("attend, with options") {
    cellar::Cache<> cache{{.layers = 1, .kv_heads = kv_heads, .head_dim = dim}, {.capacity = 16, .batch = 8}};
    auto pass = put(cache, BatchBuilder{cellar::Sequence{0}, cellar::Position{0}, 5});
    const int tokens = pass.tokens();
    const std::vector<float> q = numbers(5 * heads * dim, 3);
    const std::vector<float> slopes = numbers(heads, 4);
    const std::vector<float> sinks = numbers(heads, 5);
    std::vector<float> plain(q.size()), capped(q.size()), biased(q.size()), with_sinks(q.size()), again(q.size());
    cellar::attend(pass, 0, q, plain);
    // [options]
    cellar::attend(pass, 0, q, capped, {.scale = 0.0625F, .soft_cap = 50}); // Gemma 2: its own scale, and a soft cap
    cellar::attend(pass, 0, q, biased, {.slopes = slopes});                 // ALiBi: one slope for each query head
    cellar::attend(pass, 0, q, with_sinks, {.sinks = sinks}); // gpt-oss: one learned number for each query head

    std::vector<float> sums(static_cast<std::size_t>(tokens * heads));
    cellar::attend(pass, 0, q, again, {.log_sum_exp = cellar::contiguous_view(sums.data(), tokens, heads)});
    // [/options]
    CHECK(again == plain);
    CHECK_FALSE(equal(capped, plain));
    CHECK_FALSE(equal(biased, plain));
    CHECK_FALSE(equal(with_sinks, plain));
    CHECK(std::all_of(sums.begin(), sums.end(), [](float sum) { return std::isfinite(sum); }));
}

TEST_CASE("attend, over latents") {
    // [mla]
    constexpr int latent = 24;
    constexpr int rotary = 8;
    cellar::Cache<> cache{{.layers = 1, .kv_heads = 1, .head_dim = latent + rotary, .value_dim = 0},
                          {.capacity = 16, .batch = 8}}; // keys alone
    const int tokens = 3;
    auto pass = cache.begin(BatchBuilder{cellar::Sequence{0}, cellar::Position{0}, tokens});
    REQUIRE(pass);
    pass->put(0, numbers(tokens * (latent + rotary), 1), std::vector<float>{});
    const std::vector<float> q = numbers(tokens * heads * (latent + rotary), 2); // [tokens, heads, latent + rotary]
    std::vector<float> out(tokens * heads * latent);
    cellar::attend(*pass, 0, q, cellar::contiguous_view(out.data(), tokens, heads, latent), {.scale = 0.07F});
    // [/mla]
    const auto keys = pass->keys(0);
    for (int head = 0; head < heads; ++head)
        for (int d = 0; d < latent; ++d) // the first token sees only itself
            CHECK(out[static_cast<std::size_t>(head * latent + d)] == static_cast<float>(keys(0, 0, d)));
}

TEST_CASE("attend, over a tree of drafted tokens") {
    cellar::Cache<> cache{{.layers = 1, .kv_heads = kv_heads, .head_dim = dim}, {.capacity = 32, .batch = 8}};
    put(cache, BatchBuilder{cellar::Sequence{0}, cellar::Position{0}, 5}).commit();
    // [tree]
    // Two drafts for the tokens after the text, a b d and a c: a at the next position, then b and c, then d.
    const cellar::Position next = cache.next(cellar::Sequence{0});
    BatchBuilder drafts{cellar::Sequence{0}, next}; // a follows the text,
    drafts.add_child(0).add_child(0).add_child(1);  // b and c follow a, d follows b
    auto pass = cache.begin(drafts);
    REQUIRE(pass);
    pass->put(0, numbers(4 * kv_heads * dim, 6), numbers(4 * kv_heads * dim, 7));
    const std::vector<float> q = numbers(4 * heads * dim, 8);
    std::vector<float> out(q.size());
    cellar::attend(*pass, 0, q, out);
    pass->drop();
    // [/tree]
    // c alone, after a.
    const auto rows = [](const std::vector<float>& all, int row) {
        std::vector<float> some(all.begin(), all.begin() + row);
        some.insert(some.end(), all.begin() + std::ptrdiff_t{2} * row, all.begin() + std::ptrdiff_t{3} * row);
        return some;
    };
    auto alone = cache.begin(BatchBuilder{cellar::Sequence{0}, next, 2}).value();
    alone.put(0, rows(numbers(4 * kv_heads * dim, 6), kv_heads * dim),
              rows(numbers(4 * kv_heads * dim, 7), kv_heads * dim));
    std::vector<float> expected(std::size_t{2} * heads * dim);
    cellar::attend(alone, 0, rows(q, heads * dim), expected);
    CHECK(equal(rows(out, heads * dim), expected));
}

TEST_CASE("attend, with several threads") {
    cellar::Cache<> cache{{.layers = 1, .kv_heads = kv_heads, .head_dim = dim},
                          {.sequences = 3, .capacity = 16, .batch = 16}};
    auto pass = put(cache, BatchBuilder{cellar::Sequence{0}, cellar::Position{0}, 5}
                               .add(cellar::Sequence{1}, cellar::Position{0}, 5)
                               .add(cellar::Sequence{2}, cellar::Position{0}, 5));
    const std::vector<float> q = numbers(15 * heads * dim, 3);
    std::vector<float> out(q.size());
    std::vector<float> same(q.size());
    // [several]
    cellar::attend(pass, 0, q, out, {}, OpenMpThreads{8});
    cellar::attend(pass, 0, q, same, {}, NewThreads{2});
    CHECK(out == same); // bit by bit
    // [/several]
    CHECK(equal(out, own_attention(pass, 0, q)));
    cellar::OpThreads team; // one for the threads of all
    const auto on_each_thread = [&](int ith, int nth) {
        // [op]
        // On each of the engine's threads; `ith` is its number among `nth`:
        team.op(ith, nth, [&](const cellar::OpThreads& threads) { // on thread 0 alone
            cellar::attend(pass, 0, q, same, {}, threads);
        });
        // [/op]
    };
    std::fill(same.begin(), same.end(), 0.0F);
    {
        const std::jthread other{on_each_thread, 1, 2};
        on_each_thread(0, 2);
    }
    CHECK(out == same);
    pass.drop();

    // Sequence 2 alone, in other cells: equal bit by bit.
    auto alone = cache.begin(BatchBuilder{cellar::Sequence{2}, cellar::Position{0}, 5}).value();
    const auto last = [](const std::vector<float>& all) {
        return std::vector<float>(all.end() - static_cast<std::ptrdiff_t>(all.size() / 3), all.end());
    };
    alone.put(0, last(numbers(15 * kv_heads * dim, 1)), last(numbers(15 * kv_heads * dim, 2)));
    std::vector<float> found(out.size() / 3);
    cellar::attend(alone, 0, last(q), found);
    CHECK(found == last(out));
}

} // namespace test_attend
