// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The class of a program that hides its cache.
#include "attention.hpp"

#include <doctest/doctest.h>

#include <vector>

namespace test_attention {

TEST_CASE("a class of the program's own has a cache that its header does not name") {
    Attention attention{2, 1, 4};
    const std::vector<float> rows{1, 0, 0, 0};
    CHECK(attention.step(rows) == 2);
    CHECK(attention.step(rows) == 4);
}

} // namespace test_attention
