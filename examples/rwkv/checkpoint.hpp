// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "generate/file.hpp"
#include "weights.hpp"

namespace rwkv {

/// Reads an RWKV-7 model in float from a file of rwkv.cpp (https://github.com/RWKV/rwkv.cpp). Throws
/// `llama::FileError`.
Weights read_checkpoint(const llama::File& file);

} // namespace rwkv
