// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Without room for checkpoints none is made: the answer has to be looked at.
// error: nodiscard
#include <cellar/cellar.hpp>

struct Sum : cellar::StateTensor<1> {};

void keep(cellar::RecurrentMemory<cellar::States<Sum>>& memory) {
#ifdef CORRECTED
    if (!memory.checkpoint(cellar::Sequence{0})) return;
#else
    memory.checkpoint(cellar::Sequence{0});
#endif
}
