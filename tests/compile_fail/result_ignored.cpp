// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A refusal must not be ignored.
// error: nodiscard
#include <cellar/base/result.hpp>

cellar::Result<void> remove();

void forget() {
#ifdef CORRECTED
    if (!remove()) return;
#else
    remove();
#endif
}
