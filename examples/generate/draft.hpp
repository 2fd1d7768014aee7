// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <span>
#include <vector>

namespace llama {

/// A guess of up to `count` tokens that go on from `text`: what followed when it last said what it ends with, as many
/// tokens of that as can be found (at least 3, at most 12). Empty where it never did, within the last 4096 tokens.
/// (Prompt look-up decoding: https://github.com/apoorvumang/prompt-lookup-decoding)
std::vector<int> draft(std::span<const int> text, int count);

} // namespace llama
