// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <string>

namespace engine {

/// Writes the same model with all weights as floats: ggml multiplies them by what they are multiplied by as it is, where
/// weights of fewer bits have it rounded to 8. Throws `FileError`.
void widen(const std::string& from, const std::string& to);

} // namespace engine
