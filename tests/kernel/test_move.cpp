// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cellar/kernel/move.hpp>
#include <cellar/layout/layout.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

using cellar::CellsHeadsDims;
using cellar::HeadsDimsCells;

TEST_CASE_TEMPLATE("a run is moved as memmove moves it, each element by itself", Mapping, CellsHeadsDims,
                   HeadsDimsCells) {
    const Mapping mapping{20, 2, 3};
    for (const cellar::Move run : {cellar::Move{12, 1, 5}, {3, 2, 16}, {2, 3, 16}, {4, 4, 4}, {9, 1, 0}}) {
        std::vector<float> memory(static_cast<std::size_t>(mapping.required_size()));
        const auto at = [&](int cell, int head, int d) -> float& {
            return memory[static_cast<std::size_t>(mapping(cell, head, d))];
        };
        for (int cell = 0; cell < 20; ++cell)
            for (int head = 0; head < 2; ++head)
                for (int d = 0; d < 3; ++d) at(cell, head, d) = static_cast<float>(100 * cell + 10 * head + d);

        const cellar::kernel::Move<Mapping, float> kernel{mapping, memory.data(), run};
        for (int head = 0; head < 2; ++head)
            for (int d = 0; d < 3; ++d) kernel(head, d);

        bool right = true;
        for (int cell = 0; cell < 20; ++cell) {
            const bool moved = cell >= run.to && cell < run.to + run.count;
            const int source = moved ? cell - run.to + run.from : cell;
            for (int head = 0; head < 2; ++head)
                for (int d = 0; d < 3; ++d)
                    right = right && at(cell, head, d) == static_cast<float>(100 * source + 10 * head + d);
        }
        CHECK(right);
    }
}
