// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// error: nodiscard
#include <cellar/cellar.hpp>

void fork(cellar::Hybrid<cellar::Repeat<cellar::Cache<>>, cellar::Cache<>>& memory) {
#ifdef CORRECTED
    if (!memory.copy_prefix({0}, {1}, 5)) return;
#else
    memory.copy_prefix({0}, {1}, 5);
#endif
}
