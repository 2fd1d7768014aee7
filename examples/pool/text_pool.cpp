// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "text_pool.hpp"

#include "cellar_pool.hpp"

#include <stdexcept>
#include <vector>

namespace llama {

std::unique_ptr<TextPool> make_pool(const Config& config, const PoolLimits& limits, const std::string& element) {
    if (element == "float") return std::make_unique<CellarPool<cellar::StandardV<float>>>(config, limits);
    if (element == "half") return std::make_unique<CellarPool<cellar::StandardV<cellar::half>>>(config, limits);
    throw std::runtime_error{"element type '" + element + "', expected 'float' or 'half'"};
}

const Matrix* run(Llama& model, TextPool& pool, std::span<const NewTokens> batch, cellar::Refusal& refusal) {
    std::vector<int> tokens;
    std::vector<int> last;
    for (const NewTokens& part : batch) {
        tokens.insert(tokens.end(), part.tokens.begin(), part.tokens.end());
        last.push_back(static_cast<int>(tokens.size()) - 1);
    }
    if (const auto begun = pool.begin(batch); !begun) {
        refusal = begun.error();
        return nullptr;
    }
    const Matrix& logits = model.forward(tokens, pool, last);
    pool.commit();
    return &logits;
}

} // namespace llama
