// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The code of docs/several-processes.md about migration.
#include "cache/numbers.hpp"
#include <cellar/cellar.hpp>
#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/receive.hpp>
#include <cellar/mpi/send.hpp>
#include <cellar/mpi/send_ahead.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <mpi.h>
#include <span>
#include <string>
#include <vector>

namespace test_page {

using namespace cellar;
using numbers::prompt;
using numbers::Values;

TEST_CASE("the page's migration works") {
    using Memory = numbers::Cache<>;
    Memory memory{{.layers = 2, .kv_heads = 1, .head_dim = 2, .value_dim = 1},
                  {.sequences = 2, .capacity = 8, .batch = 8}};
    const Sequence user{1};
    // [communicator]
    mpi::Communicator comm{MPI_COMM_WORLD}; // all ranks, after MPI_Init
    // [/communicator]
    const auto prefill = [&](Memory& m) { numbers::feed(m, prompt(1, 0, {1, 2, 3})); };
    const auto decode = [](Memory& m) {
        REQUIRE(m.remove(Sequence{0}, Position{0}, to_end));
        numbers::feed(m, prompt(0, 0, {7}));
    };
    if (comm.rank() == 0) {
        // [send]
        prefill(memory);
        mpi::Sending sending = mpi::send(comm, 1, memory, user);
        while (!sending.progress()) decode(memory); // other sequences go on
        if (const auto sent = sending.wait(); !sent) FAIL(sent.error().message);
        // [/send]
    } else if (comm.rank() == 1) {
        // [receive]
        auto receiving = mpi::receive(comm, 0, memory, user);
        if (const auto received = receiving.wait(); !received) FAIL(received.error().message);
        // [/receive]
        CHECK(numbers::values(memory, 1) == Values{1, 2, 3});
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

TEST_CASE("the page's prompt leaves layer by layer") {
    using Memory = numbers::Cache<>;
    const CacheShape shape{.layers = 2, .kv_heads = 1, .head_dim = 2, .value_dim = 1};
    Memory memory{shape, {.sequences = 2, .capacity = 8, .batch = 8}};
    const Sequence user{1};
    const mpi::Communicator comm{MPI_COMM_WORLD};
    const BatchBuilder prompt{user, Position{0}, 3};
    const Values keys(6, 1.0F);
    const Values values(3, 1.0F);
    if (comm.rank() == 0) {
        // [ahead]
        auto sending = mpi::send_ahead(comm, 1, memory, user, Position{3});
        auto pass = memory.begin(prompt).value();
        for (int layer = 0; layer < memory.layers(); ++layer) {
            pass.put(layer, keys, values); // and attention
            sending.layer(pass, layer);
        }
        pass.commit();
        if (const auto sent = sending.wait(); !sent) FAIL(sent.error().message);
        // [/ahead]
    } else if (comm.rank() == 1) {
        REQUIRE(mpi::receive(comm, 0, memory, user).wait());
        CHECK(numbers::values(memory, 1) == values);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

TEST_CASE("the page's prefix goes from one tree to another") {
    using Memory = numbers::Cache<>;
    Memory memory{{.layers = 2, .kv_heads = 1, .head_dim = 2, .value_dim = 1},
                  {.sequences = 2, .capacity = 16, .batch = 16}};
    PrefixTree tree{memory};
    const mpi::Communicator comm{MPI_COMM_WORLD};
    const std::vector<std::int32_t> text{1, 2, 3, 4, 5, 6};
    const auto compute = [&](std::size_t n) { // the first tokens of the text
        Values values;
        for (std::size_t i = 0; i < n; ++i) values.push_back(static_cast<float>(text[i]));
        numbers::feed(memory, prompt(0, 0, values));
        REQUIRE(tree.insert(Sequence{0}, std::span{text}.first(n)));
        REQUIRE(memory.remove(Sequence{0}, Position{0}, to_end));
    };
    const Sequence scratch{1}; // has no tokens
    if (comm.rank() == 0) {
        compute(text.size());
        // [send_prefix]
        std::int32_t there = 0; // how many of these tokens the other tree has
        MPI_Recv(&there, 1, MPI_INT32_T, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        static_cast<void>(tree.attach(scratch, text).value());
        auto prefix = memory.snapshot(scratch, Position{there});
        REQUIRE(memory.remove(scratch, Position{0}, to_end));
        if (const auto sent = mpi::send(comm, 1, memory, *prefix).wait(); !sent) FAIL(sent.error().message);
        // [/send_prefix]
        CHECK(memory.statistics().snapshots == 2);
    } else if (comm.rank() == 1) {
        compute(2);
        // [receive_prefix]
        const std::int32_t here = tree.attach(scratch, text).value().length;
        MPI_Send(&here, 1, MPI_INT32_T, 0, 0, MPI_COMM_WORLD);
        if (const auto received = mpi::receive(comm, 0, memory, scratch).wait(); !received)
            FAIL(received.error().message);
        const auto inserted = tree.insert(scratch, text);
        // [/receive_prefix]
        REQUIRE(inserted);
        CHECK(here == 2);
        CHECK(numbers::values(memory, 1) == Values{1, 2, 3, 4, 5, 6});
        REQUIRE(memory.remove(scratch, Position{0}, to_end));
        CHECK(tree.match(text).length == 6);
        CHECK(memory.statistics().free == memory.cells() - 6); // what was there was not sent
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

} // namespace test_page
