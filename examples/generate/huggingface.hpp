// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "config.hpp"
#include "safetensors.hpp"
#include "weights.hpp"

namespace llama {

/// Reads the shape of the model from the metadata.
Config read_config(const Safetensors& file);

/// Reads the model. The tensors have the names of Hugging Face's Llama and RecurrentGemma.
Weights read_weights(const Safetensors& file);

} // namespace llama
