// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The value of a temporary result is destroyed at the end of the statement.
// error: cannot bind
#include <cellar/cellar.hpp>

std::int32_t tokens(cellar::Cache<>& cache, const cellar::Batch& batch) {
#ifdef CORRECTED
    auto pass = cache.begin(batch).value();
#else
    auto& pass = cache.begin(batch).value();
#endif
    return pass.tokens();
}
