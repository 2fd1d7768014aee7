// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/mpi/detail/message.hpp>

#include <cstdint>
#include <deque>
#include <mpi.h>
#include <utility>

namespace cellar::detail {

/// A message that is being received, and its rows if they are a message of their own.
class Arrival {
public:
    explicit Arrival(Message message) : message_{std::move(message)} {}

    /// What the next message of the same tag is. Not known until all of this one is there, if it may be a head alone.
    enum class Next { message, rows, unknown };
    Next next() {
        if (has_rows_ || message_.size() != std::int64_t{sizeof(MessageHead)}) return Next::message;
        if (!test(message_)) return Next::unknown;
        MessageHead head;
        const bool is_apart = code_ == MPI_SUCCESS && message_.check_head(head) == MessageFault::none
                              && head.kind == MessageKind::block_apart;
        return is_apart ? Next::rows : Next::message;
    }
    void add_rows(Message rows) {
        rows_ = std::move(rows);
        has_rows_ = true;
    }

    /// All of it is there, or MPI has reported an error.
    bool is_done() {
        if (!test(message_)) return false;
        return has_rows_ ? test(rows_) : next() == Next::message;
    }
    /// MPI's code.
    int code() const { return code_; }

    Message& message() { return message_; }
    const Message& message() const { return message_; }
    /// Empty unless they are apart.
    Message& rows() { return rows_; }
    const Message& rows() const { return rows_; }
    bool has_rows() const { return has_rows_; }

    /// Adds its messages, in their order.
    void move_to(std::deque<Message>& all) {
        all.push_back(std::move(message_));
        if (has_rows_) all.push_back(std::move(rows_));
    }

private:
    bool test(Message& message) {
        bool is_done = false;
        if (const int code = message.test(is_done); code != MPI_SUCCESS) code_ = code;
        return is_done;
    }

    Message message_;
    Message rows_;
    bool has_rows_ = false;
    int code_ = MPI_SUCCESS;
};

} // namespace cellar::detail
