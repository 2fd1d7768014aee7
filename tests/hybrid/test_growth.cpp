// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// A cache that cannot grow. Only this program can make allocations fail.
#include "failing_allocations.hpp"
#include "toy.hpp"
#include <cellar/cache/audit.hpp>

#include <doctest/doctest.h>

#include <optional>
#include <string>

namespace test_growth {

using namespace cellar;

TEST_CASE("a cache that cannot grow for want of memory is as it was") {
    toy::Full cache{{.layers = 2, .kv_heads = 1, .head_dim = 1},
                    {.sequences = 2, .capacity = 40, .initial_cells = 8, .batch = 8}};
    const toy::Text first = toy::text(0, 0, 8);
    const toy::Text second = toy::text(1, 0, 8, 20);
    const auto compute = [&](const toy::Text& tokens) {
        auto pass = cache.begin(toy::batch_of(tokens));
        REQUIRE(pass);
        for (int layer = 0; layer < cache.layers(); ++layer) pass->visit(layer, toy::Work{tokens});
        pass->commit();
    };
    compute(first);
    const std::string before = toy::member_portrait(cache);
    const int failures = failures_of([&] { static_cast<void>(cache.begin(toy::batch_of(second))); },
                                     [&] {
                                         CHECK(toy::member_portrait(cache) == before);
                                         CHECK(cache.statistics().allocated == 8);
                                     });
    CHECK(failures >= 8);                      // two layers with keys and values, each with rows to copy
    CHECK(cache.statistics().allocated == 72); // another block of 64 cells begins at 64
    compute(second);
    CHECK(audit(cache) == "");
}

} // namespace test_growth
