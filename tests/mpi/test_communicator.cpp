// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/detail/mpi_errors.hpp>
#include <cellar/mpi/mpi_result.hpp>

#include <doctest/doctest.h>

#include <mpi.h>
#include <source_location>
#include <string>
#include <texts.hpp>
#include <utility>
#include <violations.hpp>

namespace test_communicator {

using namespace cellar;
using mpi::Communicator;

TEST_CASE("a communicator has the ranks of the program's, and messages of its own") {
    Communicator comm{MPI_COMM_WORLD};
    int rank = -1;
    int size = -1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(comm.rank() == rank);
    CHECK(comm.size() == size);
    REQUIRE(size > 1);

    // Two messages with the same tag, sent in the other order than they are received.
    const int other = rank ^ 1;
    if (other < size) {
        const int sent[2] = {10 + rank, 20 + rank};
        int received[2] = {};
        MPI_Request requests[2];
        MPI_Isend(&sent[0], 1, MPI_INT, other, 0, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(&sent[1], 1, MPI_INT, other, 0, comm.handle(), &requests[1]);
        MPI_Recv(&received[1], 1, MPI_INT, other, 0, comm.handle(), MPI_STATUS_IGNORE);
        MPI_Recv(&received[0], 1, MPI_INT, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        CHECK(received[0] == 10 + other);
        CHECK(received[1] == 20 + other);
    }
    const Communicator moved = std::move(comm);
    CHECK(moved.rank() == rank);
}

TEST_CASE("an error of MPI is returned, and says which rank") {
    const Communicator comm{MPI_COMM_WORLD};
    const int code = MPI_Send(nullptr, 0, MPI_INT, comm.size(), 0, comm.handle());
    REQUIRE(code != MPI_SUCCESS);
    const mpi::MpiError error = detail::error_of_code("send", comm.size(), code);
    CHECK(error == mpi::MpiReason::failed);
    CHECK(error.rank == comm.size());
    CHECK(error.message.find("send: rank " + std::to_string(comm.size())) == 0);
}

TEST_CASE("each reason has a text of its own, and an error has its message") {
    const Texts texts = texts_of_reasons<mpi::MpiReason>([](mpi::MpiReason reason) { return mpi::to_string(reason); });
    CHECK(texts.count == 10);
    CHECK(texts.distinct.size() == 10);
    CHECK(mpi::to_string(mpi::MpiError{mpi::MpiReason::lost, 3, "send: rank 3 has died"}) == "send: rank 3 has died");
}

TEST_CASE("a communicator takes the place of another one") {
    const auto where = std::source_location::current();
    Communicator world{MPI_COMM_WORLD};
    const MPI_Comm handle = world.handle();
    const int rank = world.rank();
    const int size = world.size();
    Communicator comm{MPI_COMM_SELF};
    REQUIRE(comm.size() == 1);
    const auto is_world = [&] {
        int ranks = 0;
        const int one = 1;
        MPI_Allreduce(&one, &ranks, 1, MPI_INT, MPI_SUM, comm.handle());
        CHECK(ranks == size);
        CHECK(comm.handle() == handle);
        CHECK(comm.rank() == rank);
        CHECK(comm.size() == size);
        CHECK(comm.transfers().comm() == handle);
    };
    comm = std::move(world);
    is_world();
    Communicator moved = std::move(comm);
    comm = std::move(moved);
    is_world();
    CHECK(violation_of([&] { cellar::detail::expect_valid("send", moved, where); })
          == "send: the communicator was moved from, expected one that was not");
}

TEST_CASE("wrong ranks and communicators are violations") {
    Communicator comm{MPI_COMM_WORLD};
    const auto where = std::source_location::current();
    CHECK(violation_of([&] { cellar::detail::expect_other("send", comm, comm.rank(), where); }).find("expected 0 to")
          != std::string::npos);
    CHECK(violation_of([&] { cellar::detail::expect_other("send", comm, comm.size(), where); }).find("expected 0 to")
          != std::string::npos);
    CHECK(violation_of([&] { cellar::detail::expect_other("send", comm, -1, where); }).find("expected 0 to")
          != std::string::npos);
    CHECK(violation_of([&] { static_cast<void>(Communicator{MPI_COMM_NULL}); }).find("expected a communicator")
          != std::string::npos);
    MPI_Comm own = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, comm.rank() == 0 ? 0 : 1, 0, &own);
    MPI_Comm between_groups = MPI_COMM_NULL;
    MPI_Intercomm_create(own, 0, MPI_COMM_WORLD, comm.rank() == 0 ? 1 : 0, 0, &between_groups);
    CHECK(violation_of([&] { static_cast<void>(Communicator{between_groups}); }).find("intercommunicator")
          != std::string::npos);
    MPI_Comm_free(&between_groups);
    MPI_Comm_free(&own);
    const Communicator moved = std::move(comm);
    CHECK(violation_of([&] { cellar::detail::expect_other("send", comm, 0, where); }).find("moved from")
          != std::string::npos);
}

} // namespace test_communicator
