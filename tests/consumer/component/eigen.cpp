// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cellar/backend/eigen.hpp>
#include <cellar/cellar.hpp>

int main() {
    using Cache =
        cellar::Cache<cellar::StandardV<float>, cellar::FullCausal, cellar::DisabledShift, cellar::EigenBackend>;
    const Cache cache{cellar::CacheShape{1, 1, 2, 2}, {.sequences = 1, .capacity = 8, .batch = 4}};
    return cache.cells() == 8 ? 0 : 1;
}
