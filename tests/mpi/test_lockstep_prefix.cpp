// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "violations.hpp"
#include <cellar/cellar.hpp>
#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/lockstep_memory.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mpi.h>
#include <random>
#include <span>
#include <vector>

namespace test_lockstep_prefix {

using namespace cellar;

namespace {

using Keys = Cache<StandardV<float>>;

Keys keys() {
    return {{.layers = 1, .kv_heads = 1, .head_dim = 2}, {.sequences = 2, .cells = 128, .batch = 32}};
}

/// Feeds a request: what the tree finds, and the rest in a pass. Returns what was found.
template <class Tree>
int feed(Tree& tree, Sequence s, std::span<const std::int32_t> text) {
    auto& memory = tree.memory();
    if (!memory.remove(s, Position{0}, to_end)) return -1;
    const int found = static_cast<int>(tree.attach(s, text.first(text.size() - 1)).value().length);
    auto pass = tree.begin(BatchBuilder{s, memory.next(s), static_cast<std::int32_t>(text.size()) - found});
    if (!pass) return -2;
    pass->mark_put(0);
    pass->commit();
    return tree.insert(s, text) ? found : -3;
}

} // namespace

TEST_CASE("a prefix tree over a memory in lockstep finds what one of a single process finds") {
    mpi::Communicator comm{MPI_COMM_WORLD};
    mpi::LockstepMemory divided{comm, keys()};
    Keys whole = keys();
    PrefixTree of_divided{divided, {.offloaded_bytes = 4000, .offload_to = OffloadTo::backend}};
    PrefixTree of_whole{whole, {.offloaded_bytes = 4000}};
    std::mt19937 draw{20261123};
    int found = 0;
    for (int i = 0; i < 200; ++i) {
        std::vector<std::int32_t> text(4 + draw() % 20);
        for (std::size_t p = 0; p < text.size(); ++p) text[p] = static_cast<std::int32_t>(p % 4 == 0 ? draw() % 2 : p);
        const Sequence s{static_cast<std::int32_t>(draw() % 2)};
        const int here = feed(of_whole, s, text);
        REQUIRE(feed(of_divided, s, text) == here);
        found += std::max(here, 0);
    }
    CHECK(found > 500);
    CHECK(of_divided.statistics().offloaded == of_whole.statistics().offloaded);
    CHECK(divided.compare());
}

TEST_CASE("a prefix tree over a memory in lockstep finds tokens that share a position") {
    mpi::Communicator comm{MPI_COMM_WORLD};
    mpi::LockstepMemory divided{comm, keys()};
    PrefixTree tree{divided};
    auto pass = divided.begin(BatchBuilder{Sequence{0}, Position{0}, 3}.add_at(Sequence{0}, Position{3}, 4)).value();
    pass.mark_put(0);
    pass.commit();
    CHECK(tree.insert(Sequence{0}, std::vector{1, 2, 3, 4}).error() == Reason::shared_position);
}

} // namespace test_lockstep_prefix
