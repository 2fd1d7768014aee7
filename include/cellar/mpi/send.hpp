// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/memory/saves_snapshots.hpp>
#include <cellar/memory/stored_snapshot.hpp>
#include <cellar/memory/two_phase.hpp>
#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/detail/sender.hpp>
#include <cellar/mpi/detail/transfer_end.hpp>
#include <cellar/mpi/transfer_options.hpp>

#include <concepts>
#include <memory>
#include <utility>

namespace cellar::mpi {

/// A snapshot on its way to another process. Passes of the memory go on between calls of `progress`. Move-only.
/// Destroyed before it is over, it is cancelled, and the other process is told. The communicator and the memory must
/// outlive it.
class [[nodiscard]] Sending : public detail::TransferHandle<detail::Sender> {
public:
    using TransferHandle::TransferHandle;
};

/// Sends a snapshot of `memory`, which is one of cellar's own or a hybrid of these, to another process, which calls
/// `receive`. The snapshot may be in place or offloaded, and stays so until the transfer is over. Returns at once.
template <detail::SavesSnapshots M, std::same_as<SnapshotOf<M>> Snapshot>
Sending send(const Communicator& comm, int rank, M& memory, const Snapshot& snapshot, const SendOptions& options = {},
             Where where = Where::current()) {
    const detail::Caller caller{where};
    auto sender = std::make_unique<detail::Sender>(comm, rank, options);
    sender->announce(options.model, [&](detail::StoredSnapshot& stored) { memory.save(snapshot, "", stored); });
    return Sending{std::move(sender)};
}

/// Sends the sequence s. Nothing that happens to s later changes what is sent: the transfer owns a snapshot of s. If
/// the memory refuses that, both processes get the refusal (`refused`): a recurrent memory needs room for a snapshot
/// (`StateLimits::snapshots`).
template <detail::SavesSnapshots M>
Sending send(const Communicator& comm, int rank, M& memory, Sequence s, const SendOptions& options = {},
             Where where = Where::current()) {
    const detail::Caller caller{where};
    auto snapshot = detail::snapshot_keeping_schedule(memory, s, Position{0}, to_end);
    auto sender = std::make_unique<detail::Sender>(comm, rank, options);
    if (!snapshot) {
        sender->withdraw(sender->refused(snapshot.error()));
        return Sending{std::move(sender)};
    }
    const auto held = std::make_shared<const SnapshotOf<M>>(*std::move(snapshot));
    sender->hold(held);
    sender->announce(options.model, [&](detail::StoredSnapshot& stored) { memory.save(*held, "", stored); });
    return Sending{std::move(sender)};
}

} // namespace cellar::mpi
