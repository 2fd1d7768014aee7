// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "memories.hpp"

#include "llama/choices.hpp"

std::unique_ptr<llama::TextMemory> neox_memory(const llama::Config& config, const std::string& layout,
                                               const std::string& element, int capacity, int batch) {
    return llama::make_memory<cellar::Neox>(config, layout, element, capacity, batch);
}

std::unique_ptr<llama::TextMemory> interleaved_memory(const llama::Config& config, const std::string& layout,
                                                      int capacity, int batch) {
    return llama::make_memory<float, cellar::Interleaved>(config, layout, capacity, batch);
}
