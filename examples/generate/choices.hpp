// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "config.hpp"
#include "memory.hpp"

#include <memory>
#include <string>

namespace llama {

/// A memory for a model, its types chosen at run time: the values' layout ("standard" or "permuted") and the elements
/// ("float", "half" or "bf16"; a model whose rotations are interleaved takes "float" only). Throws where it knows none.
/// The last `rollback` tokens can be removed at any time.
std::unique_ptr<TextMemory> make_memory(const Config& config, const std::string& layout, const std::string& element,
                                        int capacity, int batch, int rollback = 0);

} // namespace llama
