// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// error: every member of a hybrid satisfies TwoPhaseMemory
#include <cellar/cellar.hpp>

using Full = cellar::Cache<>;
#ifdef CORRECTED
using Memory = cellar::Hybrid<cellar::Repeat<Full>, Full>;
#else
using Memory = cellar::Hybrid<cellar::Repeat<Full>, Full, cellar::NoMemory>;
#endif

static_assert(sizeof(Memory) > 0);
