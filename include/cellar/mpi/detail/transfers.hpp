// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/mpi/detail/arrival.hpp>
#include <cellar/mpi/detail/message.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <list>
#include <map>
#include <mpi.h>
#include <new>
#include <optional>
#include <set>
#include <thread>
#include <utility>

namespace cellar::detail {

/// Counts the time in which the other process does nothing. The time between two calls of `is_over` counts as an eighth
/// of the limit at most.
class Patience {
public:
    using Clock = std::chrono::steady_clock;

    /// A limit of more than a century is one of a century: the clock cannot count much further.
    explicit Patience(std::chrono::milliseconds limit)
        : limit_{std::min<std::chrono::milliseconds>(limit, std::chrono::hours{24 * 36525})} {}

    void something_happened() {
        idle_ = {};
        looks_ = 0;
        last_ = Clock::now();
    }
    /// Gives the processor to others if nothing has happened for a while: that can cost milliseconds.
    void yield() const {
        if (looks_ > 1000) std::this_thread::yield();
    }
    /// Call it each time that nothing has happened.
    bool is_over() {
        const Clock::time_point now = Clock::now();
        idle_ += std::min(now - last_, limit_ / 8);
        last_ = now;
        ++looks_;
        return idle_ >= limit_;
    }

private:
    Clock::duration limit_;
    Clock::duration idle_{};
    std::int64_t looks_ = 0; // since something happened
    Clock::time_point last_ = Clock::now();
};

/// The tags of MPI that the messages of a transfer have: from its sender, and from its receiver.
inline constexpr int max_transfer_tag = 9999;
inline int sender_tag(int tag) {
    return 4096 + 2 * tag;
}
inline int receiver_tag(int tag) {
    return sender_tag(tag) + 1;
}

/// What the transfers of a communicator share, at a fixed address: messages that MPI may still use although their
/// transfer is over, and what is left to receive of transfers that failed.
class Transfers {
public:
    explicit Transfers(MPI_Comm comm) : comm_{comm} { MPI_Comm_rank(comm, &own_rank_); }
    Transfers(const Transfers&) = delete;
    Transfers& operator=(const Transfers&) = delete;
    /// Waits a little for messages in flight. Memory of those that stay in flight is never freed.
    ~Transfers() {
        using Clock = Patience::Clock;
        const auto end = Clock::now() + std::chrono::milliseconds{200};
        while (!is_idle() && Clock::now() < end) {
            progress();
            std::this_thread::yield();
        }
        for (Remains& remains : remains_) begin_again(remains);
        for (auto& [from, early] : early_)
            for (Message& message : early) keep(std::move(message));
        // Never destroyed, because MPI may end after all objects.
        alignas(std::list<Message>) static std::byte memory[sizeof(std::list<Message>)];
        static auto* const in_use = ::new (memory) std::list<Message>;
        in_use->splice(in_use->end(), messages_);
    }

    MPI_Comm comm() const { return comm_; }
    int own_rank() const { return own_rank_; }
    std::uint64_t next_id() { return ++last_id_; }
    bool is_idle() const { return messages_.empty() && remains_.empty(); }

    /// False if there is a transfer in this direction already.
    bool open(int rank, int mpi_tag) {
        if (!open_.emplace(rank, mpi_tag).second) return false;
        for (Remains& remains : remains_)
            if (remains.rank == rank && remains.mpi_tag == mpi_tag) begin_again(remains);
        return true;
    }
    void close(int rank, int mpi_tag) { open_.erase({rank, mpi_tag}); }
    /// Calls `make`, which makes what closes an open direction in the end. If that throws, closes it at once.
    template <class Make>
    auto close_unless_made(int rank, int mpi_tag, Make make) {
        try {
            return make();
        } catch (...) {
            close(rank, mpi_tag);
            throw;
        }
    }

    /// Sends a message, and keeps it as long as MPI uses it. Returns MPI's code.
    int post(int rank, int mpi_tag, Message message) {
        const int code = send(rank, mpi_tag, message);
        keep(std::move(message));
        return code;
    }
    /// Returns MPI's code. The message must stay until its request ends; its memory does not move.
    int send(int rank, int mpi_tag, Message& message) const {
        return MPI_Isend(message.data(), static_cast<int>(message.size()), MPI_BYTE, rank, mpi_tag, comm_,
                         &message.request());
    }
    /// Begins to receive the next message from there, if there is one. Returns MPI's code.
    int receive(int rank, int mpi_tag, Message& message, bool& is_there) {
        if (const auto early = early_.find({rank, mpi_tag}); early != early_.end()) {
            message = std::move(early->second.front());
            early->second.pop_front();
            if (early->second.empty()) early_.erase(early);
            is_there = true;
            return MPI_SUCCESS;
        }
        int flag = 0;
        MPI_Message matched = MPI_MESSAGE_NULL;
        MPI_Status status{};
        is_there = false;
        if (const int code = MPI_Improbe(rank, mpi_tag, comm_, &flag, &matched, &status); code != MPI_SUCCESS)
            return code;
        if (flag == 0) return MPI_SUCCESS;
        int bytes = 0;
        MPI_Get_count(&status, MPI_BYTE, &bytes);
        message.reserve(std::max(bytes, 1));
        message.set_size(bytes);
        is_there = true;
        return MPI_Imrecv(message.data(), bytes, MPI_BYTE, &matched, &message.request());
    }
    /// Messages from there whose receipt has begun, in their order, that a transfer leaves to the next one.
    void give_back(int rank, int mpi_tag, std::deque<Message> messages) {
        if (messages.empty()) return;
        std::deque<Message>& early = early_[{rank, mpi_tag}]; // maybe with later ones that were given back before
        std::move(early.begin(), early.end(), std::back_inserter(messages));
        early = std::move(messages);
    }
    /// A long message whose memory was used before, or an empty one: fresh memory costs milliseconds.
    Message take_spare() {
        if (spare_.empty()) return {};
        Message message = std::move(spare_.back());
        spare_.pop_back();
        return message;
    }
    /// No request uses it.
    void give_spare(Message message) noexcept {
        try {
            if (spare_.size() < 8 && !message.is_short()) spare_.push_back(std::move(message));
        } catch (const std::bad_alloc&) {}
    }
    /// A message that MPI may still use.
    void keep(Message message) noexcept {
        if (message.request() == MPI_REQUEST_NULL) return;
        try {
            messages_.push_back(std::move(message));
        } catch (const std::bad_alloc&) {} // see ~Message
    }

    /// The messages of a transfer that failed here, up to its last one, are received and dropped.
    void drop_rest(int rank, int mpi_tag, std::uint64_t transfer) { remains_.push_back({rank, mpi_tag, transfer, {}}); }
    /// A transfer's last message has arrived.
    void has_ended(int rank, int mpi_tag, std::uint64_t transfer) {
        remains_.remove_if(
            [&](const Remains& r) { return r.rank == rank && r.mpi_tag == mpi_tag && r.transfer == transfer; });
    }

    void progress() {
        for (auto message = messages_.begin(); message != messages_.end();) {
            bool is_done = false;
            static_cast<void>(message->test(is_done));
            message = is_done ? messages_.erase(message) : std::next(message);
        }
        for (auto remains = remains_.begin(); remains != remains_.end();)
            remains = drop_some(*remains) ? remains_.erase(remains) : std::next(remains);
    }

private:
    struct Remains {
        int rank;
        int mpi_tag;
        std::uint64_t transfer;
        std::optional<Arrival> arrival; // being received
    };

    // True if there is nothing left. A later transfer in this direction receives what remains itself.
    bool drop_some(Remains& remains) {
        if (open_.contains({remains.rank, remains.mpi_tag})) return false;
        const Arrival::Next next = remains.arrival ? remains.arrival->next() : Arrival::Next::message;
        if (!remains.arrival || next == Arrival::Next::rows) {
            Message message;
            bool is_there = false;
            if (receive(remains.rank, remains.mpi_tag, message, is_there) != MPI_SUCCESS) return true;
            if (!is_there) return false;
            next == Arrival::Next::rows ? remains.arrival->add_rows(std::move(message))
                                        : static_cast<void>(remains.arrival.emplace(std::move(message)));
        }
        if (!remains.arrival->is_done()) return false;
        const Arrival arrival = *std::exchange(remains.arrival, std::nullopt);
        MessageHead head;
        const bool is_last = arrival.message().check_head(head) == MessageFault::none
                             && head.transfer == remains.transfer && head.kind == MessageKind::end;
        return is_last || arrival.code() != MPI_SUCCESS;
    }
    // Leaves what is being received to whoever receives next.
    void begin_again(Remains& remains) {
        if (!remains.arrival) return;
        std::deque<Message> messages;
        std::exchange(remains.arrival, std::nullopt)->move_to(messages);
        give_back(remains.rank, remains.mpi_tag, std::move(messages));
    }

    MPI_Comm comm_;
    int own_rank_ = -1;
    std::uint64_t last_id_ = 0;
    std::map<std::pair<int, int>, std::deque<Message>> early_;
    std::set<std::pair<int, int>> open_;
    std::list<Message> messages_;
    std::list<Message> spare_;
    std::list<Remains> remains_;
};

} // namespace cellar::detail
