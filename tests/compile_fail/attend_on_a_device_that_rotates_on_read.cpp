// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// error: attend: a device does not rotate keys as it reads them (RotateOnRead)
#include <cellar/attention/attend.hpp>
#include <cellar/cellar.hpp>

#include <vector>

using namespace cellar;

struct Device : HostBackend {
    void begin_attention(const AttentionLists&) {}
    template <class Work>
    void attend(const Work&) {}
};

#ifdef CORRECTED
using Shift = RopeShift<>;
#else
using Shift = RotateOnRead<>;
#endif

void f(CachePass<Cache<StandardV<float>, FullCausal, Shift, Device>>& pass, const std::vector<float>& q) {
    std::vector<float> out(q.size());
    attend(pass, 0, q, out);
}
