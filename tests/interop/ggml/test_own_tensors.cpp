// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The code of docs/how-to/bring-your-own-memory.md for tensors of ggml.
#include "processor.hpp"
#include <cellar/cellar.hpp>
#include <cellar/interop/ggml.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace test_own_tensors {

using cellar::BatchBuilder;
using cellar::Position;
using cellar::Sequence;

TEST_CASE("a cache in tensors of ggml: what it stores, a graph over these tensors reads") {
    constexpr int layers = 2;
    constexpr int kv_heads = 2;
    constexpr int dim = 16;
    constexpr int cells = 256;
    // [tensors]
    const ggml_context_ptr context{ggml_init({2 * layers * ggml_tensor_overhead(), nullptr, true})};
    std::vector<ggml_tensor*> tensors; // the keys and the values of each layer
    for (int i = 0; i < 2 * layers; ++i)
        tensors.push_back(ggml_new_tensor_2d(context.get(), GGML_TYPE_F16, kv_heads * dim, cells));
    const ggml_backend_buffer_ptr buffer{
        ggml_backend_alloc_ctx_tensors_from_buft(context.get(), ggml_backend_cpu_buffer_type())};

    std::vector<cellar::LayerMemory> memory;
    for (std::size_t i = 0; i < tensors.size(); i += 2)
        memory.push_back(cellar::ggml::layer_memory<cellar::half>(*tensors[i], tensors[i + 1]));

    using Cache = cellar::Cache<cellar::StandardV<cellar::half>, cellar::FullCausal, cellar::RopeShift<cellar::Neox>>;
    Cache cache{{.layers = layers, .kv_heads = kv_heads, .head_dim = dim},
                {.sequences = 2, .cells = cells, .batch = 64},
                memory,
                cellar::FullCausal{},
                cellar::RopeShift<cellar::Neox>{cellar::rope_frequencies(dim)}};
    // [/tensors]
    constexpr int row = kv_heads * dim;
    const Sequence s{0};
    auto pass = cache.begin(BatchBuilder{s, Position{0}, 3}).value();
    std::vector<float> rows;
    for (int i = 0; i < 3 * row; ++i) rows.push_back(static_cast<float>(i));
    for (int layer = 0; layer < layers; ++layer) pass.put(layer, rows, rows);
    const std::vector<cellar::Cell> where(pass.cells().begin(), pass.cells().end());
    pass.commit();
    REQUIRE(cache.remove(s, Position{0}, Position{1})); // keys are rotated; values stay

    const ggml_test::Processor processor{1};
    const ggml_context_ptr c{ggml_init({8 * ggml_tensor_overhead() + ggml_graph_overhead(), nullptr, true})};
    ggml_tensor* const indices = ggml_new_tensor_1d(c.get(), GGML_TYPE_I32, 3);
    ggml_set_input(indices);
    ggml_tensor* const keys = ggml_get_rows(c.get(), tensors[2], indices);
    ggml_tensor* const values = ggml_get_rows(c.get(), tensors[3], indices);
    ggml_cgraph* const graph = ggml_new_graph(c.get());
    for (ggml_tensor* const result : {keys, values}) {
        ggml_set_output(result);
        ggml_build_forward_expand(graph, result);
    }
    const ggml_gallocr_ptr room{ggml_gallocr_new(ggml_backend_cpu_buffer_type())};
    REQUIRE(ggml_gallocr_alloc_graph(room.get(), graph));
    ggml_backend_tensor_set(indices, where.data(), 0, ggml_nbytes(indices));
    REQUIRE(ggml_backend_graph_compute(processor.backend(), graph) == GGML_STATUS_SUCCESS);
    std::vector<float> read(rows.size());
    ggml_backend_tensor_get(values, read.data(), 0, ggml_nbytes(values));
    CHECK(read == rows);
    ggml_backend_tensor_get(keys, read.data(), 0, ggml_nbytes(keys));
    CHECK(std::vector<float>(read.begin(), read.begin() + row) == std::vector<float>(rows.begin(), rows.begin() + row));
    CHECK(read[row] != rows[row]); // the second token is at position 0 now
}

} // namespace test_own_tensors
