// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "cached.hpp"
#include "config.hpp"
#include "hybrid.hpp"
#include "memory.hpp"
#include <cellar/cellar.hpp>

#include <memory>
#include <stdexcept>
#include <string>

namespace llama {

// From words to types. `Work<Layout>` is what the layers do with their memories, and where.

/// The memory that suits the order of a model's layers.
template <template <class> class Work, class Layout, class Pairing>
std::unique_ptr<TextMemory> memory_of(const Config& config, int capacity, int batch, int rollback) {
    using Shift = cellar::RopeShift<Pairing>;
    using KnownPattern = HybridMemory<Layout, Shift, Work<Layout>>;
    using AnyPattern = CachedMemory<Layout, Shift, Work<Layout>>;
    const Shift shift{cellar::rope_frequencies(config.head_dim, config.rope_theta)};
    if (KnownPattern::fits(config)) return std::make_unique<KnownPattern>(config, shift, capacity, batch, rollback);
    return std::make_unique<AnyPattern>(config, shift, capacity, batch, rollback);
}

template <template <class> class Work, class Element, class Pairing>
std::unique_ptr<TextMemory> choose_layout(const Config& config, const std::string& layout, int capacity, int batch,
                                          int rollback) {
    if (layout == "standard") {
        return memory_of<Work, cellar::StandardV<Element>, Pairing>(config, capacity, batch, rollback);
    }
    if (layout == "permuted") {
        return memory_of<Work, cellar::PermutedV<Element>, Pairing>(config, capacity, batch, rollback);
    }
    throw std::runtime_error{"layout '" + layout + "', expected 'standard' or 'permuted'"};
}

/// For NeoX's pairs of elements.
template <template <class> class Work>
std::unique_ptr<TextMemory> choose_element(const Config& config, const std::string& layout, const std::string& element,
                                           int capacity, int batch, int rollback) {
    using cellar::Neox;
    if (element == "float") return choose_layout<Work, float, Neox>(config, layout, capacity, batch, rollback);
    if (element == "half") return choose_layout<Work, cellar::half, Neox>(config, layout, capacity, batch, rollback);
    if (element == "bf16") return choose_layout<Work, cellar::bf16, Neox>(config, layout, capacity, batch, rollback);
    throw std::runtime_error{"a cache of '" + element + "', expected 'float', 'half' or 'bf16'"};
}

} // namespace llama
