// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "memory.hpp"
#include "model.hpp"

#include <cstdint>
#include <ostream>

namespace engine {

struct CompareOptions {
    int prompt = 128; ///< tokens
    int tokens = 64;  ///< that follow, one a step
    std::uint64_t seed = 1;
};

/// Runs the same random tokens through the engine, with both kinds of attention, and through libllama, with and without
/// its flash attention; step by step, by turns. Prints how far logits lie from those of libllama with flash attention,
/// the speeds, and where the engine's time goes.
void compare(const Model& model, const MemoryOptions& options, const CompareOptions& what, std::ostream& out);

} // namespace engine
