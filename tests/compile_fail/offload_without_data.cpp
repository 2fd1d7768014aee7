// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// error: offload: this cache has no keys and values (its backend is NoData)
#include <cellar/cellar.hpp>

using namespace cellar;

#ifdef CORRECTED
using Backend = HostBackend;
#else
using Backend = NoData;
#endif

void f(Cache<StandardV<float>, FullCausal, DisabledShift, Backend>& cache, CellSnapshot& snapshot) {
    cache.offload(snapshot);
}
