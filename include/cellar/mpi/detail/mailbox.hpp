// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/mpi/detail/message.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <mpi.h>
#include <new>
#include <span>
#include <utility>

namespace cellar::detail {

/// Messages to and from other ranks, and memory for more. It keeps the memory of those that are over, because fresh
/// memory of a long message costs milliseconds. Functions that return an int return MPI's code.
class Mailbox {
public:
    explicit Mailbox(MPI_Comm comm) : comm_{comm} {}
    Mailbox(const Mailbox&) = delete;
    Mailbox& operator=(const Mailbox&) = delete;

    MPI_Comm comm() const { return comm_; }

    /// Sets memory aside for the next `count` calls of `post`, with so many bytes each. They then allocate nothing.
    void reserve(std::int64_t count, std::int64_t bytes) {
        progress();
        while (std::ssize(unused_) < count) unused_.emplace_back();
        auto message = unused_.begin();
        for (std::int64_t i = 0; i < count; ++i, ++message) message->reserve_body(std::max(bytes, least_body));
    }
    /// Sends a message, and keeps it as long as MPI uses it. Its body is `body` and then `more`.
    int post(int rank, int tag, MessageHead head, std::span<const std::byte> body = {},
             std::span<const std::byte> more = {}) {
        if (unused_.empty()) unused_.emplace_back();
        Message& message = unused_.front();
        head.bytes = body.size() + more.size();
        message.reserve_body(std::max(static_cast<std::int64_t>(head.bytes), least_body));
        std::copy(more.begin(), more.end(), std::copy(body.begin(), body.end(), message.body()));
        message.finish(head);
        const int code = send(rank, tag, message);
        in_flight_.splice(in_flight_.end(), unused_, unused_.begin());
        return code;
    }
    /// The message must stay until its request ends; its memory does not move.
    int send(int rank, int tag, Message& message) const {
        return MPI_Isend(message.data(), static_cast<int>(message.size()), MPI_BYTE, rank, tag, comm_,
                         &message.request());
    }

    /// How many bytes the next message from there has; -1 if there is none yet.
    int probe(int rank, int tag, std::int64_t& bytes) const {
        int is_there = 0;
        int count = -1;
        MPI_Status status{};
        const int code = MPI_Iprobe(rank, tag, comm_, &is_there, &status);
        if (code == MPI_SUCCESS && is_there != 0) MPI_Get_count(&status, MPI_BYTE, &count);
        bytes = count;
        return code;
    }
    /// Begins to receive the message that `probe` has found. Without memory for it, it can be found again.
    int receive(int rank, int tag, Message& message, std::int64_t bytes) const {
        message.reserve(std::max(bytes, std::int64_t{1}));
        message.set_size(bytes);
        return MPI_Irecv(message.data(), static_cast<int>(bytes), MPI_BYTE, rank, tag, comm_, &message.request());
    }

    /// Memory for a message that is not posted.
    Message take(std::int64_t bytes) {
        std::list<Message>& from = bytes < long_message ? unused_ : long_;
        Message message;
        if (!from.empty()) {
            message = std::move(from.front());
            from.pop_front();
        }
        message.reserve(std::max(bytes, std::int64_t{1}));
        return message;
    }
    /// Takes it back, though MPI may still use it.
    void give(Message message) noexcept {
        if (message.data() == nullptr) return;
        try {
            in_flight_.push_back(std::move(message));
        } catch (const std::bad_alloc&) {} // see ~Message
    }

    /// Finds the messages that MPI does not use any more. Allocates nothing. True if no others are left.
    bool progress() noexcept {
        for (auto next = in_flight_.begin(); next != in_flight_.end();) {
            const auto message = next++;
            bool is_done = false;
            static_cast<void>(message->test(is_done));
            if (!is_done) continue;
            const bool is_short = message->is_short();
            std::list<Message>& to = is_short ? unused_ : long_;
            if (message->is_free() && std::ssize(to) < (is_short ? 64 : 8)) {
                to.splice(to.begin(), in_flight_, message);
            } else {
                in_flight_.erase(message);
            }
        }
        return in_flight_.empty();
    }

private:
    static constexpr std::int64_t least_body = 64; // so that each has room for every short one

    MPI_Comm comm_;
    std::list<Message> in_flight_;
    std::list<Message> unused_; // short ones
    std::list<Message> long_;
};

} // namespace cellar::detail
