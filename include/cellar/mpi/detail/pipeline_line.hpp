// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/guards.hpp>
#include <cellar/base/memory_bytes.hpp>
#include <cellar/base/result.hpp>
#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/detail/joint_call.hpp>
#include <cellar/mpi/detail/message.hpp>
#include <cellar/mpi/detail/mpi_errors.hpp>
#include <cellar/mpi/detail/patience.hpp>
#include <cellar/mpi/detail/transfers.hpp>
#include <cellar/mpi/detail/vote.hpp>
#include <cellar/mpi/mpi_result.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <mpi.h>
#include <optional>
#include <span>
#include <thread>
#include <utility>

namespace cellar::detail {

/// An operation on its way down the line, and the numbers of a batch.
struct LineMessage {
    JointCall call{};
    bool asks = false; ///< every stage answers the first one, and waits for its verdict
    std::span<const std::int32_t> rest{};
};

/// The messages between the stages of a pipeline, at a fixed address. An error is thrown as an `MpiFailure`, and again
/// by every later call. Keeps the memory of its messages: sending and receiving allocate only for messages that are
/// longer than those before, or if more of them are in flight.
class PipelineLine {
public:
    PipelineLine(const mpi::Communicator& comm, std::chrono::milliseconds time_limit, Where where)
        : comm_{comm.handle(), where},
          mailbox_{comm_.handle()},
          time_limit_{expect_limit("pipeline", time_limit, where)} {}
    static constexpr std::int64_t bytes_for() { return bytes_of<PipelineLine>(1) + bytes_of<Transfers>(1); }
    PipelineLine(const PipelineLine&) = delete;
    PipelineLine& operator=(const PipelineLine&) = delete;
    ~PipelineLine() {
        Patience patience{time_limit_};
        while (!mailbox_.progress() && !patience.is_over()) std::this_thread::yield();
    }

    const mpi::Communicator& communicator() const { return comm_; }
    bool is_first() const { return comm_.rank() == 0; }
    bool is_last() const { return comm_.rank() == comm_.size() - 1; }

    void expect_usable() const {
        if (lost_) throw mpi::MpiFailure{*lost_};
    }
    void expect_no_pass(const char* operation) const { detail::expect_no_pass(operation, has_pass_); }
    [[noreturn]] void fail(mpi::MpiError error) {
        lost_ = std::move(error);
        throw mpi::MpiFailure{*lost_};
    }

    /// A pass is open until the message that keeps or drops it, its word.
    void begin_pass() { has_pass_ = true; }
    /// The pass that is open is kept, or dropped. Allocates nothing.
    void word(bool keeps) {
        has_pass_ = false;
        ++number_;
        if (is_last()) return;
        expect_usable();
        send_on({.call = joint_call(keeps ? JointOperation::commit : JointOperation::drop)});
    }

    /// For another stage than the first: whether its pass is kept. Passed on. Allocates nothing.
    bool receive_word() {
        const JointOperation word = receive_operation([](std::int64_t) {}).call.operation;
        if (word != JointOperation::commit && word != JointOperation::drop) fail_malformed();
        has_pass_ = false;
        return word == JointOperation::commit;
    }
    /// For another stage, which has dropped its pass: the word on it is received before the next operation.
    void leave() {
        has_pass_ = false;
        dropped_ = true;
    }

    [[noreturn]] void fail_malformed() {
        fail({mpi::MpiReason::malformed,
              comm_.rank() - 1,
              composed({"pipeline: operation ", number_,
                        " does not follow the one before, expected a commit or drop after each pass, and only there"}),
              {}});
    }
    /// This stage cannot do what the first one did.
    [[noreturn]] void fail_to_follow(const Vote& vote) {
        const int own = comm_.rank();
        if (vote.no_memory)
            fail(error_of_rank(
                mpi::MpiReason::no_memory, "pipeline", own,
                {" is short of memory in operation ", number_, ", which the first stage had memory for"}));
        fail(error_of_rank(
            mpi::MpiReason::refused, "pipeline", own,
            {" refuses operation ", number_, ", which the first stage accepted: ", to_string(*vote.refusal)},
            *vote.refusal));
    }

    /// Sends a message of the first stage to the next one. `std::bad_alloc` changes nothing.
    void start(const LineMessage& message) {
        // For it, for the verdicts on it, and for the word on a pass.
        const bool has_word = has_pass_ || message.call.operation == JointOperation::begin;
        reserve(1 + (message.asks ? comm_.size() - 1 : 0) + (has_word ? 1 : 0), std::ssize(message.rest));
        ++number_;
        if (is_last()) return;
        expect_usable();
        send_on(message);
    }
    /// The next operation of the stage before, which is passed on. Valid until the next one. `reserve(n)` sets memory
    /// aside for what the caller does with n numbers after the head. If it or this throws `std::bad_alloc`, the
    /// operation is received by the next call.
    template <class Reserve>
    LineMessage receive(Reserve reserve) {
        if (std::exchange(dropped_, false) && receive_word())
            fail(error_of_rank(mpi::MpiReason::differs, "pipeline", comm_.rank(),
                               {" dropped a pass that the first stage committed, expected it to do the same"}));
        return receive_operation([&](std::int64_t numbers) {
            this->reserve(3, numbers); // to pass it on, to answer, and for the word on a pass
            reserve(static_cast<std::size_t>(numbers));
        });
    }

    /// For the first stage: the votes of all other stages, as one.
    Vote answers() {
        Vote all;
        for (int rank = 1; rank < comm_.size(); ++rank) {
            const auto vote = value_of<Vote>(rank, receive(rank, MessageKind::answer));
            all.no_memory = all.no_memory || vote.no_memory;
            if (!all.refusal) all.refusal = vote.refusal;
        }
        return all;
    }
    void send_verdict(bool goes) {
        for (int rank = 1; rank < comm_.size(); ++rank) send(rank, MessageKind::verdict, view_of(goes));
    }

    /// For the others.
    void send_answer(const Vote& vote) { send(0, MessageKind::answer, view_of(vote)); }
    bool receive_verdict() { return value_of<char>(0, receive(0, MessageKind::verdict)) != 0; }

private:
    /// The beginning of an operation; the numbers of a batch may follow.
    struct LineHead {
        JointCall call{};
        std::int64_t asks = 0;
    };
    static constexpr int tag = 0x1b02;

    template <class T>
    static std::span<const std::byte> view_of(const T& value) {
        return std::as_bytes(std::span{&value, 1});
    }
    template <class T>
    T value_of(int from, std::span<const std::byte> body) {
        T value{};
        if (body.size() < sizeof(T)) fail(error_of_fault("pipeline", from, MessageFault::cut));
        std::memcpy(&value, body.data(), sizeof(T));
        return value;
    }

    // Memory for so many messages, of which each may have so many numbers of a batch.
    void reserve(std::int64_t messages, std::int64_t numbers) {
        mailbox_.reserve(messages, std::int64_t{sizeof(LineHead)} + numbers * std::int64_t{sizeof(std::int32_t)});
    }

    // Neither waits for the receiver.
    void send(int to, MessageKind kind, std::span<const std::byte> body, std::span<const std::byte> more = {}) {
        const int code = mailbox_.post(to, tag, {.kind = kind, .number = number_}, body, more);
        if (code != MPI_SUCCESS) fail(error_of_code("pipeline", to, code));
    }
    void send_on(const LineMessage& message) {
        const LineHead head{message.call, message.asks ? 1 : 0};
        send(comm_.rank() + 1, MessageKind::operation, view_of(head), std::as_bytes(message.rest));
    }

    template <class Reserve>
    LineMessage receive_operation(Reserve reserve) {
        const int from = comm_.rank() - 1;
        const std::span<const std::byte> body =
            receive(from, MessageKind::operation, number_ + 1, [&](std::int64_t bytes) {
                const std::int64_t rest = bytes - std::int64_t{sizeof(LineHead)};
                reserve(std::max(rest, std::int64_t{0}) / std::int64_t{sizeof(std::int32_t)});
            });
        ++number_;
        const auto head = value_of<LineHead>(from, body);
        const auto rest = body.subspan(sizeof(head));
        const LineMessage message{
            head.call, head.asks != 0, {reinterpret_cast<const std::int32_t*>(rest.data()), rest.size() / 4}};
        if (!is_last()) send_on(message);
        return message;
    }

    // The body of the next message from there, which must have this kind and number. Valid until the next call.
    // `reserve(n)` precedes the receipt of a body of n bytes: what it throws changes nothing.
    template <class Reserve>
    std::span<const std::byte> receive(int from, MessageKind kind, std::uint64_t number, Reserve reserve) {
        expect_usable();
        const std::int64_t bytes = wait_for(from);
        reserve(std::max(bytes - std::int64_t{sizeof(MessageHead)}, std::int64_t{0}));
        received_.reserve(bytes);
        received_.set_size(bytes);
        const int code =
            MPI_Recv(received_.data(), static_cast<int>(bytes), MPI_BYTE, from, tag, comm_.handle(), MPI_STATUS_IGNORE);
        if (code != MPI_SUCCESS) fail(error_of_code("pipeline", from, code));
        MessageHead head;
        MessageFault fault = received_.check_head(head);
        if (fault == MessageFault::none) fault = received_.check_body(head);
        if (fault != MessageFault::none) fail(error_of_fault("pipeline", from, fault));
        if (head.kind != kind || head.number != number)
            fail(error_of_rank(
                mpi::MpiReason::malformed, "pipeline", from,
                {" sent another message, expected one to operation ", number, " of the same version of cellar"}));
        return received_.received_body();
    }
    std::span<const std::byte> receive(int from, MessageKind kind) {
        return receive(from, kind, number_, [](std::int64_t) {});
    }
    // Returns how many bytes the next message has.
    std::int64_t wait_for(int from) {
        for (Patience patience{time_limit_};; patience.yield_at_times()) {
            std::int64_t bytes = -1;
            if (const int code = mailbox_.probe(from, tag, bytes); code != MPI_SUCCESS)
                fail(error_of_code("pipeline", from, code));
            if (bytes >= 0) return bytes;
            if (patience.is_over())
                fail(error_of_rank(mpi::MpiReason::timed_out, "pipeline", from,
                                   {" has sent nothing within the time limit"}));
        }
    }

    mpi::Communicator comm_;
    Mailbox mailbox_;
    std::chrono::milliseconds time_limit_;
    std::uint64_t number_ = 0; // of operations, and of words on passes
    Message received_;
    std::optional<mpi::MpiError> lost_;
    bool has_pass_ = false;
    bool dropped_ = false; // this stage has dropped its pass
};

} // namespace cellar::detail
