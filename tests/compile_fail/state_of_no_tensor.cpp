// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// error: StateTag
#include <cellar/cellar.hpp>

#ifdef CORRECTED
struct Conv : cellar::StateTensor<2> {};
#else
struct Conv {};
#endif

using Memory = cellar::RecurrentMemory<cellar::States<Conv>>;
