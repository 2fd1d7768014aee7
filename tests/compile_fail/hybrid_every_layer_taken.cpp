// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// If every layer has the first memory, no layer is left for the second.
// error: Every: N is at least 2
#include <cellar/cellar.hpp>

using Full = cellar::Cache<>;
using Window = cellar::Cache<cellar::StandardV<float>, cellar::SlidingWindow<4>>;
#ifdef CORRECTED
using Pattern = cellar::Every<2, Full, Window>;
#else
using Pattern = cellar::Every<1, Full, Window>;
#endif

using Memory = cellar::Hybrid<Pattern, Window, Full>;
static_assert(Memory::place(1).layer >= 0);
