// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "flash_memory.hpp"
#include "memories.hpp"

namespace engine {

std::unique_ptr<Memory> flash_memory_float(const Shape& shape, const MemoryOptions& options) {
    return std::make_unique<FlashMemory<float>>(shape, options);
}

} // namespace engine
