// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <span>
#include <vector>

namespace llama {

/// Guesses up to `count` tokens that continue `text`: those that followed the longest earlier occurrence of its last 3
/// to 12 tokens, the latest one if several are equally long. Searches the last 4096 tokens. Empty if there is none.
/// (Prompt lookup decoding: https://github.com/apoorvumang/prompt-lookup-decoding)
std::vector<int> draft(std::span<const int> text, int count);

} // namespace llama
