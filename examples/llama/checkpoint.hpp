// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "file.hpp"
#include "weights.hpp"

namespace llama {

/// The model in a llama2.c checkpoint.
Weights read_checkpoint(const File& file);

} // namespace llama
