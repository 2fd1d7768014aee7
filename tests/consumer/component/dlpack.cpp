// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cellar/cellar.hpp>
#include <cellar/interop/dlpack.hpp>

// The keys of a pass become a DLPack tensor.
int main() {
    cellar::Cache<> cache{cellar::CacheShape{.layers = 1, .kv_heads = 2, .head_dim = 4},
                          {.sequences = 1, .capacity = 8, .batch = 1}};
    auto pass = cache.reserve(1);
    const auto tensor = cellar::to_dlpack(pass.keys(0), {kDLCPU, 0});
    return tensor->dl_tensor.ndim == 3 && tensor->dl_tensor.shape[2] == 4 ? 0 : 1;
}
