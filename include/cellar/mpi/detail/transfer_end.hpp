// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/guards.hpp>
#include <cellar/base/result.hpp>
#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/detail/message.hpp>
#include <cellar/mpi/detail/mpi_errors.hpp>
#include <cellar/mpi/detail/patience.hpp>
#include <cellar/mpi/detail/transfers.hpp>
#include <cellar/mpi/detail/wire.hpp>
#include <cellar/mpi/mpi_result.hpp>
#include <cellar/mpi/transfer_options.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mpi.h>
#include <new>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

namespace cellar::detail {

/// What both ends of a transfer have in common: the other process, the time limit, and how the transfer ended.
class TransferEnd {
public:
    TransferEnd(const TransferEnd&) = delete;
    TransferEnd& operator=(const TransferEnd&) = delete;
    virtual ~TransferEnd() = default;

    /// Does what can be done at once; at most one block. True if the transfer is over.
    bool progress() {
        if (is_over()) return true;
        transfers_.progress();
        bool something = false;
        try {
            something = receive();
            if (!is_over() && send_some()) something = true;
        } catch (const std::bad_alloc&) {
            fail(mpi::MpiReason::no_memory, own_rank(), ": no memory for the transfer");
        }
        if (something) patience_.something_happened();
        if (!is_over() && !something && patience_.is_over()) time_out();
        return is_over();
    }
    /// Gives the transfer up, and tells the other process if that knows of it. Without memory for a message, that
    /// process finds out by its time limit.
    void fail(mpi::MpiError error) {
        if (is_over()) return;
        try {
            if (number_ != 0 && error.reason != mpi::MpiReason::lost) post(gives_up_, error);
        } catch (const std::bad_alloc&) {}
        end_with(std::move(error));
    }
    /// The same, where there may be no memory for the text either.
    void fail(mpi::MpiReason reason, int rank, const char* text) { fail(error_with(reason, rank, operation_, text)); }
    /// The error of a refusal by this process' memory.
    mpi::MpiError refused(const Refusal& refusal) const {
        return {mpi::MpiReason::refused, own_rank(),
                composed({operation_, ": the memory refuses: ", to_string(refusal)}), refusal};
    }

    bool is_over() const { return inbox_ == nullptr; }
    int own_rank() const { return transfers_.own_rank(); }
    /// Between two calls of `progress`, for a caller that has nothing else to do.
    void yield() const { patience_.yield(); }
    const std::optional<mpi::MpiError>& error() const { return error_; }

protected:
    /// `gives_up`: the kind of the message that gives the transfer up. A violation if an option is not valid, or if
    /// another transfer has the tag.
    template <class Options>
    TransferEnd(const char* operation, const mpi::Communicator& comm, int rank, const Options& options,
                MessageKind gives_up)
        : transfers_{expect_other(operation, comm, rank, current_caller)},
          rank_{rank},
          gives_up_{gives_up},
          operation_{operation},
          patience_{options.time_limit} {
        constexpr bool sends = std::is_same_v<Options, mpi::SendOptions>;
        const int tag = options.tag;
        CELLAR_EXPECTS(tag >= 0 && tag <= max_transfer_tag, operation, ": tag ", tag, ", expected 0 to ",
                       max_transfer_tag);
        CELLAR_EXPECTS(options.time_limit.count() > 0, operation, ": a time limit of ", options.time_limit.count(),
                       " ms, expected 1 or more");
        to_tag_ = sends ? sender_tag(tag) : receiver_tag(tag);
        inbox_ = transfers_.open(rank, sends ? receiver_tag(tag) : sender_tag(tag));
        CELLAR_EXPECTS(inbox_ != nullptr, operation, ": another transfer ", sends ? "to" : "from", " rank ", rank,
                       " has tag ", tag, ", expected one at a time with each tag");
    }

    /// False for messages of other transfers, which are dropped.
    virtual bool is_ours(const MessageHead& head) = 0;
    /// A message is there. All of it was checked but the data of blocks that may follow.
    virtual void take(const MessageHead& head, const Arrival& arrival) = 0;
    /// Memory for rows that come after this head, and what to do with it afterwards.
    virtual Message take_room(const Message&, std::int64_t bytes) { return mailbox().take(bytes); }
    virtual void give_room(Message rows) { mailbox().give(std::move(rows)); }
    /// True if something happened.
    virtual bool send_some() { return false; }
    virtual void time_out() = 0;
    /// Gives back what only a transfer needs that is not over.
    virtual void close() noexcept = 0;

    bool is_accepted() const { return is_accepted_; }
    /// Blocks may follow, or not.
    void set_accepted(bool accepted) { is_accepted_ = accepted; }

    Mailbox& mailbox() { return transfers_.mailbox(); }
    Inbox& inbox() { return *inbox_; }
    int rank() const { return rank_; }
    std::uint64_t number() const { return number_; }
    void set_number(std::uint64_t number) { number_ = number; }

    void post(MessageKind kind, std::span<const std::byte> body = {}) {
        check(mailbox().post(rank_, to_tag_, {.kind = kind, .number = number_}, body));
    }
    void post(MessageKind kind, const mpi::MpiError& error) {
        WireWriter out;
        write_error(out, error);
        post(kind, out.all());
    }
    /// After the message before, without anything in between.
    void send(Message& message) { check(mailbox().send(rank_, to_tag_, message)); }

    void check(int code) {
        if (code != MPI_SUCCESS && !is_over()) end_with(error_of_code(operation_, rank_, code));
    }
    void end_with(std::optional<mpi::MpiError> error) {
        if (is_over()) return;
        error_ = std::move(error);
        close();
        inbox_ = nullptr;
    }

private:
    // Receives what has come, and takes the first message that is all there. True if something happened.
    bool receive() {
        bool begins = false;
        const auto room = [&](const Message& head, std::int64_t bytes) { return take_room(head, bytes); };
        check(inbox_->receive(begins, room));
        auto arrival = is_over() ? std::nullopt : inbox_->take();
        if (!arrival) return begins;
        check(arrival->code);
        if (is_over()) return true;
        const bool is_taken = take_if_ours(*arrival);
        give_room(std::move(arrival->rows));
        mailbox().give(std::move(arrival->message));
        return is_taken || begins;
    }
    bool take_if_ours(const Arrival& arrival) {
        MessageHead head;
        MessageFault fault = arrival.message.check_head(head);
        if (fault == MessageFault::none && !is_ours(head)) return false;
        if (fault == MessageFault::none && arrival.has_rows) {
            if (arrival.rows.all().size() != head.bytes) fault = MessageFault::cut;
        } else if (fault == MessageFault::none && (!is_accepted_ || head.kind != MessageKind::block)) {
            fault = arrival.message.check_body(head);
        }
        fault == MessageFault::none ? take(head, arrival) : fail(error_of_fault(operation_, rank_, fault));
        return true;
    }

    Transfers& transfers_; // must outlive the transfer
    OpenInbox inbox_;      // what comes from the other process; null if the transfer is over
    int rank_;
    int to_tag_ = 0;           // what goes there has this tag
    std::uint64_t number_ = 0; // of the transfer; 0 if that is not known yet
    bool is_accepted_ = false;
    MessageKind gives_up_;
    const char* operation_;
    Patience patience_;
    std::optional<mpi::MpiError> error_;
};

/// A transfer, as its user has it. Move-only.
template <class End>
class TransferHandle {
public:
    /// Does what can be done without waiting: at most one block. True once the transfer is over, with success or not.
    bool progress(Where where = Where::current()) {
        const Caller caller{where};
        return end().progress();
    }
    /// Blocks until the other process has everything in its memory, or until the transfer fails. Other transfers make
    /// no progress meanwhile.
    mpi::MpiResult<void> wait(Where where = Where::current()) {
        const Caller caller{where};
        while (!end().progress()) end().yield();
        if (end().error()) return *end().error();
        return {};
    }

    /// For cellar itself.
    explicit TransferHandle(std::unique_ptr<End> end) : end_{std::move(end)} {}

protected:
    End& end() { return expect_not_moved(end_, "transfer"); }

private:
    std::unique_ptr<End> end_;
};

} // namespace cellar::detail
