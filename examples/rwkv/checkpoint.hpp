// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "generate/file.hpp"
#include "weights.hpp"

namespace rwkv {

/// The RWKV-7 model in a file of rwkv.cpp (https://github.com/RWKV/rwkv.cpp), in float. Throws `llama::FileError`.
Weights read_checkpoint(const llama::File& file);

} // namespace rwkv
