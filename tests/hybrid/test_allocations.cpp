// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "allocation_count.hpp"
#include "skip.hpp"
#include "toy.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace test_hybrid_allocations {

using namespace cellar;
using namespace toy;

namespace {

using Inputs = EncoderMemory<>;
using WithInputs = Hybrid<toy::Pattern, Sliding, Full, Recurrent, Inputs>;

constexpr std::int32_t sequences = 8;

/// A layer's work that allocates nothing itself.
struct QuietWork {
    const std::vector<float>& rows;

    template <class Pass>
    void operator()(Pass& pass, int layer) const {
        if constexpr (requires { pass.micro_batches(); }) {
            for (const MicroBatch& micro_batch : pass.micro_batches()) {
                pass.template get<Hash>(layer, micro_batch)(0, 0) += 1;
                pass.put(layer, micro_batch);
            }
        } else if constexpr (!std::is_same_v<Pass, NoMemory>) {
            pass.put(layer, rows, rows);
        }
    }
};

} // namespace

TEST_CASE("allocations: decode steps and one-token rollbacks of a hybrid make none") {
    if (!installed) CELLAR_SKIP("allocations are counted with glibc or the address sanitizer only");
    WithInputs memory{
        toy::layers,
        Sliding{{.layers = 4, .kv_heads = 1, .head_dim = 1}, {.sequences = sequences, .capacity = 1000, .batch = 16}},
        Full{{.layers = 2, .kv_heads = 1, .head_dim = 1}, {.sequences = sequences, .capacity = 500, .batch = 16}},
        Recurrent{{1, {{1}}}, {.sequences = sequences, .batch = 16, .rollback = 2}},
        Inputs{{.layers = 1, .kv_heads = 1, .head_dim = 1}, {.sequences = sequences, .capacity = 8, .batch = 16}}};
    {
        auto pass = memory.reserve(16);
        pass.of<Full>().mask();
        pass.of<Sliding>().mask();
        pass.of<Inputs>().mask();
    }
    const std::vector<float> rows(sequences, 1.0F);
    std::vector<Position> positions(sequences);
    std::vector<Sequence> all;
    for (std::int32_t s = 0; s < sequences; ++s) all.push_back(Sequence{s});

    std::int64_t seen = 0;
    allocations = 0;
    for (int step = 0; step < 300; ++step) {
        counting = step > 20;
        if (step % 50 == 0) {
            auto written = memory.member<Inputs>().write(Sequence{step / 50}, positions[0], 8);
            written->put(0, rows, rows);
            written->commit();
        }
        auto pass = memory.begin({positions, all});
        for (int layer = 0; layer < toy::layers; ++layer) pass->visit(layer, QuietWork{rows});
        seen += pass->of<Inputs>().mask().size();
        if (step % 3 == 0) {
            pass->drop();
        } else {
            pass->commit();
            for (Position& p : positions) p = p + 1;
        }
        if (step % 7 == 6 && memory.can_resume(Sequence{0}, positions[0] - 1)) {
            for (const Sequence s : all) seen += memory.remove(s, positions[0] - 1, to_end).has_value() ? 1 : 0;
            for (Position& p : positions) p = memory.resumable_prefix(Sequence{0}, p);
        }
        counting = false;
    }
    CHECK(seen > 0);
    CHECK(positions[0].value > 100);
    CHECK(allocations == 0);
}

} // namespace test_hybrid_allocations
