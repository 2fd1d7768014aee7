// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "engine/attend_memory.hpp"
#include <cellar/format/blocks.hpp>
#include <cellar/format/rotated.hpp>

namespace engine {

constinit const MemoryType attend_iq4_nl =
    memory_type<AttendMemory<HybridOf<cellar::Blocked<cellar::Rotated<cellar::Hadamard<64>, cellar::iq4_nl>>>>>(
        Way::attend, "iq4_nl");

} // namespace engine
