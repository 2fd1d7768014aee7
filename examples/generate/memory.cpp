// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "memory.hpp"

#include "cellar_memory.hpp"
#include "host_compute.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace llama {

std::unique_ptr<TextMemory> make_memory(const Config& config, const TextLimits& limits, const CacheFormat& format) {
    const std::vector<std::string> in_units = formats_in_units();
    if (std::find(in_units.begin(), in_units.end(), format.element) != in_units.end())
        return make_memory_in_units(config, limits, format);
    return make_cellar_memory<HostCompute>(config, limits, format);
}

} // namespace llama
