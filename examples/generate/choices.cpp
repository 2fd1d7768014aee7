// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "choices.hpp"

#include "choosing.hpp"
#include "layer_work.hpp"
#include <cellar/cellar.hpp>

#include <stdexcept>

namespace llama {

std::unique_ptr<TextMemory> make_memory(const Config& config, const std::string& layout, const std::string& element,
                                        int capacity, int batch, int rollback) {
    if (config.rope_pairing == Pairing::neox) {
        return choose_element<LayerWork>(config, layout, element, capacity, batch, rollback);
    }
    if (element != "float") {
        throw std::runtime_error{"a cache of '" + element + "' for interleaved rotations, expected 'float'"};
    }
    return choose_layout<LayerWork, float, cellar::Interleaved>(config, layout, capacity, batch, rollback);
}

} // namespace llama
