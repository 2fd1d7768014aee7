// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// error: the memory has no state tensor of that name
#include <cellar/cellar.hpp>

struct Conv : cellar::StateTensor<2> {};
struct Ssm : cellar::StateTensor<3> {};

#ifdef CORRECTED
using Named = Conv;
#else
using Named = Ssm;
#endif

using Memory = cellar::RecurrentMemory<cellar::States<Conv>>;

auto view(const Memory& memory, cellar::StateHandle handle) {
    return memory.view<Named>(0, handle);
}
