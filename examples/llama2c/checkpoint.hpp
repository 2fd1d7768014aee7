// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "generate/file.hpp"
#include "generate/weights.hpp"

namespace llama {

/// Reads the model in a llama2.c checkpoint. Throws `FileError`.
Weights read_checkpoint(const File& file);

} // namespace llama
