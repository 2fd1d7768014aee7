// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "cellar_memory.hpp"
#include "memory.hpp"
#include "views_compute.hpp"

namespace llama {

std::unique_ptr<TextMemory> make_memory_over_views(const Config& config, const TextLimits& limits,
                                                   const CacheFormat& format) {
    return make_cellar_memory<ViewsCompute>(config, limits, format);
}

} // namespace llama
