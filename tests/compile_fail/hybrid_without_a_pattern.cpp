// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// error: a pattern is a Repeat, a LayerList or an Every, or WithResidual
#include <cellar/cellar.hpp>

using Full = cellar::Cache<>;
#ifdef CORRECTED
using Memory = cellar::Hybrid<cellar::LayerList<Full>, Full>;
#else
using Memory = cellar::Hybrid<Full, Full>;
#endif

static_assert(Memory::place(0).member == 0);
