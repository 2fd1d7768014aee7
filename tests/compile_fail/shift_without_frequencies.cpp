// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A RopeShift without frequencies would not rotate keys.
// error: give the frequencies: RopeShift<>{rope_frequencies(
#include <cellar/shift/rope_shift.hpp>

#ifdef CORRECTED
cellar::RopeShift<> shift{{1.0}};
#else
cellar::RopeShift<> shift;
#endif
