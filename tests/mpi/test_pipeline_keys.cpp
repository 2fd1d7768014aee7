// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What stages do to keys, beside one process that does the same.
#include "ranks.hpp"
#include <cellar/cellar.hpp>
#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/pipeline_stage.hpp>
#include <cellar/mpi/shares.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <mpi.h>
#include <vector>

namespace test_pipeline_keys {

using namespace cellar;
using mpi::Share;

namespace {

using Rotating = Cache<StandardV<float>, FullCausal, RopeShift<>>;

constexpr Sequence alice{0};
constexpr Sequence bob{1};
constexpr std::int32_t tokens = 12;
constexpr int heads = 2;
constexpr int dim = 4;

template <class Pass>
void fill(Pass& pass, Share part) {
    for (int layer = 0; layer < part.count; ++layer) {
        std::vector<float> rows(std::size_t{tokens} * heads * dim);
        for (std::size_t i = 0; i < rows.size(); ++i)
            rows[i] = std::sin(static_cast<float>(part.first + layer) + static_cast<float>(i));
        pass.put(layer, rows, rows);
    }
}

template <class Memory>
void remove_some(Memory& memory) {
    CHECK(memory.remove(alice, Position{2}, Position{4}, RotateBy{3}));
    CHECK(memory.copy_prefix(alice, bob, Position{8}));
    CHECK(memory.remove(bob, Position{1}, Position{2}, RotateBy{0})); // keys stay as they are
    CHECK(memory.remove(alice, Position{0}, Position{3}, RotateBy{1}));
}

} // namespace

TEST_CASE("keys are rotated back by as many positions as the first stage says, in every stage") {
    const mpi::Communicator comm{MPI_COMM_WORLD};
    const CacheShape model{.layers = 5, .kv_heads = heads, .head_dim = dim};
    const auto make = [](const CacheShape& shape) {
        return Rotating{shape, {.sequences = 2, .capacity = 32, .batch = 16}, {}, RopeShift<>{rope_frequencies(dim)}};
    };
    const Share part = mpi::layers_of(comm.rank(), comm.size(), model.layers);
    mpi::PipelineStage stage{comm, make(mpi::shape_of_layers(model, part))};
    if (stage.is_first()) {
        auto pass = stage.begin(BatchBuilder{alice, Position{0}, tokens}).value();
        fill(pass.local(), part);
        pass.commit();
        remove_some(stage);
        stage.end();
    } else {
        while (auto pass = stage.begin_received()) {
            fill(pass->local(), part);
            pass->commit();
        }
    }

    Rotating alone = make(model);
    auto pass = alone.begin(BatchBuilder{alice, Position{0}, tokens}).value();
    fill(pass, {0, model.layers});
    pass.commit();
    remove_some(alone);
    for (const Sequence s : {alice, bob}) {
        CHECK(stage.next(s) == Position{7});
        for (int layer = 0; layer < part.count; ++layer) {
            const auto found = ranks::keys_of(stage.memory(), stage.memory().reserve(1), layer, s);
            CHECK(found.size() == 7);
            CHECK(found == ranks::keys_of(alone, alone.reserve(1), part.first + layer, s));
        }
    }
}

} // namespace test_pipeline_keys
