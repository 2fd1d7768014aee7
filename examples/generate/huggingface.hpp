// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "config.hpp"
#include "safetensors.hpp"
#include "weights.hpp"

namespace llama {

/// The shape of the model in a file, from its metadata.
Config read_config(const Safetensors& file);

/// The model in a safetensors file, with the tensor names of Hugging Face's Llama.
Weights read_weights(const Safetensors& file);

} // namespace llama
