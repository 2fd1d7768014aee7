// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "text_pool.hpp"

#include <vector>

namespace llama {

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
