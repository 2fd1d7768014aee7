// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// error: WindowPolicy
// error: has_oldest_visible
#include <cellar/cellar.hpp>

#ifdef CORRECTED
using Cache = cellar::Cache<cellar::StandardV<float>, cellar::SlidingWindow<4>, cellar::DisabledShift>;
#else
using Cache = cellar::Cache<cellar::StandardV<float>, cellar::DisabledShift, cellar::SlidingWindow<4>>;
#endif

int bytes(const Cache& cache) {
    return static_cast<int>(cache.bytes());
}
