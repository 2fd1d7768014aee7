// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// error: the hybrid has no such member
#include <cellar/cellar.hpp>

using Full = cellar::Cache<>;
using Memory = cellar::Hybrid<cellar::Repeat<Full>, Full, cellar::EncoderMemory<>>;

auto cells(Memory& memory) {
    auto pass = memory.reserve(1);
#ifdef CORRECTED
    return pass.of<cellar::EncoderMemory<>>().history();
#else
    return pass.of<cellar::EncoderMemory<cellar::StandardV<cellar::half>>>().history();
#endif
}
