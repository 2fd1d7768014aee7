// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// error: attend_residual: expected backends of the host, or in both memories one of a device that merges attention
#include <cellar/attention/attend_residual.hpp>
#include <cellar/cellar.hpp>

#include <vector>

using namespace cellar;

struct Device : HostBackend {
    void begin_attention(const AttentionLists&) {}
    template <class Work>
    void attend(const Work&) {}
};

#ifdef CORRECTED
using Backend = HostBackend;
#else
using Backend = Device;
#endif
using Coarse = Cache<StandardV<half>, FullCausal, DisabledShift, Backend>;
using Exact = Cache<StandardV<float>, SlidingWindow<>, DisabledShift, Backend>;

void f(CachePass<Coarse>& pass, CachePass<Exact>& exact, const std::vector<float>& q) {
    std::vector<float> out(q.size());
    attend_residual(pass, exact, 0, q, out);
}
