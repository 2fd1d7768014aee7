// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// error: the pattern names a memory that is not among the members
#include <cellar/cellar.hpp>

using Sliding = cellar::Cache<cellar::StandardV<float>, cellar::SlidingWindow<8>>;
using Full = cellar::Cache<>;

#ifdef CORRECTED
using Memory = cellar::Hybrid<cellar::Repeat<Sliding, Full>, Sliding, Full>;
#else
using Memory = cellar::Hybrid<cellar::Repeat<Sliding, Full>, Full>;
#endif

static_assert(Memory::place(1).layer == 0);
