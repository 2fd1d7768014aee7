// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "memory.hpp"

#include "cellar_memory.hpp"
#include "host_compute.hpp"

namespace llama {

std::unique_ptr<TextMemory> make_memory(const Config& config, const TextLimits& limits, const CacheFormat& format) {
    return make_cellar_memory<HostCompute>(config, limits, format);
}

} // namespace llama
