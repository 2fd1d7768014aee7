// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// error: lists: the host cannot read the memory of this backend, and the backend writes no lists
#include <cellar/cellar.hpp>

using namespace cellar;

#ifdef CORRECTED
using Backend = HostBackend;
#else
struct Backend : HostBackend {
    static constexpr bool host_reaches = false;
};
#endif

int main() {
    Cache<StandardV<float>, FullCausal, DisabledShift, Backend> cache{{.layers = 1, .kv_heads = 1, .head_dim = 1},
                                                                      {.capacity = 4}};
    auto pass = cache.reserve(1);
    return pass.lists().rows();
}
