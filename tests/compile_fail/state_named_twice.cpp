// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// error: States: every tensor has its own tag
#include <cellar/cellar.hpp>

struct Conv : cellar::StateTensor<2> {};
struct Ssm : cellar::StateTensor<2> {};

#ifdef CORRECTED
cellar::States<Conv, Ssm> states;
#else
cellar::States<Conv, Conv> states;
#endif
