// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A copied pass could be committed twice.
// error: deleted
#include <cellar/cellar.hpp>

void twice(cellar::Cache<>& cache) {
    auto pass = cache.reserve(1);
#ifdef CORRECTED
    auto other = static_cast<decltype(pass)&&>(pass);
#else
    auto other = pass;
#endif
    other.commit();
}
