// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Positions and sequences are both numbers, and must not be confused.
// error: Position
// error: Sequence
#include <cellar/base/ids.hpp>

void drop(cellar::Sequence);

void call(cellar::Position p) {
#ifdef CORRECTED
    drop(cellar::Sequence{p.value});
#else
    drop(p);
#endif
}
