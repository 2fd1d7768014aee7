// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "choices.hpp"

#include "cached.hpp"
#include "hybrid.hpp"
#include <cellar/cellar.hpp>

#include <stdexcept>

namespace llama {

namespace {

template <class Layout, class Shift>
std::unique_ptr<TextMemory> make(const Config& config, const Shift& shift, int capacity, int batch, int rollback) {
    using KnownPattern = HybridMemory<Layout, Shift>;
    if (KnownPattern::fits(config)) return std::make_unique<KnownPattern>(config, shift, capacity, batch, rollback);
    return std::make_unique<CachedMemory<Layout, Shift>>(config, shift, capacity, batch, rollback);
}

template <class Element, class Pairing>
std::unique_ptr<TextMemory> make(const Config& config, const std::string& layout, int capacity, int batch,
                                 int rollback) {
    using Shift = cellar::RopeShift<Pairing>;
    const Shift shift{cellar::rope_frequencies(config.head_dim, config.rope_theta)};
    if (layout == "standard") {
        return make<cellar::StandardV<Element>>(config, shift, capacity, batch, rollback);
    }
    if (layout == "permuted") {
        return make<cellar::PermutedV<Element>>(config, shift, capacity, batch, rollback);
    }
    throw std::runtime_error{"layout '" + layout + "', expected 'standard' or 'permuted'"};
}

} // namespace

std::unique_ptr<TextMemory> make_memory(const Config& config, const std::string& layout, const std::string& element,
                                        int capacity, int batch, int rollback) {
    using cellar::Interleaved, cellar::Neox;
    if (config.rope_pairing == Pairing::interleaved) {
        if (element == "float") return make<float, Interleaved>(config, layout, capacity, batch, rollback);
        throw std::runtime_error{"a cache of '" + element + "' for interleaved rotations, expected 'float'"};
    }
    if (element == "float") return make<float, Neox>(config, layout, capacity, batch, rollback);
    if (element == "half") return make<cellar::half, Neox>(config, layout, capacity, batch, rollback);
    if (element == "bf16") return make<cellar::bf16, Neox>(config, layout, capacity, batch, rollback);
    throw std::runtime_error{"a cache of '" + element + "', expected 'float', 'half' or 'bf16'"};
}

} // namespace llama
