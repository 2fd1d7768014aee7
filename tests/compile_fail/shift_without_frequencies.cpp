// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A RopeShift that knows no frequencies would turn keys by nothing.
// error: RopeShift
#include <cellar/shift/rope_shift.hpp>

#ifdef CORRECTED
cellar::RopeShift<> shift{{1.0}};
#else
cellar::RopeShift<> shift;
#endif
