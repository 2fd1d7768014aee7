// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// error: NoMemory
#include <cellar/cellar.hpp>

using Full = cellar::Cache<>;
using Memory = cellar::Hybrid<cellar::Repeat<Full, cellar::NoMemory>, Full>;

struct Work {
    void operator()(cellar::PassOf<Full>&, int) const {}
#ifdef CORRECTED
    void operator()(cellar::NoMemory&, int) const {}
#endif
};

void run(cellar::PassOf<Memory>& pass) {
    pass.visit(0, Work{});
}
