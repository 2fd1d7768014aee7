// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// error: rows: this cache has no keys and values (its backend is NoData)
#include <cellar/cellar.hpp>

using namespace cellar;

#ifdef CORRECTED
using Backend = HostBackend;
#else
using Backend = NoData;
#endif

std::int64_t f(const Cache<StandardV<float>, FullCausal, DisabledShift, Backend>& cache) {
    return cache.rows(0).keys.extent(0);
}
