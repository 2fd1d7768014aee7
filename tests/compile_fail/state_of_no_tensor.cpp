// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// error: state_tensor
#include <cellar/cellar.hpp>

#ifdef CORRECTED
struct Conv : cellar::StateTensor<2> {};
#else
struct Conv {};
#endif

using Memory = cellar::RecurrentState<cellar::States<Conv>>;
