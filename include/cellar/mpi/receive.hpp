// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/result.hpp>
#include <cellar/memory/saves_snapshots.hpp>
#include <cellar/memory/stored_snapshot.hpp>
#include <cellar/memory/two_phase.hpp>
#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/detail/receiver.hpp>
#include <cellar/mpi/detail/transfer_end.hpp>
#include <cellar/mpi/mpi_result.hpp>
#include <cellar/mpi/transfer_options.hpp>

#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace cellar::detail {

/// A sequence, whose cells are filled in place, or a snapshot that is offloaded on the host.
template <class M>
class Target final : public ReceiveTarget {
public:
    Target(M& memory, std::optional<Sequence> into) : memory_{memory}, into_{into} {}

    Checked<void> take(StoredSource& source, std::vector<StoredArray>& arrays) override {
        auto loaded = memory_.prepare(Load{source, "", arrays, into_ ? LoadTo::cells : LoadTo::host});
        if (!loaded) return std::move(loaded).error();
        snapshot_.emplace(memory_.finish(*std::move(loaded)));
        if (!into_) return {};
        const auto restore = memory_.prepare(op::Restore<SnapshotOf<M>>{*into_, *snapshot_, snapshot_->to()});
        if (!restore) return Problem{"", restore.error()}; // rather now than when everything is there
        return {};
    }
    Result<void> finish() override {
        if (!into_) return {};
        const Result<void> restored = memory_.restore(*into_, *snapshot_, snapshot_->to());
        if (restored) snapshot_.reset();
        return restored;
    }
    void give_up() noexcept override { snapshot_.reset(); }

    SnapshotOf<M> snapshot() {
        CELLAR_EXPECTS(snapshot_.has_value(), "wait: the snapshot was taken already, expected one call");
        return *std::exchange(snapshot_, std::nullopt);
    }

private:
    M& memory_;
    std::optional<Sequence> into_;
    std::optional<SnapshotOf<M>> snapshot_;
};

} // namespace cellar::detail

namespace cellar::mpi {

/// A snapshot on its way from another process. Passes of the memory go on between calls of `progress`, which needs that
/// no pass is open. Move-only. Destroyed before it is over, it is cancelled. The other process is told if its
/// announcement has arrived; if not, the next `receive` gets it. The communicator and the memory must outlive it.
///
/// `T`: what `wait` returns, a snapshot of M, or void if a sequence is received.
template <class M, class T>
class [[nodiscard]] Receiving : public detail::TransferHandle<detail::Receiver> {
public:
    /// Blocks until everything is there, or until the transfer fails: then the memory is as it was, except for the
    /// contents of free cells. Other transfers make no progress meanwhile. Call it once.
    MpiResult<T> wait(Where where = Where::current()) {
        const detail::Caller caller{where};
        if constexpr (std::is_void_v<T>) {
            return TransferHandle::wait();
        } else {
            if (const auto done = TransferHandle::wait(); !done) return done.error();
            return static_cast<detail::Target<M>&>(end().target()).snapshot();
        }
    }

    /// For cellar itself.
    Receiving(const Communicator& comm, int rank, M& memory, std::optional<Sequence> into,
              const ReceiveOptions& options)
        : TransferHandle{std::make_unique<detail::Receiver>(comm, rank, options,
                                                            std::make_unique<detail::Target<M>>(memory, into))} {}
};

/// Receives what another process sends into sequence s, in place of its own tokens, which stay until everything is
/// there. A cache takes cells for it at once, and each block is written to them straight away; recurrent states come by
/// way of host memory. The memory is one of cellar's own or a hybrid of these. It may have another layout, element
/// type, capacity, placement or backend than the sender's, and other storage formats if `convert_from` has those of the
/// sender: `load` of files has the same rules. Heads that are converted pass through host memory. Refuses (`refused`,
/// on both processes) with `full` if there are fewer free cells than the snapshot has tokens, and as `restore` does.
/// Returns at once.
template <detail::SavesSnapshots M>
Receiving<M, void> receive(const Communicator& comm, int rank, M& memory, Sequence s,
                           const ReceiveOptions& options = {}, Where where = Where::current()) {
    const detail::Caller caller{where};
    static_cast<void>(memory.next(s)); // checks s
    return {comm, rank, memory, s, options};
}

/// Receives a snapshot, which is offloaded on the host: `restore` copies it to a sequence, and `reload` to cells or
/// slots of its own.
template <detail::SavesSnapshots M>
Receiving<M, SnapshotOf<M>> receive(const Communicator& comm, int rank, M& memory, const ReceiveOptions& options = {},
                                    Where where = Where::current()) {
    const detail::Caller caller{where};
    return {comm, rank, memory, std::nullopt, options};
}

} // namespace cellar::mpi
