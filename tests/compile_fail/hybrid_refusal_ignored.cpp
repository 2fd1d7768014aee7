// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// error: nodiscard
#include <cellar/cellar.hpp>

void fork(cellar::Hybrid<cellar::Repeat<cellar::Cache<>>, cellar::Cache<>>& memory) {
#ifdef CORRECTED
    if (!memory.copy_prefix(cellar::Sequence{0}, cellar::Sequence{1}, cellar::Position{5})) return;
#else
    memory.copy_prefix(cellar::Sequence{0}, cellar::Sequence{1}, cellar::Position{5});
#endif
}
