// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "engine/flash_memory.hpp"
#include <cellar/format/blocks.hpp>

namespace engine {

constinit const MemoryType flash_q8_0_q4_0 =
    memory_type<FlashMemory<cellar::q8_0, cellar::q4_0>>(Way::flash, "q8_0,q4_0");

} // namespace engine
