// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/result.hpp>
#include <cellar/memory/saves_snapshots.hpp>
#include <cellar/memory/stored_snapshot.hpp>
#include <cellar/memory/two_phase.hpp>
#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/detail/sender.hpp>
#include <cellar/mpi/detail/transfer_end.hpp>
#include <cellar/mpi/mpi_result.hpp>
#include <cellar/mpi/transfer_options.hpp>

#include <concepts>
#include <cstdint>
#include <memory>
#include <new>
#include <source_location>
#include <string>
#include <utility>

namespace cellar::mpi {

/// A snapshot on its way to another process. Passes of the memory go on between calls of `progress`. Move-only.
/// Destroyed before it is over, it is cancelled, and the other process is told. The communicator and the memory must
/// outlive it.
class [[nodiscard]] Sending : public detail::TransferHandle<detail::Sender> {
public:
    /// Blocks until the other process has everything in its memory, or until the transfer fails. Other transfers make
    /// no progress meanwhile.
    MpiResult<void> wait(const std::source_location& where = std::source_location::current()) {
        const detail::Caller caller{where};
        return result();
    }

    using TransferHandle::TransferHandle;
};

} // namespace cellar::mpi

namespace cellar::detail {

inline std::unique_ptr<Sender> make_sender(const mpi::Communicator& comm, int rank, const mpi::SendOptions& options,
                                           const std::source_location& where) {
    CELLAR_EXPECTS(options.block >= 1 << 20 && options.block <= 1 << 30, "send: blocks of ", options.block,
                   " bytes, expected 2^20 to 2^30");
    TransferPath path = open_path("send", comm, rank, options, where);
    const std::uint64_t number = path.transfers.next_number();
    return std::make_unique<Sender>(std::move(path), number, options);
}

/// Announces what `save` adds to a snapshot, or that there is no memory for it.
template <class Save>
void announce(Sender& sender, int own_rank, const mpi::SendOptions& options, Save save) {
    try {
        StoredSnapshot stored;
        save(stored);
        sender.announce(std::move(stored), options.model);
    } catch (const std::bad_alloc&) {
        sender.withdraw({mpi::MpiReason::no_memory, own_rank, "send: no memory for the transfer"});
    }
}

} // namespace cellar::detail

namespace cellar::mpi {

/// Sends a snapshot of `memory`, which is one of cellar's own or a hybrid of these, to another process, which calls
/// `receive`. The snapshot may be in place or offloaded, and stays so until the transfer is over. Returns at once.
template <detail::SavesSnapshots M, std::same_as<SnapshotOf<M>> Snapshot>
Sending send(const Communicator& comm, int rank, M& memory, const Snapshot& snapshot, const SendOptions& options = {},
             const std::source_location& where = std::source_location::current()) {
    const detail::Caller caller{where};
    auto sender = detail::make_sender(comm, rank, options, where);
    detail::announce(*sender, comm.rank(), options,
                     [&](detail::StoredSnapshot& stored) { memory.save(snapshot, "", stored); });
    return Sending{std::move(sender)};
}

/// Sends the sequence s. Nothing that happens to s later changes what is sent: the transfer owns a snapshot of s. If
/// the memory refuses that, both processes get the refusal (`refused`): a recurrent memory needs room for a snapshot
/// (`StateLimits::snapshots`).
template <detail::SavesSnapshots M>
Sending send(const Communicator& comm, int rank, M& memory, Sequence s, const SendOptions& options = {},
             const std::source_location& where = std::source_location::current()) {
    const detail::Caller caller{where};
    auto snapshot = detail::snapshot_keeping_schedule(memory, s, Position{0}, to_end);
    auto sender = detail::make_sender(comm, rank, options, where);
    if (!snapshot) {
        sender->withdraw({MpiReason::refused, comm.rank(), "send: the memory refuses: " + to_string(snapshot.error()),
                          snapshot.error()});
        return Sending{std::move(sender)};
    }
    const auto held = std::make_shared<const SnapshotOf<M>>(*std::move(snapshot));
    sender->hold(held);
    detail::announce(*sender, comm.rank(), options,
                     [&](detail::StoredSnapshot& stored) { memory.save(*held, "", stored); });
    return Sending{std::move(sender)};
}

} // namespace cellar::mpi
