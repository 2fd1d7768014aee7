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
#include <source_location>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace cellar::detail {

/// A snapshot that is offloaded on the host.
template <class M>
class SnapshotTarget final : public ReceiveTarget {
public:
    explicit SnapshotTarget(M& memory) : memory_{memory} {}

    Checked<void> take(StoredSource& source, std::vector<StoredArray>& arrays) override {
        auto loaded = memory_.prepare(Load{source, "", arrays});
        if (!loaded) return std::move(loaded).error();
        snapshot_.emplace(memory_.finish(*std::move(loaded)));
        return {};
    }
    Result<void> finish() override { return {}; }
    void give_up() noexcept override { snapshot_.reset(); }

    mpi::MpiResult<SnapshotOf<M>> result() {
        CELLAR_EXPECTS(snapshot_.has_value(), "wait: the snapshot was taken already, expected one call");
        return *std::exchange(snapshot_, std::nullopt);
    }

private:
    M& memory_;
    std::optional<SnapshotOf<M>> snapshot_;
};

/// A sequence. Cells are filled in place.
template <class M>
class SequenceTarget final : public ReceiveTarget {
public:
    SequenceTarget(M& memory, Sequence s) : memory_{memory}, sequence_{s} {}

    Checked<void> take(StoredSource& source, std::vector<StoredArray>& arrays) override {
        auto loaded = memory_.prepare(Load{source, "", arrays, LoadTo::cells});
        if (!loaded) return std::move(loaded).error();
        snapshot_.emplace(memory_.finish(*std::move(loaded)));
        const auto restore = memory_.prepare(op::Restore<SnapshotOf<M>>{sequence_, *snapshot_, snapshot_->to()});
        if (!restore) return Problem{"", restore.error()}; // rather now than when everything is there
        return {};
    }
    Result<void> finish() override {
        const Result<void> restored = memory_.restore(sequence_, *snapshot_, snapshot_->to());
        if (restored) snapshot_.reset();
        return restored;
    }
    void give_up() noexcept override { snapshot_.reset(); }

    static mpi::MpiResult<void> result() { return {}; }

private:
    M& memory_;
    Sequence sequence_;
    std::optional<SnapshotOf<M>> snapshot_;
};

} // namespace cellar::detail

namespace cellar::mpi {

/// A snapshot on its way from another process. Passes of the memory go on between calls of `progress`, which needs that
/// no pass is open. Move-only. Destroyed before it is over, it is cancelled. The other process is told if its
/// announcement has arrived; if not, the next `receive` gets it. The communicator and the memory must outlive it.
template <class Target>
class [[nodiscard]] Receiving : public detail::TransferHandle<detail::Receiver> {
public:
    using result_type = decltype(std::declval<Target&>().result());

    /// Blocks until everything is there, or until the transfer fails: then the memory is as it was, except for the
    /// contents of free cells. Other transfers make no progress meanwhile. Call it once.
    result_type wait(const std::source_location& where = std::source_location::current()) {
        const detail::Caller caller{where};
        if (const auto done = result(); !done) return done.error();
        return static_cast<Target&>(end().target()).result();
    }

    using detail::TransferHandle<detail::Receiver>::TransferHandle;
};

} // namespace cellar::mpi

namespace cellar::detail {

template <class Target, class... Parts>
mpi::Receiving<Target> make_receiving(const mpi::Communicator& comm, int rank, const mpi::ReceiveOptions& options,
                                      const std::source_location& where, Parts&&... parts) {
    TransferPath path = open_path("receive", comm, rank, options, where);
    auto target = std::make_unique<Target>(std::forward<Parts>(parts)...);
    return mpi::Receiving<Target>{std::make_unique<Receiver>(std::move(path), options, std::move(target))};
}

} // namespace cellar::detail

namespace cellar::mpi {

/// Receives what another process sends into sequence s, in place of its own tokens, which stay until everything is
/// there. A cache takes cells for it at once, and each block is written to them straight away; recurrent states come by
/// way of host memory. The memory is one of cellar's own or a hybrid of these. It may have another layout, element
/// type, capacity, placement or backend than the sender's: `load` of files has the same rules. Refuses (`refused`, on
/// both processes) with `full` if there are fewer free cells than the snapshot has tokens, and as `restore` does.
/// Returns at once.
template <detail::SavesSnapshots M>
auto receive(const Communicator& comm, int rank, M& memory, Sequence s, const ReceiveOptions& options = {},
             const std::source_location& where = std::source_location::current()) {
    const detail::Caller caller{where};
    static_cast<void>(memory.next(s)); // checks s
    return detail::make_receiving<detail::SequenceTarget<M>>(comm, rank, options, where, memory, s);
}

/// Receives a snapshot, which is offloaded on the host: `restore` copies it to a sequence, and `reload` to cells or
/// slots of its own.
template <detail::SavesSnapshots M>
auto receive(const Communicator& comm, int rank, M& memory, const ReceiveOptions& options = {},
             const std::source_location& where = std::source_location::current()) {
    const detail::Caller caller{where};
    return detail::make_receiving<detail::SnapshotTarget<M>>(comm, rank, options, where, memory);
}

} // namespace cellar::mpi
