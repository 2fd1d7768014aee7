// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "shift/archetypes.hpp"
#include <cellar/kernel/turn.hpp>
#include <cellar/layout/layout.hpp>
#include <cellar/shift/rope_shift.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

using cellar::CellsHeadsDims;
using cellar::HeadsDimsCells;
using cellar_test::AddShift;

TEST_CASE_TEMPLATE("one pair of one head of one cell is turned", Mapping, CellsHeadsDims, HeadsDimsCells) {
    const Mapping mapping{5, 2, 4};
    std::vector<cellar::half> memory(static_cast<std::size_t>(mapping.required_size()), cellar::half{1.0f});
    const std::vector<float> factors{10.0f, 20.0f};
    const cellar::kernel::Turn<Mapping, cellar::half, AddShift::Rotation, float> kernel{
        mapping, memory.data(), AddShift{2}.rotation(0), factors.data(), {2}};
    kernel(1, 1, 1);
    for (int cell = 0; cell < 5; ++cell) {
        for (int head = 0; head < 2; ++head) {
            for (int d = 0; d < 4; ++d) {
                const bool turned = cell == 3 && head == 1 && d >= 2;
                const float expected = !turned ? 1.0f : d == 2 ? 21.0f : 41.0f;
                CHECK(static_cast<float>(memory[static_cast<std::size_t>(mapping(cell, head, d))]) == expected);
            }
        }
    }
}

TEST_CASE("a pair is reckoned in float and rounded once") {
    using Shift = cellar::RopeShift<>;
    const CellsHeadsDims mapping{1, 1, 2};
    // 1 - 2^-9 and 2^-9 sum up to 1 in float; rounding on the way to bfloat16 would lose the small one.
    std::vector<cellar::bfloat16> memory{cellar::bfloat16{1.0f}, cellar::bfloat16{0x1p-9f}};
    const Shift::Factor factor{1.0f - 0x1p-9f, -1.0f};
    cellar::kernel::Turn<CellsHeadsDims, cellar::bfloat16, Shift::Rotation, Shift::Factor>{
        mapping, memory.data(), Shift::Rotation{0, 1}, &factor, {0}}(0, 0, 0);
    CHECK(static_cast<float>(memory[0]) == 1.0f);
    CHECK(static_cast<float>(memory[1]) == -1.0f);
}
