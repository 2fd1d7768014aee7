// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// A node computes what put and attend compute, for every kind of layer.
#include "../../violations.hpp"
#include "processor.hpp"
#include <cellar/attention/attend.hpp>
#include <cellar/cellar.hpp>
#include <cellar/format/blocks.hpp>
#include <cellar/interop/ggml.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iterator>
#include <span>
#include <string>
#include <vector>

namespace test_nodes {

using namespace cellar;
using ggml_test::Processor;

namespace {

constexpr int heads = 4, kv_heads = 2, dim = 32, tokens = 5;
using Floats = std::vector<float>;

Floats wave(int n, int first) {
    Floats floats;
    for (int i = 0; i < n; ++i) floats.push_back(static_cast<float>(std::sin(first + 1.7 * i)));
    return floats;
}
const Floats q = wave(tokens * heads * dim, 1), k = wave(tokens * kv_heads * dim, 2),
             v = wave(tokens * kv_heads * dim, 3);

/// A graph of the nodes that `add` makes, of which it returns the last.
class Graph {
public:
    ggml_context* context() const { return context_.get(); }
    ggml_cgraph* get() const { return graph_; }
    ggml_backend_t backend() const { return processor_.backend(); }

    /// An input [dim, heads, tokens].
    ggml_tensor* input(const Floats& data) {
        const std::int64_t n = std::ssize(data) / (dim * tokens);
        ggml_tensor* const tensor = ggml_new_tensor_3d(context(), GGML_TYPE_F32, dim, n, tokens);
        add_input(tensor, data);
        return tensor;
    }
    void add_input(ggml_tensor* tensor, const Floats& data) {
        ggml_set_input(tensor);
        inputs_.push_back({tensor, &data});
    }

    /// Calls compute(), which computes the graph, with the inputs set.
    Floats compute(ggml_tensor* result, const std::function<ggml_status()>& compute) {
        ggml_set_output(result);
        ggml_build_forward_expand(graph_, result);
        const ggml_gallocr_ptr memory{ggml_gallocr_new(ggml_backend_cpu_buffer_type())};
        ggml_gallocr_alloc_graph(memory.get(), graph_);
        for (const auto& [tensor, data] : inputs_)
            if (tensor->data != nullptr) ggml_backend_tensor_set(tensor, data->data(), 0, ggml_nbytes(tensor));
        const ggml_status status = compute();
        CHECK(status == GGML_STATUS_SUCCESS);
        Floats found(static_cast<std::size_t>(ggml_nelements(result)));
        ggml_backend_tensor_get(result, found.data(), 0, ggml_nbytes(result));
        return found;
    }
    template <class Attention, class Pass>
    Floats compute(Attention& attention, Pass& pass, ggml_tensor* result) {
        return compute(result, [&] { return attention.compute(pass, backend(), graph_); });
    }

private:
    struct Input {
        ggml_tensor* tensor;
        const Floats* data;
    };

    ggml_context_ptr context_{ggml_init({64 * ggml_tensor_overhead() + ggml_graph_overhead(), nullptr, true})};
    ggml_cgraph* graph_ = ggml_new_graph(context_.get());
    std::vector<Input> inputs_;
    Processor processor_{2};
};

template <class Pass>
Floats attended(Pass& pass, int layer, const AttentionOptions& options = {}) {
    Floats out(q.size());
    attend(pass, layer, q, out, options);
    return out;
}

using Text = Cache<StandardV<half>>;
using Images = EncoderMemory<StandardV<half>>;
constexpr CacheLimits limits{.cells = 64, .batch = 16};

} // namespace

TEST_CASE("a node has the options of its layer and the tree of the pass, and a layer that shares memory reads it") {
    const Floats slopes{0.5F, 0.25F, 0.125F, 0.0625F}, sinks{1, 0, -1, 0.5F};
    const AttentionOptions options{.scale = 0.5F, .soft_cap = 2, .slopes = slopes, .sinks = sinks};
    const BatchBuilder batch = BatchBuilder{Sequence{0}, Position{0}, 3}.add_child(1).add_child(2);
    const CacheShape shape{.each_layer = {{kv_heads, dim, dim}, {kv_heads, dim, dim, 0}}};
    Text cache{shape, limits};
    cellar::ggml::Attention<PassOf<Text>> attention{2};
    attention.set_options(0, options);
    Graph graph;
    ggml_tensor* const of_0 = attention.attend(graph.context(), 0, graph.input(q), graph.input(k), graph.input(v));
    CHECK(of_0->ne[0] == dim);
    CHECK(of_0->ne[1] == heads);
    CHECK(of_0->ne[2] == tokens);
    ggml_tensor* const of_1 = attention.attend(graph.context(), 1, graph.input(q), nullptr, dim);
    ggml_tensor* const both = ggml_concat(graph.context(), of_0, of_1, 2);
    auto pass = cache.begin(batch).value();
    const Floats found = graph.compute(attention, pass, both);
    pass.drop();

    auto again = cache.begin(batch).value();
    again.put(0, k, v);
    Floats expected = attended(again, 0, options);
    const Floats of_shared = attended(again, 1);
    expected.insert(expected.end(), of_shared.begin(), of_shared.end());
    CHECK(found == expected);
    CHECK(attention.times().put > 0);
    CHECK(attention.times().attend > 0);
}

TEST_CASE("a layer of a hybrid reads an encoder's inputs, and takes no keys") {
    Hybrid<RunTimePattern, Text, Images> memory{{0, 1, no_memory},
                                                Text{{.layers = 1, .kv_heads = kv_heads, .head_dim = dim}, limits},
                                                Images{{.layers = 1, .kv_heads = kv_heads, .head_dim = dim}, limits}};
    {
        auto written = memory.template member<Images>().write(Sequence{0}, Position{1}, tokens).value();
        written.put(0, k, v);
        written.commit();
    }
    cellar::ggml::Attention<PassOf<decltype(memory)>> attention{3};
    const auto compute = [&](int layer, bool gives_keys) {
        Graph graph;
        ggml_context* const c = graph.context();
        ggml_tensor* const node = gives_keys
                                      ? attention.attend(c, layer, graph.input(q), graph.input(k), graph.input(v))
                                      : attention.attend(c, layer, graph.input(q), nullptr, dim);
        auto pass = memory.begin(BatchBuilder{Sequence{0}, Position{0}, tokens}).value();
        return graph.compute(attention, pass, node);
    };
    const Floats found = compute(1, false);
    auto pass = memory.begin(BatchBuilder{Sequence{0}, Position{0}, tokens}).value();
    CHECK(found == attended(pass.template of<Images>(), 0));
    CHECK(found[0] == 0); // the token before the input sees nothing
    CHECK(found[heads * dim] != 0);
    pass.drop();
    CHECK(violation_of([&] { compute(1, true); })
          == "attend: layer 1 only reads an encoder's inputs, expected no keys");
    CHECK(violation_of([&] { compute(2, false); })
          == "attend: layer 2 has no keys and values, expected one of attention");
    CHECK(compute(1, false) == found); // the next computation knows nothing of that
}

TEST_CASE("ggml's attention over the same cells agrees, with its options, shared layers and an encoder's inputs") {
    const Floats sinks{1, 0, -1, 0.5F};
    Text cache{CacheShape{.each_layer = {{kv_heads, dim, dim}, {kv_heads, dim, dim, 0}}}, limits};
    const auto agree = [](const Floats& found, const Floats& expected) {
        REQUIRE(found.size() == expected.size());
        for (std::size_t i = 0; i < found.size(); ++i) CHECK(std::abs(found[i] - expected[i]) < 2e-3F); // in halves
    };
    const auto flash = [](auto& memory, auto& pass, int layer, const Floats* own_sinks, bool gives_keys) {
        Graph graph;
        ggml_context* const c = graph.context();
        const cellar::ggml::Tensors tensors{memory};
        const cellar::ggml::PassInputs inputs{c, pass};
        cellar::ggml::FlashOptions options;
        if (own_sinks != nullptr) {
            options = {.scale = 0.5F, .soft_cap = 2, .sinks = ggml_new_tensor_1d(c, GGML_TYPE_F32, heads)};
            graph.add_input(options.sinks, *own_sinks);
        }
        ggml_tensor* const result =
            inputs.attend(c, graph.get(), tensors, layer, graph.input(q), gives_keys ? graph.input(k) : nullptr,
                          gives_keys ? graph.input(v) : nullptr, options);
        return graph.compute(result, [&] {
            inputs.set(pass);
            return ggml_backend_graph_compute(graph.backend(), graph.get());
        });
    };
    {
        auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, tokens}).value();
        const Floats of_0 = flash(cache, pass, 0, &sinks, true);
        const Floats of_1 = flash(cache, pass, 1, nullptr, false);
        pass.mark_put(0);
        agree(of_0, attended(pass, 0, {.scale = 0.5F, .soft_cap = 2, .sinks = sinks}));
        agree(of_1, attended(pass, 1));
    }
    Images images{{.layers = 1, .kv_heads = kv_heads, .head_dim = dim}, limits};
    {
        auto written = images.write(Sequence{0}, Position{0}, tokens).value();
        written.put(0, k, v);
        written.commit();
    }
    auto pass = images.begin(BatchBuilder{Sequence{0}, Position{0}, tokens}).value();
    agree(flash(images, pass, 0, nullptr, false), attended(pass, 0));
}

TEST_CASE("wrong arguments are violations, before there is a node") {
    cellar::ggml::Attention<PassOf<Text>> attention{2};
    Graph graph;
    ggml_context* const c = graph.context();
    ggml_tensor* const f32 = graph.input(q);
    ggml_tensor* const f16 = ggml_cast(c, f32, GGML_TYPE_F16);
    ggml_set_name(f16, "halves");
    CHECK(violation_of([&] { attention.attend(c, 2, f32, f32, f32); }) == "attend: layer 2, expected 0 to 1");
    CHECK(violation_of([&] { attention.attend(c, 0, f32, f32, f16); })
          == "attend: the tensor 'halves' is of type f16, expected f32");
    CHECK(violation_of([&] { attention.attend(c, 0, f32, nullptr, nullptr); })
          == "attend: no keys or no values, expected both, or the value_dim of the results");
    CHECK(violation_of([&] { attention.attend(c, 0, nullptr, nullptr, dim); })
          == "attend: null queries in layer 0, expected a tensor");
    Floats sums(tokens * heads);
    CHECK(violation_of([&] { attention.set_options(0, {.log_sum_exp = contiguous_view(sums.data(), tokens, heads)}); })
          == "set_options: a log_sum_exp, expected options of a layer alone");
    CHECK(violation_of([] { const cellar::ggml::Attention<PassOf<Text>> none{0}; })
          == "Attention: 0 layers, expected at least 1");
}

TEST_CASE_TEMPLATE("ggml writes the same units as put, and its attention reads them", Layout, StandardV<q8_0>,
                   StandardV<q8_0, q4_0>, StandardV<q5_1, q5_0>, StandardV<iq4_nl, q4_1>, StandardV<half, q8_0>) {
    using Memory = Cache<Layout>;
    const CacheShape shape{.layers = 1, .kv_heads = kv_heads, .head_dim = dim};
    Memory written{shape, {.cells = 256, .batch = 16, .padding = 256}};
    Memory put{shape, {.cells = 256, .batch = 16, .padding = 256}};
    const auto start = [](Memory& memory) {
        return memory.begin(BatchBuilder{Sequence{0}, Position{0}, tokens}).value();
    };
    auto pass = start(written);
    Graph graph;
    ggml_context* const c = graph.context();
    const cellar::ggml::Tensors tensors{written};
    const cellar::ggml::PassInputs inputs{c, pass};
    ggml_tensor* const result =
        inputs.attend(c, graph.get(), tensors, 0, graph.input(q), graph.input(k), graph.input(v));
    const Floats found = graph.compute(result, [&] {
        inputs.set(pass);
        return ggml_backend_graph_compute(graph.backend(), graph.get());
    });
    pass.mark_put(0);
    auto expected = start(put);
    expected.put(0, k, v);
    const auto same = [&](const auto& a, const auto& b) { // the rows of the tokens
        const auto bytes = static_cast<std::size_t>(tokens * a.stride(0)) * sizeof(*a.pointer);
        return std::memcmp(a.pointer, b.pointer, bytes) == 0;
    };
    CHECK(same(written.rows(0).keys, put.rows(0).keys));
    CHECK(same(written.rows(0).values, put.rows(0).values));
    const Floats attention = attended(expected, 0);
    for (std::size_t i = 0; i < found.size(); ++i)
        CHECK(std::abs(found[i] - attention[i]) < 2e-2F); // both round queries
}

TEST_CASE("a cache lies in tensors of a type with blocks") {
    const ggml_context_ptr context{ggml_init({1 << 20, nullptr, false})};
    ggml_tensor* const keys = ggml_new_tensor_2d(context.get(), GGML_TYPE_Q8_0, kv_heads * dim, 16);
    ggml_tensor* const values = ggml_new_tensor_2d(context.get(), GGML_TYPE_Q4_0, kv_heads * dim, 16);
    using Memory = Cache<StandardV<q8_0, q4_0>>;
    const std::vector<LayerMemory> memory{cellar::ggml::layer_memory<q8_0, q4_0>(*keys, values)};
    Memory cache{{.layers = 1, .kv_heads = kv_heads, .head_dim = dim}, {.cells = 16, .batch = 8}, memory};
    auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, tokens}).value();
    pass.put(0, k, v);
    std::vector<float> first(kv_heads * dim);
    ggml_get_type_traits(GGML_TYPE_Q8_0)->to_float(keys->data, first.data(), kv_heads * dim);
    for (int i = 0; i < kv_heads * dim; ++i)
        CHECK(std::abs(first[static_cast<std::size_t>(i)] - k[static_cast<std::size_t>(i)]) < 5e-3F);
    CHECK(violation_of([&] { (void)cellar::ggml::layer_memory<q4_0>(*keys, values); })
          == "layer_memory: the tensor '' is of type q8_0, expected q4_0");
}

} // namespace test_nodes
