// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "memory.hpp"

#include "memories.hpp"

#include <algorithm>
#include <stdexcept>

namespace engine {

std::unique_ptr<Memory> make_memory(const Shape& shape, const MemoryOptions& options) {
    const bool flash = options.way == Way::flash;
    if (options.element == "half") return (flash ? flash_memory_half : attend_memory_half)(shape, options);
    if (options.element == "float") return (flash ? flash_memory_float : attend_memory_float)(shape, options);
    throw std::runtime_error{"element type '" + options.element + "', expected 'half' or 'float'"};
}

std::int64_t bytes_of_token(const Shape& shape, const std::string& element) {
    const std::int64_t bytes = element == "float" ? 4 : 2;
    const int layers = shape.count(LayerKind::full) + shape.count(LayerKind::sliding);
    return 2 * bytes * layers * shape.kv_heads * shape.head_dim;
}

int cells_for_bytes(const Shape& shape, const MemoryOptions& options, std::int64_t bytes) {
    constexpr std::int64_t block = 64;
    const int with_keys = shape.count(LayerKind::full) + shape.count(LayerKind::sliding);
    const std::int64_t of_layer = bytes_of_token(shape, options.element) / with_keys;
    std::int64_t left = bytes;
    if (options.way == Way::attend) { // windows take the same whatever the budget is
        const llama::PoolLimits& limits = options.limits;
        const std::int64_t windows =
            std::int64_t{limits.texts + limits.snapshots} * (shape.window + 1) + limits.batch + block;
        left -= shape.count(LayerKind::sliding) * of_layer * windows;
    }
    const int layers = options.way == Way::attend ? shape.count(LayerKind::full) : with_keys;
    const std::int64_t cells = left / (layers * of_layer) / block * block;
    if (cells < options.limits.batch)
        throw std::runtime_error{std::to_string(bytes) + " bytes are too few for the memory, expected at least "
                                 + std::to_string(bytes - left + layers * of_layer * (options.limits.batch + block))};
    return static_cast<int>(std::min<std::int64_t>(cells, 1 << 30));
}

} // namespace engine
