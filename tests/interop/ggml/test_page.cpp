// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The code of docs/how-to/put-it-under-ggml.md.
#include "processor.hpp"
#include <cellar/cellar.hpp>
#include <cellar/interop/ggml.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace test_page {

using cellar::BatchBuilder;
using cellar::Sequence;
using ggml_test::Processor;

namespace {

constexpr int layers = 2, heads = 4, kv_heads = 2, dim = 16, width = heads * dim, vocabulary = 50;

/// A model that has nothing but what attention needs.
class Model {
public:
    Model() {
        for (ggml_tensor*& weight : weights_) weight = ggml_new_tensor_2d(context_.get(), GGML_TYPE_F32, width, width);
        embedding_ = ggml_new_tensor_2d(context_.get(), GGML_TYPE_F32, width, vocabulary);
        buffer_.reset(ggml_backend_alloc_ctx_tensors_from_buft(context_.get(), ggml_backend_cpu_buffer_type()));
        int seed = 0;
        for (ggml_tensor* const weight : weights_) fill(weight, ++seed);
        fill(embedding_, ++seed);
    }

    struct Projected {
        ggml_tensor* q;
        ggml_tensor* k;
        ggml_tensor* v;
    };

    ggml_tensor* embed(ggml_context* c, ggml_tensor* words) const { return ggml_get_rows(c, embedding_, words); }
    Projected project(ggml_context* c, ggml_tensor* x, ggml_tensor* positions, int layer) const {
        const auto part = [&](int which, int n) {
            ggml_tensor* const y = ggml_mul_mat(c, weights_[static_cast<std::size_t>(4 * layer + which)], x);
            return ggml_view_3d(c, y, dim, n, x->ne[1], dim * sizeof(float), y->nb[1], 0);
        };
        const auto rotated = [&](ggml_tensor* y) { return ggml_rope(c, y, positions, dim, GGML_ROPE_TYPE_NEOX); };
        return {rotated(part(0, heads)), rotated(part(1, kv_heads)), part(2, kv_heads)};
    }
    ggml_tensor* feed_forward(ggml_context* c, ggml_tensor* x, ggml_tensor* attended, int layer) const {
        return ggml_add(c, x, ggml_mul_mat(c, weights_[static_cast<std::size_t>(4 * layer + 3)], attended));
    }
    ggml_tensor* classify(ggml_context* c, ggml_tensor* x) const { return ggml_mul_mat(c, embedding_, x); }

private:
    static void fill(ggml_tensor* tensor, int seed) {
        std::vector<float> numbers(static_cast<std::size_t>(ggml_nelements(tensor)));
        for (std::size_t i = 0; i < numbers.size(); ++i)
            numbers[i] = 0.2F * static_cast<float>(std::sin(seed + 1.7 * static_cast<double>(i)));
        ggml_backend_tensor_set(tensor, numbers.data(), 0, ggml_nbytes(tensor));
    }

    ggml_context_ptr context_{ggml_init({16 * ggml_tensor_overhead(), nullptr, true})};
    ggml_backend_buffer_ptr buffer_;
    ggml_tensor* weights_[4 * layers]{};
    ggml_tensor* embedding_;
};

/// A graph, its inputs and its result.
struct Step {
    ggml_context_ptr context{ggml_init({512 * ggml_tensor_overhead() + ggml_graph_overhead(), nullptr, true})};
    ggml_gallocr_ptr memory{ggml_gallocr_new(ggml_backend_cpu_buffer_type())};
    ggml_cgraph* graph = ggml_new_graph(context.get());
    ggml_tensor* words = nullptr;
    ggml_tensor* positions = nullptr;
    ggml_tensor* logits = nullptr;

    explicit Step(int tokens) {
        for (ggml_tensor** const input : {&words, &positions}) {
            *input = ggml_new_tensor_1d(context.get(), GGML_TYPE_I32, tokens);
            ggml_set_input(*input);
        }
    }
    void finish(ggml_tensor* result) {
        logits = result;
        ggml_set_output(logits);
        ggml_build_forward_expand(graph, logits);
        ggml_gallocr_alloc_graph(memory.get(), graph);
    }
    void set(const std::vector<std::int32_t>& the_words, int first) {
        std::vector<std::int32_t> where;
        for (std::size_t i = 0; i < the_words.size(); ++i) where.push_back(first + static_cast<std::int32_t>(i));
        ggml_backend_tensor_set(words, the_words.data(), 0, ggml_nbytes(words));
        ggml_backend_tensor_set(positions, where.data(), 0, ggml_nbytes(positions));
    }
    std::vector<float> result() const {
        std::vector<float> all(static_cast<std::size_t>(ggml_nelements(logits)));
        ggml_backend_tensor_get(logits, all.data(), 0, ggml_nbytes(logits));
        return all;
    }
};

const std::vector<std::int32_t> prompt{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9};

} // namespace

TEST_CASE("the code of the page: attend as an operation, and ggml's attention over the same cells, agree") {
    const Model model;
    Processor processor{2};
    ggml_backend_t const cpu = processor.backend();
    const int tokens = static_cast<int>(prompt.size());
    std::vector<float> of_attend;
    {
        // [memory]
        using Memory =
            cellar::Cache<cellar::Blocked<cellar::half>, cellar::FullCausal, cellar::RopeShift<cellar::Neox>>;
        Memory memory{{.layers = layers, .kv_heads = kv_heads, .head_dim = dim},
                      {.sequences = 8, .cells = 4096, .batch = 512},
                      cellar::FullCausal{},
                      cellar::RopeShift<cellar::Neox>{cellar::rope_frequencies(dim)}};
        cellar::ggml::Attention<cellar::PassOf<Memory>> attention{memory.layers()};
        // [/memory]
        Step step{tokens};
        // [graph]
        ggml_context* const c = step.context.get();
        ggml_tensor* x = model.embed(c, step.words);
        for (int layer = 0; layer < layers; ++layer) {
            const auto [q, k, v] = model.project(c, x, step.positions, layer); // [dim, heads, tokens], rotated
            ggml_tensor* const attended = attention.attend(c, layer, q, k, v); // [dim, heads, tokens]
            x = model.feed_forward(c, x, ggml_reshape_2d(c, attended, width, tokens), layer);
        }
        step.finish(model.classify(c, x)); // expands and allocates the graph
        // [/graph]
        // [step]
        const Sequence alice{0};
        auto pass = memory.begin(BatchBuilder{alice, memory.next(alice), tokens});
        if (!pass) return;   // refused, for example Reason::full: nothing has changed
        step.set(prompt, 0); // token ids and positions, before every computation
        if (attention.compute(*pass, cpu, step.graph) == GGML_STATUS_SUCCESS) pass->commit();
        // [/step]
        CHECK(memory.next(alice) == cellar::Position{tokens});
        of_attend = step.result();
    }
    // [flash]
    using Memory = cellar::Cache<cellar::StandardV<cellar::half>, cellar::FullCausal, cellar::RopeShift<cellar::Neox>>;
    Memory memory{{.layers = layers, .kv_heads = kv_heads, .head_dim = dim},
                  {.sequences = 8, .cells = 4096, .batch = 512, .padding = 256, .start_padding = 0},
                  cellar::FullCausal{},
                  cellar::RopeShift<cellar::Neox>{cellar::rope_frequencies(dim)}};
    const cellar::ggml::Tensors tensors{memory}; // of all layers, without a copy

    auto pass = memory.begin(BatchBuilder{cellar::Sequence{0}, memory.next(cellar::Sequence{0}), tokens}).value();
    Step step{tokens};
    ggml_context* const c = step.context.get();
    const cellar::ggml::PassInputs inputs{c, pass}; // cells and mask
    ggml_tensor* x = model.embed(c, step.words);
    for (int layer = 0; layer < layers; ++layer) {
        const auto [q, k, v] = model.project(c, x, step.positions, layer);
        x = model.feed_forward(c, x, inputs.attend(c, step.graph, tensors, layer, q, k, v), layer);
    }
    step.finish(model.classify(c, x));

    step.set(prompt, 0);
    inputs.set(pass);
    if (ggml_backend_graph_compute(cpu, step.graph) == GGML_STATUS_SUCCESS) {
        tensors.mark_put(pass);
        pass.commit();
    }
    // [/flash]
    const std::vector<float> of_flash = step.result();
    REQUIRE(of_flash.size() == of_attend.size());
    for (std::size_t i = 0; i < of_flash.size(); ++i) CHECK(of_flash[i] == doctest::Approx(of_attend[i]).epsilon(0.02));
    CHECK(std::any_of(of_flash.begin(), of_flash.end(), [](float logit) { return std::abs(logit) > 0.1F; }));
}

} // namespace test_page
