// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// error: put: this cache has no keys and values (its backend is NoData)
#include <cellar/cellar.hpp>

#include <vector>

using namespace cellar;

#ifdef CORRECTED
using Backend = HostBackend;
#else
using Backend = NoData;
#endif

void f(CachePass<Cache<StandardV<float>, FullCausal, DisabledShift, Backend>>& pass, const std::vector<float>& rows) {
    pass.put(0, rows, rows);
}
