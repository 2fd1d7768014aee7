// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "formats.hpp"
#include <cellar/attention/attend.hpp>
#include <cellar/backend/kokkos.hpp>
#include <cellar/cellar.hpp>

#include <Kokkos_Core.hpp>
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <vector>

// Formats of fewer bits on the cores of the host: every operation does what it does without Kokkos.

namespace test_formats {

using namespace cellar;
using cellar_test::BlocksOf32;
using cellar_test::ScaledHeads;

namespace {

constexpr int tokens = 600; // so that threads share the work
constexpr int heads = 2;
constexpr int dim = 64;

std::vector<float> rows(int first, int n, float by) {
    std::vector<float> values;
    for (int i = first * heads * dim; i < (first + n) * heads * dim; ++i)
        values.push_back(std::sin(by * static_cast<float>(i)));
    return values;
}

struct Results {
    std::vector<float> keys, values, attention;
    bool operator==(const Results&) const = default;
};

/// Of a sequence whose cells were copied, rotated and moved.
template <class Layout, class Backend>
Results results() {
    using Memory = Cache<Layout, FullCausal, RopeShift<Neox>, Backend>;
    Memory memory{{.layers = 1, .kv_heads = heads, .head_dim = dim},
                  {.sequences = 2, .capacity = tokens, .batch = tokens},
                  FullCausal{},
                  RopeShift<Neox>{rope_frequencies(dim)}};
    const Sequence s{1};
    const Sequence other{0};
    {
        auto pass = memory.begin(BatchBuilder{other, Position{0}, tokens}).value();
        pass.put(0, rows(0, tokens, 0.1F), rows(0, tokens, 0.2F));
        pass.commit();
    }
    REQUIRE(memory.copy_prefix(other, s, Position{tokens}));
    REQUIRE(memory.remove(s, Position{100}, Position{130})); // copies and rotates
    REQUIRE(memory.remove(other, Position{0}, Position{tokens}));
    memory.defragment();
    auto pass = memory.begin(BatchBuilder{s, memory.next(s), 1}).value();
    pass.put(0, rows(tokens, 1, 0.1F), rows(tokens, 1, 0.2F));
    std::vector<Cell> cells;
    memory.visit_cells(s, [&](Position, Cell cell, std::int32_t n) {
        for (std::int32_t i = 0; i < n; ++i) cells.push_back(cell + i);
    });
    const auto size = cells.size() * std::size_t{heads * dim};
    Results found{std::vector<float>(size), std::vector<float>(size), std::vector<float>(heads * dim)};
    const auto n = static_cast<std::int64_t>(cells.size());
    pass.gather(0, cells, contiguous_view(found.keys.data(), n, heads, dim),
                contiguous_view(found.values.data(), n, heads, dim));
    attend(pass, 0, rows(tokens, 1, 0.3F), found.attention);
    pass.commit();
    memory.fence();
    return found;
}

} // namespace

TEST_CASE_TEMPLATE("formats are stored, moved, rotated and read on cores of the host", Layout, StandardV<BlocksOf32>,
                   StandardV<ScaledHeads, BlocksOf32>, Blocked<ScaledHeads>) {
    using Backend = KokkosBackend<Kokkos::DefaultHostExecutionSpace>;
    static_assert(StoresFormat<Backend, typename Layout::key_format>);
    CHECK(results<Layout, Backend>() == results<Layout, HostBackend>());
}

} // namespace test_formats
