// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "engine/attend_memory.hpp"

namespace engine {

constinit const MemoryType attend_half =
    memory_type<AttendMemory<HybridOf<cellar::Blocked<cellar::half>>>>(Way::attend, "half");

} // namespace engine
