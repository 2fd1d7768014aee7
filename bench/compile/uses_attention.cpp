// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a translation unit costs that uses a cache through the program's own class.
#include "../../tests/docs/attention.hpp"

float run(const std::vector<float>& rows) {
    Attention attention{32, 8, 128};
    return attention.step(rows);
}
