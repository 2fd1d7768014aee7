// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "engine/attend_memory.hpp"
#include <cellar/format/blocks.hpp>

namespace engine {

constinit const MemoryType attend_q8_0 =
    memory_type<AttendMemory<HybridOf<cellar::Blocked<cellar::q8_0>>>>(Way::attend, "q8_0");

} // namespace engine
