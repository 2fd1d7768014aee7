// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Nodes of cellar's attention in graphs that ggml's scheduler allocates, divides and computes.
#include "../../violations.hpp"
#include "graph.hpp"
#include "processor.hpp"
#include "random_model.hpp"
#include "traffic.hpp"
#include <cellar/cache/audit.hpp>
#include <cellar/cellar.hpp>
#include <cellar/interop/ggml.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <functional>
#include <vector>

namespace test_scheduler {

using namespace cellar;
using namespace ggml_test;

namespace {

using Memory = Cache<Blocked<float>>;

constexpr int layers = 4;
constexpr std::size_t graph_size = 2048;

/// The nodes of all layers, and the memory that they work on.
class Cellar {
public:
    std::vector<ggml_tensor*> nodes; // of the graph that was made last

    Attend attend() {
        nodes.clear();
        return [this](ggml_context* context, ggml_cgraph*, int layer, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v) {
            nodes.push_back(attention.attend(context, layer, q, k, v));
            return nodes.back();
        };
    }

    /// Computes a pass over the batch, whose nodes `compute` computes, and commits it.
    std::vector<float> decode(const Text& batch, Graph& graph,
                              const std::function<ggml_status(ggml_cgraph*)>& compute) {
        auto pass = memory.begin(tokens_of(batch)).value();
        ggml_status status = GGML_STATUS_FAILED;
        std::vector<float> logits =
            graph.compute(batch, [&](ggml_cgraph* g) { status = attention.compute(pass, [&] { return compute(g); }); });
        REQUIRE(status == GGML_STATUS_SUCCESS);
        pass.commit();
        return logits;
    }

    Memory memory{{.layers = layers, .kv_heads = kv_heads, .head_dim = head_dim},
                  {.sequences = 4, .cells = 512, .batch = 256}};
    cellar::ggml::Attention<PassOf<Memory>> attention{layers};
};

std::vector<std::vector<float>> by_a_backend(const RandomModel& model) {
    std::vector<std::vector<float>> logits;
    Processor processor{2};
    Cellar cellar;
    traffic([&](int from, int to,
                int length) { cellar.memory.copy_prefix(Sequence{from}, Sequence{to}, Position{length}).value(); },
            [&](const Text& batch) {
                Graph graph{model, static_cast<int>(batch.size()), cellar.attend()};
                logits.push_back(cellar.decode(
                    batch, graph, [&](ggml_cgraph* g) { return ggml_backend_graph_compute(processor.backend(), g); }));
            });
    return logits;
}

/// Asks for each node alone.
bool one_by_one(ggml_tensor*, bool, void*) {
    return true;
}

} // namespace

TEST_CASE("by a scheduler, logits have the same bits, also node by node") {
    const RandomModel model{"llama", layers};
    const auto expected = by_a_backend(model);
    for (const bool is_node_by_node : {false, true}) {
        CAPTURE(is_node_by_node);
        Processor processor{2};
        ggml_backend_t backend = processor.backend();
        const ggml_backend_sched_ptr scheduler{ggml_backend_sched_new(&backend, nullptr, 1, graph_size, false, false)};
        if (is_node_by_node) ggml_backend_sched_set_eval_callback(scheduler.get(), one_by_one, nullptr);
        Cellar cellar;
        std::size_t number = 0;
        traffic([&](int from, int to,
                    int length) { cellar.memory.copy_prefix(Sequence{from}, Sequence{to}, Position{length}).value(); },
                [&](const Text& batch) {
                    Graph graph{model, static_cast<int>(batch.size()), cellar.attend(), scheduler.get()};
                    const auto compute = [&](ggml_cgraph* g) {
                        return ggml_backend_sched_graph_compute(scheduler.get(), g);
                    };
                    CHECK(cellar.decode(batch, graph, compute) == expected[number++]);
                });
        CHECK(number == expected.size());
        CHECK(audit(cellar.memory).empty());
    }
}

TEST_CASE("what a node throws passes through a scheduler, and the memory is as it was") {
    const RandomModel model{"llama", layers};
    Processor processor{2};
    ggml_backend_t backend = processor.backend();
    const ggml_backend_sched_ptr scheduler{ggml_backend_sched_new(&backend, nullptr, 1, graph_size, false, false)};
    Cellar cellar;
    const auto compute = [&](ggml_cgraph* g) { return ggml_backend_sched_graph_compute(scheduler.get(), g); };
    {
        Graph graph{model, 40, cellar.attend(), scheduler.get()};
        cellar.decode(text(0, 0, 40), graph, compute);
    }
    const CacheStatistics before = cellar.memory.statistics();
    const Attend attend = cellar.attend();
    Graph wrong{model, 3,
                [&](ggml_context* c, ggml_cgraph* g, int layer, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v) {
                    return attend(c, g, layer, q, layer == 2 ? q : k, v); // twice as many heads
                },
                scheduler.get()};
    CHECK(violation_of([&] { cellar.decode(text(0, 40, 3), wrong, compute); })
          == "put: the keys of layer 2 are [3, 4, 16], expected [3 tokens, 2 heads, 16]");
    CHECK(cellar.memory.statistics() == before);
    CHECK(audit(cellar.memory).empty());
}

} // namespace test_scheduler
