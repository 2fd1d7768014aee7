// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// A decode step in a CUDA graph: the work of `put` is captured once and replayed in every later pass. Needs a Kokkos
// with CUDA.
#include "expect.hpp"
#include <cellar/backend/kokkos.hpp>
#include <cellar/cellar.hpp>

#include <cstdint>
#include <cuda_runtime.h>
#include <span>
#include <vector>

namespace {

constexpr int layers = 3;
constexpr int heads = 2;
constexpr int dim = 64;
constexpr int steps = 20;

using Backend = cellar::KokkosBackend<Kokkos::Cuda>;
using DeviceCache = cellar::Cache<cellar::StandardV<float>, cellar::FullCausal, cellar::DisabledShift, Backend>;
using Rows = Kokkos::View<float***, Kokkos::LayoutRight, Kokkos::CudaSpace>; // [tokens, heads, dim]

void check(cudaError_t error) {
    expect(error == cudaSuccess);
}

// [graph]
/// The work that was enqueued on a stream during `capture`.
class Graph {
public:
    template <class Work>
    void capture(cudaStream_t stream, const Work& work) {
        cudaGraph_t graph = nullptr;
        check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        work();
        check(cudaStreamEndCapture(stream, &graph));
        check(cudaGraphInstantiate(&replayed_, graph, 0));
        check(cudaGraphDestroy(graph));
    }
    bool is_captured() const { return replayed_ != nullptr; }
    void launch(cudaStream_t stream) const { check(cudaGraphLaunch(replayed_, stream)); }

    Graph() = default;
    Graph(const Graph&) = delete;
    Graph& operator=(const Graph&) = delete;
    ~Graph() { cudaGraphExecDestroy(replayed_); }

private:
    cudaGraphExec_t replayed_ = nullptr;
};

/// Runs one token. The graph reads its rows from `rows`.
void decode(DeviceCache& cache, int position, const Rows& rows, Graph& graph) {
    const cellar::Position positions[] = {cellar::Position{position}};
    const cellar::Sequence sequences[] = {cellar::Sequence{0}};
    const cudaStream_t stream = cache.backend().space().cuda_stream();
    auto pass = cache.begin({positions, sequences});
    expect(static_cast<bool>(pass));
    pass->upload_cells(); // not captured, because the cells differ from pass to pass; their address does not
    const auto put = [&] {
        for (int layer = 0; layer < layers; ++layer) pass->put(layer, rows, rows);
    };
    if (position == 0) {
        put(); // a graph cannot capture the first launch of a kernel by Kokkos
    } else {
        if (!graph.is_captured()) graph.capture(stream, put);
        graph.launch(stream);
        for (int layer = 0; layer < layers; ++layer) pass->mark_put(layer); // the graph wrote them
    }
    pass->commit();
}
// [/graph]

/// Copies the keys of a layer to the host.
std::vector<float> keys_of(DeviceCache& cache, int layer) {
    const auto pass = cache.reserve(1);
    const auto keys = pass.keys(layer);
    std::vector<float> host(static_cast<std::size_t>(keys.size()));
    check(cudaMemcpy(host.data(), keys.data_handle(), host.size() * sizeof(float), cudaMemcpyDeviceToHost));
    return host;
}

void run(const Kokkos::Cuda& space) {
    const cellar::CacheLimits limits{.sequences = 1, .capacity = steps, .batch = 4};
    DeviceCache cache{
        cellar::CacheShape{.layers = layers, .kv_heads = heads, .head_dim = dim}, limits, {}, {}, Backend{space}};
    cache.reserve(limits.batch).drop(); // after this, no address changes
    const Rows rows{"rows", 1, heads, dim};
    Graph graph;
    for (int step = 0; step < steps; ++step) {
        Kokkos::deep_copy(space, rows, static_cast<float>(step + 1)); // the model's part
        decode(cache, step, rows, graph);
    }
    cache.fence();
    expect(graph.is_captured());
    for (int layer = 0; layer < layers; ++layer) {
        const auto keys = keys_of(cache, layer);
        for (int step = 0; step < steps; ++step)
            for (int i = 0; i < heads * dim; ++i)
                expect(keys[static_cast<std::size_t>(step * heads * dim + i)] == static_cast<float>(step + 1));
    }
}

} // namespace

int main() {
    const Kokkos::ScopeGuard kokkos;
    cudaStream_t stream = nullptr; // the default stream cannot be captured
    check(cudaStreamCreate(&stream));
    run(Kokkos::Cuda{stream});
    check(cudaStreamDestroy(stream));
}
