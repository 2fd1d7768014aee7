// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// error: put
#include <cellar/cellar.hpp>

#include <vector>

void run(cellar::EncoderMemory<>& memory, const std::vector<float>& rows) {
#ifdef CORRECTED
    auto pass = memory.write(cellar::Sequence{0}, cellar::Position{0}, 1);
#else
    auto pass = memory.begin({});
#endif
    pass->put(0, rows, rows);
}
