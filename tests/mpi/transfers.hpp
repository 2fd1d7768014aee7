// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/receive.hpp>
#include <cellar/mpi/send.hpp>

#include <doctest/doctest.h>

#include <mpi.h>
#include <utility>

namespace transfers {

/// Rank 0 does `send`, rank 1 does `receive`, and others nothing.
template <class Send, class Receive>
void between(Send send, Receive receive) {
    const cellar::mpi::Communicator comm{MPI_COMM_WORLD};
    const struct Meeting {
        ~Meeting() { MPI_Barrier(MPI_COMM_WORLD); } // after a failure, too
    } meeting;
    if (comm.rank() == 0) send(comm, 1);
    if (comm.rank() == 1) receive(comm, 0);
}

/// The same, with a transfer of sequence 0 of one memory to sequence 0 of another.
template <class From, class To>
void migrate(From make_from, To make_to, cellar::mpi::SendOptions out = {}, cellar::mpi::ReceiveOptions in = {}) {
    between(
        [&](const cellar::mpi::Communicator& comm, int to) {
            auto memory = make_from();
            const auto sent = cellar::mpi::send(comm, to, memory, cellar::Sequence{0}, out).wait();
            REQUIRE_MESSAGE(sent, sent.error().message);
        },
        [&](const cellar::mpi::Communicator& comm, int from) {
            auto memory = make_to();
            const auto received = cellar::mpi::receive(comm, from, memory, cellar::Sequence{0}, in).wait();
            REQUIRE_MESSAGE(received, received.error().message);
        });
}

} // namespace transfers
