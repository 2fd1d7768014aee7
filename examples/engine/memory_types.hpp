// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "memory.hpp"

#include <cstdint>
#include <memory>

namespace engine {

/// A memory for one way and one format of keys and values, with a residual or without one.
struct MemoryType {
    Way way;
    const char* format;
    bool residual; ///< the newest tokens are in half
    std::unique_ptr<Memory> (*make)(const Shape& shape, const MemoryOptions& options);
    std::int64_t (*bytes)(const Shape& shape, const MemoryOptions& options);
    std::int32_t (*largest_cells)(const Shape& shape, MemoryOptions options, std::int64_t bytes);
};

// Each is compiled in a file of its own, because that takes a minute or two. A new one needs such a file, and a place in
// the list of examples/CMakeLists.txt. A build may have some of them only.
extern const MemoryType attend_half;
extern const MemoryType attend_float;
extern const MemoryType attend_q8_0;
extern const MemoryType attend_q8_0_q4_0; // keys, values
extern const MemoryType attend_iq4_nl;    // rotated
extern const MemoryType attend_iq4_nl_residual;
extern const MemoryType flash_half;
extern const MemoryType flash_float;
extern const MemoryType flash_q8_0;
extern const MemoryType flash_q8_0_q4_0;

} // namespace engine
