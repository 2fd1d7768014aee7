// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "engine/attend_memory.hpp"

namespace engine {

constinit const MemoryType attend_float =
    memory_type<AttendMemory<HybridOf<cellar::Blocked<float>>>>(Way::attend, "float");

} // namespace engine
