// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attend_memory.hpp"
#include "memories.hpp"

namespace engine {

std::unique_ptr<Memory> attend_memory_half(const Shape& shape, const MemoryOptions& options) {
    return std::make_unique<AttendMemory<cellar::half>>(shape, options);
}

} // namespace engine
