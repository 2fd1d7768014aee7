// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "cached.hpp"
#include "config.hpp"
#include "memory.hpp"
#include <cellar/cellar.hpp>

#include <memory>
#include <string>

namespace llama {

/// A memory whose layout is chosen at run time: "standard" or "permuted". `Pairing` is that of the
/// model, as the library names it.
template <class Element, class Pairing>
std::unique_ptr<TextMemory> make_memory(const Config& config, const std::string& layout, int capacity, int batch) {
    using Shift = cellar::RopeShift<Pairing>;
    const Shift shift{cellar::rope_frequencies(config.head_dim, config.rope_theta)};
    if (layout == "permuted") {
        return std::make_unique<CachedMemory<cellar::PermutedV<Element>, Shift>>(config, shift, capacity, batch);
    }
    return std::make_unique<CachedMemory<cellar::StandardV<Element>, Shift>>(config, shift, capacity, batch);
}

/// The same for an element type that is chosen at run time too: "float", "half" or "bf16".
template <class Pairing>
std::unique_ptr<TextMemory> make_memory(const Config& config, const std::string& layout, const std::string& element,
                                        int capacity, int batch) {
    if (element == "half") return make_memory<cellar::half, Pairing>(config, layout, capacity, batch);
    if (element == "bf16") return make_memory<cellar::bf16, Pairing>(config, layout, capacity, batch);
    return make_memory<float, Pairing>(config, layout, capacity, batch);
}

} // namespace llama
