// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// cellar's attention as operations of graphs, beside libllama with the same weights.
#include "../../violations.hpp"
#include "graph.hpp"
#include "processor.hpp"
#include "random_model.hpp"
#include "traffic.hpp"
#include <cellar/cache/audit.hpp>
#include <cellar/cellar.hpp>
#include <cellar/format/fp8.hpp>
#include <cellar/interop/ggml.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

namespace test_attention {

using namespace cellar;
using namespace ggml_test;

namespace {

using Full = Cache<Blocked<float>>;
using Sliding = Cache<Blocked<float>, SlidingWindow<>>;
using Both = Hybrid<RunTimePattern, Sliding, Full>;

constexpr CacheLimits limits{.sequences = 4, .cells = 512, .batch = 256};

/// A model over a memory, by operations of cellar's.
template <class Memory>
class Cellar {
public:
    Cellar(const RandomModel& model, Memory the_memory, int threads = 1)
        : model_{model}, memory{std::move(the_memory)}, attention{model.layers()}, processor{threads} {
        slopes.resize(model.architecture() == "mpt" ? heads : 0);
        for (std::size_t h = 0; h < slopes.size(); ++h) slopes[h] = std::exp2(-2.0F * static_cast<float>(h + 1));
        for (int layer = 0; layer < model.layers(); ++layer)
            attention.set_options(layer, {.scale = scale_of(model), .slopes = slopes});
    }

    /// The nodes of a layer.
    ggml_tensor* nodes(ggml_context* context, int layer, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v) {
        if (model_.architecture() == "deepseek2") return attention.attend(context, layer, q, k, latent);
        return attention.attend(context, layer, q, k, v);
    }

    std::vector<float> compute(PassOf<Memory>& pass, const Text& batch) {
        const auto made = [&] {
            return Graph{model_, pass.tokens(),
                         [&](ggml_context* c, ggml_cgraph*, int layer, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v) {
                             return nodes(c, layer, q, k, v);
                         }};
        };
        auto found = graphs_.find(pass.tokens());
        if (found == graphs_.end()) found = graphs_.emplace(pass.tokens(), made()).first;
        return found->second.compute(
            batch, [&](ggml_cgraph* graph) { status = attention.compute(pass, processor.backend(), graph); });
    }

    std::vector<float> decode(const Text& batch) {
        auto pass = memory.begin(tokens_of(batch)).value();
        const std::vector<float> logits = compute(pass, batch);
        REQUIRE(status == GGML_STATUS_SUCCESS);
        pass.commit();
        return logits;
    }
    void copy(int from, int to, int length) {
        memory.copy_prefix(Sequence{from}, Sequence{to}, Position{length}).value();
    }

private:
    const RandomModel& model_;
    std::map<int, Graph> graphs_; // by the number of tokens

public:
    Memory memory;
    cellar::ggml::Attention<PassOf<Memory>> attention;
    Processor processor;
    std::vector<float> slopes;
    ggml_status status = GGML_STATUS_FAILED;
};

/// The memory for a model.
Full full_memory(const RandomModel& model) {
    if (model.architecture() == "deepseek2")
        return {{.layers = model.layers(), .kv_heads = 1, .head_dim = latent + rotary, .value_dim = 0}, limits};
    return {
        {.layers = model.layers(), .kv_heads = model.architecture() == "mpt" ? heads : kv_heads, .head_dim = head_dim},
        limits};
}
Both both_memory(const RandomModel& model) {
    std::vector<int> members;
    for (int layer = 0; layer < model.layers(); ++layer) members.push_back(slides(model, layer) ? 0 : 1);
    const int sliding = static_cast<int>(std::count(members.begin(), members.end(), 0));
    return Both{members,
                Sliding{{.layers = sliding, .kv_heads = kv_heads, .head_dim = head_dim},
                        limits,
                        SlidingWindow<>{window, {.retention = 256}}},
                Full{{.layers = model.layers() - sliding, .kv_heads = kv_heads, .head_dim = head_dim}, limits}};
}

float distance(const std::vector<float>& a, const std::vector<float>& b) {
    REQUIRE(a.size() == b.size());
    float largest = 0;
    for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
    return std::isnan(largest) ? INFINITY : largest;
}

template <class Memory>
void check_beside_llama(const RandomModel& model, Memory memory, float bound = 1e-4F) {
    Llama llama{model, {.element = GGML_TYPE_F32, .flash = false}};
    Cellar<Memory> cellar{model, std::move(memory)};
    const auto copy = [&](int from, int to, int length) {
        llama.copy(from, to, length);
        cellar.copy(from, to, length);
    };
    float largest = 0;
    traffic(copy, [&](const Text& batch) {
        const std::vector<float> expected = llama.decode(batch);
        CHECK(distance(cellar.decode(batch), expected) < bound);
        for (const float logit : expected) largest = std::max(largest, std::abs(logit));
    });
    CHECK(largest > 0.5F); // else the bound would say little
}

} // namespace

TEST_CASE("logits are libllama's up to 1e-4: Llama") {
    const RandomModel model{"llama", 4};
    check_beside_llama(model, full_memory(model));
}
// ggml's GELU is a table over halves, so the last bit of a float may become the last bit of a half.
constexpr float bound_of_gelu = 1e-3F;

TEST_CASE("logits are libllama's up to 1e-3: Gemma 3 with its two windows, a hybrid") {
    const RandomModel model{"gemma3", 7};
    check_beside_llama(model, both_memory(model), bound_of_gelu);
}
TEST_CASE("logits are libllama's up to 1e-3: MPT, with ALiBi") {
    const RandomModel model{"mpt", 3};
    check_beside_llama(model, full_memory(model), bound_of_gelu);
}
TEST_CASE("logits are libllama's up to 1e-4: DeepSeek 2, with latent keys alone") {
    const RandomModel model{"deepseek2", 3};
    check_beside_llama(model, full_memory(model));
}

/// Full layers in `Coarse`, beside their newest tokens in floats.
template <class Coarse>
using WithNewest = Hybrid<WithResidual, Coarse, Sliding>;
template <class Coarse>
WithNewest<Coarse> with_newest(const RandomModel& model) {
    const CacheShape shape{.layers = model.layers(), .kv_heads = kv_heads, .head_dim = head_dim};
    return WithNewest<Coarse>{model.layers(), Coarse{shape, limits},
                              Sliding{shape, limits, SlidingWindow<>{8, {.retention = 256}}}};
}

TEST_CASE("logits are libllama's up to 1e-4 with a residual: a node attends over both caches") {
    const RandomModel model{"llama", 4};
    check_beside_llama(model, with_newest<Full>(model));
}

TEST_CASE("with a residual in floats, logits of a cache in few bits are nearer to those of floats") {
    const RandomModel model{"llama", 4};
    using Coarse = Cache<Blocked<fp8_e5m2>>;
    const CacheShape shape{.layers = model.layers(), .kv_heads = kv_heads, .head_dim = head_dim};
    Cellar<Full> floats{model, full_memory(model)};
    Cellar<Coarse> coarse{model, Coarse{shape, limits}};
    Cellar<WithNewest<Coarse>> residual{model, with_newest<Coarse>(model)};
    const auto copy = [&](int from, int to, int length) {
        floats.copy(from, to, length);
        coarse.copy(from, to, length);
        residual.copy(from, to, length);
    };
    double without = 0, with = 0;
    traffic(copy, [&](const Text& batch) {
        const std::vector<float> expected = floats.decode(batch), a = coarse.decode(batch), b = residual.decode(batch);
        for (std::size_t i = 0; i < expected.size(); ++i) {
            without += std::pow(double{a[i]} - expected[i], 2);
            with += std::pow(double{b[i]} - expected[i], 2);
        }
    });
    CHECK(with > 0);
    CHECK(with < 0.7 * without);
}

TEST_CASE("the logits have the same bits with 1 to 5 threads") {
    const RandomModel model{"llama", 4};
    std::vector<std::vector<float>> expected;
    for (const int threads : {1, 2, 3, 5}) { // where there are fewer cores, some come late
        Cellar<Full> cellar{model, full_memory(model), threads};
        std::size_t pass = 0;
        traffic([&](int from, int to, int length) { cellar.copy(from, to, length); },
                [&](const Text& batch) {
                    const std::vector<float> found = cellar.decode(batch);
                    if (threads == 1) expected.push_back(found);
                    CHECK(found == expected[pass++]);
                });
    }
}

TEST_CASE("what put throws in a layer leaves the computation, later layers are skipped, and the memory is as it was") {
    const RandomModel model{"llama", 4};
    Cellar<Full> cellar{model, full_memory(model)}, other{model, full_memory(model)};
    cellar.decode(text(0, 0, 40));
    other.decode(text(0, 0, 40));
    const CacheStatistics before = cellar.memory.statistics();
    {
        // Queries in place of the keys of layer 2: they have twice as many heads.
        Graph wrong{model, 3,
                    [&](ggml_context* c, ggml_cgraph*, int layer, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v) {
                        return cellar.nodes(c, layer, q, layer == 2 ? q : k, v);
                    }};
        auto pass = cellar.memory.begin(tokens_of(text(0, 40, 3))).value();
        CHECK(violation_of([&] {
                  wrong.compute(text(0, 40, 3), [&](ggml_cgraph* graph) {
                      static_cast<void>(cellar.attention.compute(pass, cellar.processor.backend(), graph));
                  });
              })
              == "put: the keys of layer 2 are [3, 4, 16], expected [3 tokens, 2 heads, 16]");
        CHECK(violation_of([&] { pass.commit(); }) == "commit: layer 2 was not put, expected a put of every layer");
        pass.mark_put(2);
        CHECK(pass.first_missing() == 3);
    }
    CHECK(cellar.memory.statistics() == before);
    CHECK(audit(cellar.memory).empty());
    CHECK(cellar.decode(text(0, 40, 3)) == other.decode(text(0, 40, 3)));
}

TEST_CASE("a computation that ggml aborts can be dropped, and the memory is as it was") {
    const RandomModel model{"llama", 4};
    Cellar<Full> cellar{model, full_memory(model)}, other{model, full_memory(model)};
    cellar.decode(text(0, 0, 40));
    other.decode(text(0, 0, 40));
    const CacheStatistics before = cellar.memory.statistics();
    cellar.processor.abort_after(30);
    {
        auto pass = cellar.memory.begin(tokens_of(text(0, 40, 3))).value();
        cellar.compute(pass, text(0, 40, 3));
        CHECK(cellar.status == GGML_STATUS_ABORTED);
        CHECK(pass.first_missing() > 0); // some layers were put
    }
    cellar.processor.abort_after(-1);
    CHECK(cellar.memory.statistics() == before);
    CHECK(audit(cellar.memory).empty());
    CHECK(cellar.decode(text(0, 40, 3)) == other.decode(text(0, 40, 3)));
}

} // namespace test_attention
