// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A state cannot be truncated, so a copy may be refused.
// error: nodiscard
#include <cellar/cellar.hpp>

struct Conv : cellar::StateTensor<2> {};

bool share(cellar::RecurrentMemory<cellar::States<Conv>>& memory) {
#ifdef CORRECTED
    return memory.copy_prefix(cellar::Sequence{0}, cellar::Sequence{1}, cellar::Position{4}).has_value();
#else
    memory.copy_prefix(cellar::Sequence{0}, cellar::Sequence{1}, cellar::Position{4});
    return true;
#endif
}
