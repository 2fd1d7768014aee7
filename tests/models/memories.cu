// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The memory of every model in a CUDA program. Compiled and never run.
#include <cellar/models/models.hpp>

namespace {

template <class... Models>
void make_all(cellar::models::ModelList<Models...>) {
    (static_cast<void>(Models::make(cellar::models::MemoryLimits{.attention = {.capacity = 8}})), ...);
}

} // namespace

void make_memories() {
    make_all(cellar::models::All{});
    static_cast<void>(cellar::models::Qwen3_8B::make<cellar::models::LayerKind::full>({.capacity = 8}));
    static_cast<void>(cellar::models::Mamba2_2_7B::make_recurrent({.sequences = 2}));
}
