// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/mpi/detail/message.hpp>
#include <cellar/mpi/detail/patience.hpp>

#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mpi.h>
#include <new>
#include <optional>
#include <thread>
#include <utility>

namespace cellar::detail {

/// A message that is being received, and its rows if they are a message of their own.
struct Arrival {
    /// What the next message of the same tag is. Not known until all of this one is there, if it may be a head alone.
    enum class Next { message, rows, unknown };
    Next next() {
        if (has_rows || message.size() != std::int64_t{sizeof(MessageHead)}) return Next::message;
        if (!test(message)) return Next::unknown;
        MessageHead head;
        const bool is_apart = code == MPI_SUCCESS && message.check_head(head) == MessageFault::none
                              && head.kind == MessageKind::block_apart;
        return is_apart ? Next::rows : Next::message;
    }
    /// All of it is there, or MPI has reported an error.
    bool is_done() {
        if (!test(message)) return false;
        return has_rows ? test(rows) : next() == Next::message;
    }

    Message message;
    Message rows{}; ///< after a head that is alone
    bool has_rows = false;
    int code = MPI_SUCCESS;

private:
    bool test(Message& some) {
        bool is_done = false;
        if (const int found = some.test(is_done); found != MPI_SUCCESS) code = found;
        return is_done;
    }
};

/// What one rank sends with one tag, in its order. A message that is being received while a transfer ends is left to
/// the next one.
class Inbox {
public:
    Inbox(Mailbox& mailbox, int rank, int tag) : mailbox_{mailbox}, rank_{rank}, tag_{tag} {}
    Inbox(const Inbox&) = delete;
    Inbox& operator=(const Inbox&) = delete;

    int rank() const { return rank_; }

    /// Begins to receive the next message if it has come. Two are received at a time, and the rows of both.
    /// `room(message, bytes)` returns memory for the rows after a head. Returns MPI's code.
    template <class Room>
    int receive(bool& is_there, Room room) {
        is_there = false;
        const Arrival::Next next = arrivals_.empty() ? Arrival::Next::message : arrivals_.back().next();
        if (next == Arrival::Next::unknown || (next == Arrival::Next::message && arrivals_.size() == 2))
            return MPI_SUCCESS;
        std::int64_t bytes = -1;
        if (const int code = mailbox_.probe(rank_, tag_, bytes); code != MPI_SUCCESS || bytes < 0) return code;
        const bool is_rows = next == Arrival::Next::rows;
        if (!is_rows) arrivals_.push_back({mailbox_.take(bytes)});
        Arrival& arrival = arrivals_.back();
        if (is_rows) arrival.rows = room(arrival.message, bytes);
        arrival.code = mailbox_.receive(rank_, tag_, is_rows ? arrival.rows : arrival.message, bytes);
        arrival.has_rows = is_rows;
        is_there = true;
        return arrival.code;
    }
    /// The next message that is there, if there is one.
    std::optional<Arrival> take() {
        drop_front();
        if (arrivals_.empty() || !arrivals_.front().is_done()) return std::nullopt;
        std::optional<Arrival> arrival{std::move(arrivals_.front())};
        arrivals_.pop_front();
        return arrival;
    }

    /// Messages of this transfer and of older ones are dropped from now on. `more_follow`: its last one has not come.
    void drop(std::uint64_t transfer, bool more_follow) {
        if (transfer <= dropped_) return;
        dropped_ = transfer;
        awaits_last_ = more_follow;
    }
    /// Receives what is left to drop, unless a transfer does that.
    void drop_some() noexcept {
        if (is_open_ || !awaits_last_) return;
        try {
            bool is_there = false;
            if (receive(is_there, [&](const Message&, std::int64_t n) { return mailbox_.take(n); }) != MPI_SUCCESS)
                awaits_last_ = false;
            drop_front();
        } catch (const std::bad_alloc&) {}
    }
    bool awaits_last() const { return awaits_last_; }

    /// False if a transfer has it already.
    bool open() { return !std::exchange(is_open_, true); }
    void close() noexcept { is_open_ = false; }

private:
    void drop_front() {
        while (!arrivals_.empty() && arrivals_.front().is_done() && is_dropped(arrivals_.front())) {
            mailbox_.give(std::move(arrivals_.front().rows));
            mailbox_.give(std::move(arrivals_.front().message));
            arrivals_.pop_front();
        }
    }
    bool is_dropped(const Arrival& arrival) {
        MessageHead head;
        if (arrival.code != MPI_SUCCESS) awaits_last_ = false;
        if (arrival.message.check_head(head) != MessageFault::none) return awaits_last_;
        if (head.number > dropped_ || ends_transfer(head.kind)) awaits_last_ = awaits_last_ && head.number < dropped_;
        return head.number <= dropped_;
    }

    Mailbox& mailbox_;
    int rank_;
    int tag_;
    std::list<Arrival> arrivals_; // being received
    std::uint64_t dropped_ = 0;
    bool awaits_last_ = false; // of the transfer with that number
    bool is_open_ = false;
};

struct CloseInbox {
    void operator()(Inbox* inbox) const noexcept { inbox->close(); }
};
/// An inbox that a transfer has for itself.
using OpenInbox = std::unique_ptr<Inbox, CloseInbox>;

/// The tags of MPI that the messages of a transfer have: from its sender, and from its receiver.
inline constexpr int max_transfer_tag = 9999;
inline int sender_tag(int tag) {
    return 4096 + 2 * tag;
}
inline int receiver_tag(int tag) {
    return sender_tag(tag) + 1;
}

/// A duplicate of a communicator, and what its transfers share, at a fixed address.
class Transfers {
public:
    /// Collective over `comm`.
    explicit Transfers(MPI_Comm comm) : mailbox_{duplicate_of(comm)} {
        MPI_Comm_rank(this->comm(), &own_rank_);
        MPI_Comm_size(this->comm(), &ranks_);
    }
    Transfers(const Transfers&) = delete;
    Transfers& operator=(const Transfers&) = delete;
    /// Waits a little for messages in flight.
    ~Transfers() {
        const auto end = Patience::Clock::now() + std::chrono::milliseconds{200};
        for (progress(); !is_idle() && Patience::Clock::now() < end; progress()) std::this_thread::yield();
        int finalised = 0;
        MPI_Finalized(&finalised);
        MPI_Comm own = comm();
        if (finalised == 0) MPI_Comm_free(&own);
    }

    MPI_Comm comm() const { return mailbox_.comm(); }
    int own_rank() const { return own_rank_; }
    int ranks() const { return ranks_; }
    Mailbox& mailbox() { return mailbox_; }
    std::uint64_t next_number() { return ++last_number_; }

    /// Null if a transfer has it already.
    OpenInbox open(int rank, int mpi_tag) {
        Inbox& inbox = inboxes_.try_emplace({rank, mpi_tag}, mailbox_, rank, mpi_tag).first->second;
        return OpenInbox{inbox.open() ? &inbox : nullptr};
    }

    /// MPI uses no memory, and nothing is left to receive of transfers that failed.
    bool is_idle() const { return is_idle_; }
    void progress() noexcept {
        is_idle_ = mailbox_.progress();
        for (auto& [from, inbox] : inboxes_) {
            inbox.drop_some();
            is_idle_ = is_idle_ && !inbox.awaits_last();
        }
    }

private:
    static MPI_Comm duplicate_of(MPI_Comm comm) {
        MPI_Comm own = MPI_COMM_NULL;
        MPI_Comm_dup(comm, &own);
        MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN);
        return own;
    }

    Mailbox mailbox_;
    int own_rank_ = -1;
    int ranks_ = 0;
    std::uint64_t last_number_ = 0;
    std::map<std::pair<int, int>, Inbox> inboxes_;
    bool is_idle_ = true;
};

} // namespace cellar::detail
