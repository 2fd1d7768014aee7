// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Attention whose heads are divided over ranks, gathered, and compared with one process.
#include <cellar/attention/attend.hpp>
#include <cellar/cellar.hpp>
#include <cellar/mpi/broadcast.hpp>
#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/lockstep_memory.hpp>
#include <cellar/mpi/shares.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <mpi.h>
#include <vector>

namespace test_tensor_parallel {

using namespace cellar;
using mpi::Communicator;
using mpi::HeadShare;
using mpi::LockstepMemory;
using mpi::Share;

namespace {

using Keys = Cache<StandardV<half>, SlidingWindow<24>, RopeShift<>>;
constexpr int dim = 16;
constexpr int layers = 2;

Keys cache(const CacheShape& shape) {
    return {shape,
            {.sequences = 2, .capacity = 80, .batch = 32},
            SlidingWindow<24>{{.retention = 40}},
            RopeShift<>{rope_frequencies(dim)}};
}

/// What the model computes for a token, head and element: the same on every rank.
float element(int kind, Position p, Sequence s, int layer, int head, int d) {
    const int mixed = (kind * 31 + p.value * 17 + s.value * 13 + layer * 11 + head * 7 + d * 5) % 97;
    return static_cast<float>(mixed) / 97.0F - 0.5F;
}
std::vector<float> rows(int kind, const Batch& batch, int layer, Share heads) {
    std::vector<float> all;
    for (std::size_t i = 0; i < batch.positions.size(); ++i)
        for (int head = heads.first; head < heads.end(); ++head)
            for (int d = 0; d < dim; ++d)
                all.push_back(element(kind, batch.positions[i], batch.sequences[i], layer, head, d));
    return all;
}

/// One pass; the attention of all layers, [layer, token, query heads of the share, dim].
template <class M>
std::vector<float> attended(M& memory, const Batch& batch, const HeadShare& own) {
    std::vector<float> all;
    auto pass = *memory.begin(batch);
    for (int layer = 0; layer < layers; ++layer) {
        pass.put(layer, rows(0, batch, layer, own.kv), rows(1, batch, layer, own.kv));
        const std::vector<float> queries = rows(2, batch, layer, own.query);
        std::vector<float> out(queries.size());
        attend(pass, layer, queries, out);
        all.insert(all.end(), out.begin(), out.end());
    }
    pass.commit();
    return all;
}

/// The results of all ranks' query heads in one order, [layer, token, head, dim].
std::vector<float> gathered(const Communicator& comm, const std::vector<float>& own, int tokens, int kv, int query) {
    std::vector<float> all;
    for (int row = 0; row < layers * tokens; ++row)
        for (int rank = 0; rank < comm.size(); ++rank) {
            const int n = mpi::heads_of(rank, comm.size(), kv, query).query.count * dim;
            std::vector<float> part(static_cast<std::size_t>(n));
            if (rank == comm.rank()) part.assign(own.begin() + row * n, own.begin() + (row + 1) * n);
            MPI_Bcast(part.data(), n, MPI_FLOAT, rank, comm.handle());
            all.insert(all.end(), part.begin(), part.end());
        }
    return all;
}

void compare(int kv_heads, int query_heads) {
    CAPTURE(kv_heads);
    Communicator comm{MPI_COMM_WORLD};
    const CacheShape model{.layers = layers, .kv_heads = kv_heads, .head_dim = dim};
    Keys whole = cache(model);
    LockstepMemory divided{comm, cache(mpi::shape_of_heads(model, comm.rank(), comm.size()))};
    const HeadShare own = mpi::heads_of(comm.rank(), comm.size(), kv_heads, query_heads);
    mpi::SharedBatch shared{8};
    const auto step = [&](const BatchBuilder& tokens) {
        if (comm.rank() == 0) shared.assign(tokens);
        REQUIRE(mpi::broadcast(comm, shared, 0));
        const std::vector<float> expected = attended(whole, tokens, {{0, kv_heads}, {0, query_heads}, {}});
        const std::vector<float> found =
            gathered(comm, attended(divided, shared, own), shared.tokens(), kv_heads, query_heads);
        REQUIRE(found.size() == expected.size());
        float most = 0;
        for (std::size_t i = 0; i < found.size(); ++i) most = std::max(most, std::abs(found[i] - expected[i]));
        CHECK(most < 1e-6F);
    };
    step({Sequence{0}, Position{0}, 20});
    step(BatchBuilder{Sequence{1}, Position{0}, 5}.add(Sequence{0}, Position{20}, 12));
    for (int i = 0; i < 4; ++i) step(BatchBuilder{Sequence{0}, Position{32 + i}}.add(Sequence{1}, Position{5 + i}));
    const auto both = [&](auto operation) { REQUIRE((operation(whole) && operation(divided))); };
    both([](auto& m) { return m.copy_prefix(Sequence{0}, Sequence{1}, Position{30}).has_value(); });
    both([](auto& m) { return m.remove(Sequence{0}, Position{25}, Position{28}).has_value(); });
    for (int i = 0; i < 3; ++i) step(BatchBuilder{Sequence{0}, Position{33 + i}}.add(Sequence{1}, Position{30 + i}));
    CHECK(divided.compare());
}

} // namespace

TEST_CASE("attention with heads divided over ranks equals that of one process") {
    compare(4, 8);
    compare(5, 5); // uneven
    compare(1, 6); // fewer heads of keys than ranks
    compare(2, 10);
}

} // namespace test_tensor_parallel
