// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "engine/flash_memory.hpp"

namespace engine {

constinit const MemoryType flash_half = memory_type<FlashMemory<cellar::half>>(Way::flash, "half");

} // namespace engine
