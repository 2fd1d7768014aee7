// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/cache/fwd.hpp>
#include <cellar/memory/saves_snapshots.hpp>
#include <cellar/memory/stored_snapshot.hpp>
#include <cellar/memory/two_phase.hpp>
#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/detail/sender.hpp>
#include <cellar/mpi/detail/transfer_end.hpp>
#include <cellar/mpi/mpi_result.hpp>
#include <cellar/mpi/transfer_options.hpp>

#include <memory>
#include <string>
#include <utility>

namespace cellar::detail {

template <class M>
inline constexpr bool is_encoder_memory = false;
template <class Layout, class Backend>
inline constexpr bool is_encoder_memory<EncoderMemory<Layout, Backend>> = true;

} // namespace cellar::detail

namespace cellar::mpi {

/// A sequence on its way to another process while its prompt is computed: layers leave as soon as they are there.
/// `progress` may be called in an open pass. Move-only. Destroyed before it is over, it is cancelled, and the other
/// process is told. The communicator and the memory must outlive it.
template <class M>
class [[nodiscard]] SendingAhead : public detail::TransferHandle<detail::Sender> {
public:
    /// After the `put` of a layer of the model in an open pass: the rows of the sequence may leave. The pass must be
    /// committed later. Sends at most one block.
    template <class Pass>
    void layer(Pass& pass, int layer, Where where = Where::current()) {
        const detail::Caller caller{where};
        expect_put(pass, layer);
        rows_are_there(layer);
        end().progress();
    }

    /// The sequence has all tokens that were announced, and no pass is open: the transfer owns a snapshot of it from
    /// now on, and changes to the sequence make no difference any more. Recurrent states leave now. If the memory
    /// refuses the snapshot, both processes get the refusal. Throws `std::bad_alloc`, with nothing changed.
    void complete(Where where = Where::current()) {
        const detail::Caller caller{where};
        detail::Sender& sender = end();
        if (sender.holds() || sender.is_over()) return;
        CELLAR_EXPECTS(memory_->next(sequence_) >= to_, "complete: sequence ", sequence_, " has ",
                       memory_->next(sequence_), " tokens, expected the ", to_, " that were announced");
        auto snapshot = detail::snapshot_keeping_schedule(*memory_, sequence_, Position{0}, to_);
        if (!snapshot) return sender.fail(sender.refused(snapshot.error()));
        auto held = std::make_shared<const SnapshotOf<M>>(*std::move(snapshot));
        detail::StoredSnapshot stored;
        memory_->save(*held, "", stored);
        if (!sender.complete(std::move(stored)))
            return sender.fail(
                {MpiReason::cancelled, sender.own_rank(), "send: the sequence has other tokens than were announced"});
        sender.hold(std::move(held));
    }

    /// `complete`, and blocks until the other process has everything in its memory, or until the transfer fails.
    MpiResult<void> wait(Where where = Where::current()) {
        complete(where);
        return TransferHandle::wait(where);
    }

    /// For cellar itself.
    SendingAhead(std::unique_ptr<detail::Sender> sender, M& memory, Sequence s, Position to)
        : TransferHandle{std::move(sender)}, memory_{&memory}, sequence_{s}, to_{to} {
        for (int layer = 0; layer < memory.layers(); ++layer) rows_are_there(layer); // those of tokens that s has
    }

private:
    // Of a cache, or of each that has the layer.
    template <class Pass>
    static void expect_put(Pass& pass, int layer) {
        if constexpr (requires { pass.keys(layer); }) {
            static_cast<void>(pass.keys(layer)); // a violation if it was not put
        } else if constexpr (requires { pass.with_residual([](auto&, auto&) {}); }) {
            pass.with_residual([&](auto&... both) { (expect_put(both, layer), ...); });
        } else if constexpr (requires { pass.layers(); }) {
            pass.visit(layer, [](auto& own, int index) { expect_put(own, index); });
        }
    }

    void rows_are_there(int layer) { rows_are_there(*memory_, layer, ""); }
    template <class Memory>
    void rows_are_there(const Memory& memory, int layer, const std::string& prefix) {
        if constexpr (requires { memory.place(layer); }) {
            memory.for_each_with_layer(layer, [&](const auto& member, int index, int own) {
                rows_are_there(member, own, prefix + "members." + std::to_string(index) + ".");
            });
        } else {
            const std::string name = prefix + "layers." + std::to_string(layer);
            const Position next = memory_->next(sequence_);
            end().rows_are_there(name + ".keys", prefix + "positions", next);
            end().rows_are_there(name + ".values", prefix + "positions", next);
        }
    }

    M* memory_;
    Sequence sequence_;
    Position to_;
};

/// Announces sequence s up to position `to`, before the passes that compute its tokens up to there: the other process
/// calls `receive`, and makes room at once. What s already has is sent first. In each pass, call `layer(pass, i)` after
/// the `put` of layer i; after the last pass, `wait`. So only the last layers are waited for. Until `complete`, only
/// these passes may change s. If one is dropped after its layers were sent, or s changes otherwise, destroy the
/// transfer.
///
/// For caches, recurrent memories, and hybrids of these and of encoder memories, whose inputs below `to` are written
/// before. An encoder memory alone has no passes to announce: `send` its inputs.
template <detail::SavesSnapshots M>
    requires(!detail::is_encoder_memory<M>)
SendingAhead<M> send_ahead(const Communicator& comm, int rank, M& memory, Sequence s, Position to,
                           const SendOptions& options = {}, Where where = Where::current()) {
    const detail::Caller caller{where};
    const Position next = memory.next(s);
    CELLAR_EXPECTS(to >= next, "send_ahead: up to position ", to, ", expected at least the ", next,
                   " tokens that sequence ", s, " has");
    auto sender = std::make_unique<detail::Sender>(comm, rank, options);
    sender->announce(options.model, [&](detail::StoredSnapshot& stored) { memory.save_ahead(s, to, "", stored); });
    return SendingAhead<M>{std::move(sender), memory, s, to};
}

} // namespace cellar::mpi
