// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "engine/flash_memory.hpp"

namespace engine {

constinit const MemoryType flash_float = memory_type<FlashMemory<float>>(Way::flash, "float");

} // namespace engine
