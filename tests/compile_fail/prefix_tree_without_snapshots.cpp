// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A prefix tree keeps snapshots of its memory.
// error: has_restore
#include <cellar/cellar.hpp>

#ifdef CORRECTED
using Memory = cellar::Cache<>;
#else
struct Memory : cellar::Cache<> {
    using cellar::Cache<>::Cache;
    void restore() const {}
};
#endif

bool use(Memory& memory) {
    return cellar::PrefixTree<Memory>{memory}.evict();
}
