// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// error: two members have the same type
#include <cellar/cellar.hpp>

using Wide = cellar::Cache<>;
#ifdef CORRECTED
struct Narrow : cellar::Cache<> {
    using cellar::Cache<>::Cache;
};
#else
using Narrow = cellar::Cache<>;
#endif
using Memory = cellar::Hybrid<cellar::Repeat<Wide, Narrow>, Wide, Narrow>;

static_assert(Memory::place(1).member == 1);
