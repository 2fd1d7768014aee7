// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "memory.hpp"

#include <memory>

// Each is compiled in a file of its own.

namespace engine {

std::unique_ptr<Memory> attend_memory_half(const Shape& shape, const MemoryOptions& options);
std::unique_ptr<Memory> attend_memory_float(const Shape& shape, const MemoryOptions& options);
std::unique_ptr<Memory> flash_memory_half(const Shape& shape, const MemoryOptions& options);
std::unique_ptr<Memory> flash_memory_float(const Shape& shape, const MemoryOptions& options);

} // namespace engine
