// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "memory.hpp"

#include "memory_types.hpp"

#include <stdexcept>

namespace engine {

namespace {

const MemoryType* const types[] = {ENGINE_MEMORIES};

const MemoryType& type_of(const MemoryOptions& options) {
    const bool residual = options.residual > 0;
    std::string names;
    for (const MemoryType* const type : types) {
        if (type->way != options.way || type->residual != residual) continue;
        if (type->format == options.format) return *type;
        names += (names.empty() ? "'" : ", '") + std::string{type->format} + "'";
    }
    const std::string with = residual ? " with a residual" : "";
    if (residual && options.way == Way::flash)
        throw std::runtime_error{"ggml's attention takes keys and values from one cache, expected the attention "
                                 "'attend'"
                                 + with};
    if (names.empty()) names = "none, because CELLAR_ENGINE_MEMORIES left them out";
    const std::string of_way = options.way == Way::flash ? " of ggml's attention" : "";
    throw std::runtime_error{"the format of keys and values" + with + of_way + " is '" + options.format
                             + "', expected one of " + names};
}

/// The same, if the format takes the model's heads.
const MemoryType& type_for(const Shape& shape, const MemoryOptions& options) {
    const MemoryType& type = type_of(options);
    const int part = options.format == "iq4_nl" ? 64 : options.format.starts_with("q") ? 32 : 1;
    for (const LayerDescription& layer : shape.memory.layers)
        for (const int dim : {layer.shape.key_dim, layer.shape.value_dim})
            if (dim % part != 0)
                throw std::runtime_error{"the format '" + options.format + "' takes heads of a multiple of "
                                         + std::to_string(part) + " values, but they have " + std::to_string(dim)};
    return type;
}

} // namespace

std::unique_ptr<Memory> make_memory(const Shape& shape, const MemoryOptions& options) {
    return type_for(shape, options).make(shape, options);
}

std::int64_t memory_bytes(const Shape& shape, const MemoryOptions& options) {
    return type_for(shape, options).bytes(shape, options);
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
