// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A pointer does not say how long its rows are, so rows that are too short would be read past their end.
// error: put: a pointer does not say how long its rows are
#include <cellar/cellar.hpp>

#include <span>

void put(cellar::PassOf<cellar::Cache<>>& pass, const float* keys, const float* values, std::size_t size) {
#ifdef CORRECTED
    pass.put(0, std::span{keys, size}, std::span{values, size});
#else
    static_cast<void>(size);
    pass.put(0, keys, values);
#endif
}
