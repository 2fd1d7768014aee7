// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// error: this backend does not store keys or values in a format of the layout
#include "../formats.hpp"
#include <cellar/cellar.hpp>

using namespace cellar;

#ifdef CORRECTED
using Backend = HostBackend;
#else
// Stores elements alone.
struct Backend : HostBackend {
    template <Element E>
    using Buffer = HostBackend::Buffer<E>;
};
#endif

void make() {
    Cache<StandardV<cellar_test::BlocksOf32>, FullCausal, UnrotatedShift, Backend> cache{
        {.layers = 1, .kv_heads = 1, .head_dim = 32}, {.capacity = 4}};
}
