// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "generate/file.hpp"
#include "generate/weights.hpp"

namespace llama {

/// The model in a llama2.c checkpoint.
Weights read_checkpoint(const File& file);

} // namespace llama
