// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "text_pool.hpp"

#include "cellar_pool.hpp"

#include <memory>
#include <stdexcept>
#include <string>

namespace llama {

std::unique_ptr<TextPool> make_pool(const Config& config, const PoolLimits& limits, const std::string& element) {
    if (element == "float") return std::make_unique<CellarPool<cellar::StandardV<float>>>(config, limits);
    if (element == "half") return std::make_unique<CellarPool<cellar::StandardV<cellar::half>>>(config, limits);
    throw std::runtime_error{"element type '" + element + "', expected 'float' or 'half'"};
}

} // namespace llama
