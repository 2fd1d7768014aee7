// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cellar/base/batch_builder.hpp>
#include <cellar/mpi/broadcast.hpp>
#include <cellar/mpi/communicator.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <mpi.h>
#include <numeric>
#include <string>
#include <vector>
#include <violations.hpp>

namespace test_broadcast {

using namespace cellar;
using mpi::broadcast;
using mpi::Communicator;
using mpi::SharedBatch;

namespace {

void expect_equal(const Batch& batch, const Batch& expected) {
    REQUIRE(batch.tokens() == expected.tokens());
    REQUIRE(batch.sequences.size() == expected.sequences.size());
    REQUIRE(batch.groups.size() == expected.groups.size());
    REQUIRE(batch.parents.size() == expected.parents.size());
    for (std::size_t i = 0; i < expected.positions.size(); ++i) {
        CHECK(batch.positions[i] == expected.positions[i]);
        CHECK(batch.sequences[i] == expected.sequences[i]);
        if (!expected.groups.empty()) CHECK(batch.groups[i] == expected.groups[i]);
        if (!expected.parents.empty()) CHECK(batch.parents[i] == expected.parents[i]);
    }
}

} // namespace

TEST_CASE("batches of any length reach all ranks, with the ids of their tokens, their groups and parents") {
    Communicator comm{MPI_COMM_WORLD};
    SharedBatch shared{4};
    const int root = comm.size() - 1;
    for (const std::int32_t tokens : {0, 1, 3, 4, 5, 200, 2})
        for (const bool has_ids : {false, true})
            for (const int lists : {0, 1, 2, 3}) {
                BatchBuilder batch{Sequence{1}, Position{7}, tokens};
                if ((lists & 1) != 0) batch.add_group(Sequence{2}, Position{0}, 2);
                if ((lists & 2) != 0 && batch.size() > 0) batch.add_child(0);
                std::vector<std::int32_t> ids(has_ids ? static_cast<std::size_t>(batch.size()) : 0);
                std::iota(ids.begin(), ids.end(), 1000);
                if (comm.rank() == root) shared.assign(batch, ids);
                REQUIRE(broadcast(comm, shared, root));
                expect_equal(shared, batch);
                CHECK(std::vector<std::int32_t>(shared.ids().begin(), shared.ids().end()) == ids);
            }
}

TEST_CASE("a batch is made of the numbers of another, and of no others") {
    BatchBuilder batch{Sequence{1}, Position{7}, 5};
    batch.add_group(Sequence{2}, Position{0}, 2);
    std::vector<std::int32_t> ids(7);
    std::iota(ids.begin(), ids.end(), 1000);
    SharedBatch from;
    from.assign(batch, ids);
    std::vector<std::int32_t> numbers(from.message().begin(), from.message().end());
    SharedBatch to{0};
    REQUIRE(to.assign_message(numbers));
    expect_equal(to, batch);
    CHECK(std::vector<std::int32_t>(to.ids().begin(), to.ids().end()) == ids);

    const auto refused = [&](const std::vector<std::int32_t>& other) {
        const bool accepts = to.assign_message(other);
        CHECK(std::vector<std::int32_t>(to.message().begin(), to.message().end()) == numbers);
        return !accepts;
    };
    for (std::size_t n = 0; n < numbers.size(); ++n)
        CHECK(refused({numbers.begin(), numbers.begin() + static_cast<std::ptrdiff_t>(n)}));
    for (std::size_t i = 0; i < 3; ++i)
        for (const std::int32_t other : {-1, numbers[i] + 1, 1 << 26}) {
            std::vector<std::int32_t> altered = numbers;
            altered[i] = other;
            CHECK(refused(altered));
        }
    numbers.push_back(0);
    const bool accepts_more = to.assign_message(numbers);
    numbers.pop_back();
    CHECK(!accepts_more);
}

TEST_CASE("what is no batch is malformed") {
    Communicator comm{MPI_COMM_WORLD};
    SharedBatch shared{4};
    if (comm.rank() == 0) {
        std::vector<std::int32_t> other(3 + 5 * 4, 5);
        MPI_Bcast(other.data(), static_cast<int>(other.size()), MPI_INT32_T, 0, comm.handle());
    } else {
        const auto received = broadcast(comm, shared, 0);
        REQUIRE(!received);
        CHECK(received.error() == mpi::MpiReason::malformed);
        CHECK(received.error().rank == 0);
    }
}

TEST_CASE("lists of different lengths and wrong ranks are violations") {
    Communicator comm{MPI_COMM_WORLD};
    SharedBatch shared;
    CHECK(shared.tokens() == 0);
    CHECK(shared.ids().empty());
    const std::vector<std::int32_t> two{0, 1};
    const std::vector<std::int32_t> three{0, 0, 0};
    CHECK(violation_of([&] { shared.assign({two, three}); }).find("3 sequences") != std::string::npos);
    CHECK(violation_of([&] { shared.assign({two, two, three}); }).find("3 groups") != std::string::npos);
    CHECK(violation_of([&] { shared.assign({.positions = two, .sequences = two, .parents = three}); }).find("3 parents")
          != std::string::npos);
    CHECK(violation_of([&] { shared.assign({two, two}, three); }).find("3 ids") != std::string::npos);
    CHECK(violation_of([&] { (void)broadcast(comm, shared, comm.size()); }).find("broadcast: rank")
          != std::string::npos);
    const std::vector<std::uint8_t> stored{1, 0};
    CHECK(violation_of([&] { shared.assign({two, two, {}, stored}); }).find("stored tokens") != std::string::npos);
    const Communicator moved = std::move(comm);
    CHECK(violation_of([&] { (void)broadcast(comm, shared, 0); }).find("moved from") != std::string::npos);
    CHECK(violation_of([&] { SharedBatch{-1}; }).find("-1 tokens") != std::string::npos);
    CHECK(violation_of([&] { SharedBatch{INT32_MAX}; }).find("2147483647 tokens") != std::string::npos);
}

} // namespace test_broadcast
