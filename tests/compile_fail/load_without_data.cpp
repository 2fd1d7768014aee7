// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// error: load: this cache has no keys and values (its backend is NoData)
#include <cellar/cellar.hpp>
#include <cellar/files/snapshot_file.hpp>

using namespace cellar;

#ifdef CORRECTED
using Backend = HostBackend;
#else
using Backend = NoData;
#endif

bool f(Hybrid<Repeat<Cache<StandardV<float>, FullCausal, DisabledShift, Backend>>,
              Cache<StandardV<float>, FullCausal, DisabledShift, Backend>>& memory) {
    return load("snapshot.safetensors", memory).has_value();
}
