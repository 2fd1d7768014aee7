// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "memory.hpp"

#include "memory_types.hpp"

#include <algorithm>
#include <stdexcept>

namespace engine {

namespace {

const MemoryType* const types[] = {&attend_half, &attend_float, &attend_q8_0, &attend_q8_0_q4_0,
                                   &flash_half,  &flash_float,  &flash_q8_0,  &flash_q8_0_q4_0};

const MemoryType& type_of(const MemoryOptions& options) {
    for (const MemoryType* const type : types)
        if (type->way == options.way && type->format == options.format) return *type;
    std::string names;
    for (const std::string& name : formats()) names += (names.empty() ? "'" : ", '") + name + "'";
    throw std::runtime_error{"the format of keys and values is '" + options.format + "', expected one of " + names};
}

} // namespace

std::vector<std::string> formats() {
    std::vector<std::string> names;
    for (const MemoryType* const type : types)
        if (std::find(names.begin(), names.end(), type->format) == names.end()) names.emplace_back(type->format);
    return names;
}

std::unique_ptr<Memory> make_memory(const Shape& shape, const MemoryOptions& options) {
    return type_of(options).make(shape, options);
}

std::int64_t memory_bytes(const Shape& shape, const MemoryOptions& options) {
    return type_of(options).bytes(shape, options);
}

int cells_for_bytes(const Shape& shape, MemoryOptions options, std::int64_t bytes) {
    options.limits.cells = options.limits.batch;
    if (const std::int64_t least = memory_bytes(shape, options); bytes < least)
        throw std::runtime_error{std::to_string(bytes) + " bytes are too few for the memory, expected at least "
                                 + std::to_string(least) + " with batches of " + std::to_string(options.limits.batch)
                                 + " tokens"};
    return type_of(options).largest_cells(shape, options, bytes);
}

} // namespace engine
