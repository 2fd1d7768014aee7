// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "cellar_memory.hpp"
#include "host_compute.hpp"
#include "memory.hpp"
#include <cellar/format/blocks.hpp>
#include <cellar/format/int8.hpp>

#include <stdexcept>
#include <string>

namespace llama {

std::vector<std::string> formats_in_units() {
    return {"q8_0", "q8_0,q4_0", "q4_0", "int8_per_head"};
}

std::unique_ptr<TextMemory> make_memory_in_units(const Config& config, const TextLimits& limits,
                                                 const CacheFormat& format) {
    const auto make = [&]<class Layout>(Layout) -> std::unique_ptr<TextMemory> {
        using Shift = cellar::RopeShift<cellar::RunTimePairing>;
        constexpr int of_keys = cellar::detail::values_per_unit<typename Layout::key_format>;
        constexpr int of_values = cellar::detail::values_per_unit<typename Layout::value_format>;
        if (config.head_dim % of_keys != 0 || config.head_dim % of_values != 0)
            throw std::runtime_error{"the heads have " + std::to_string(config.head_dim) + " elements, but a cache in '"
                                     + format.element + "' takes a multiple of " + std::to_string(of_keys)};
        return std::make_unique<CellarMemory<Layout, Shift, HostCompute>>(config, limits);
    };
    if (format.layout != "standard")
        throw std::runtime_error{"layout '" + format.layout + "', expected 'standard' for '" + format.element + "'"};
    if (format.element == "q8_0") return make(cellar::StandardV<cellar::q8_0>{});
    if (format.element == "q8_0,q4_0") return make(cellar::StandardV<cellar::q8_0, cellar::q4_0>{});
    if (format.element == "q4_0") return make(cellar::StandardV<cellar::q4_0>{});
    return make(cellar::StandardV<cellar::int8_per_head>{});
}

} // namespace llama
