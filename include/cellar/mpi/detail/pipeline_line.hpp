// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/result.hpp>
#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/detail/deadline.hpp>
#include <cellar/mpi/mpi_result.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <memory>
#include <mpi.h>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace cellar::detail {

/// What the first stage sends down the line.
enum class LineKind : std::int32_t {
    begin,
    commit,
    drop,
    copy_prefix,
    remove,
    rotated_remove,
    schedule,
    unschedule,
    end
};

/// An operation on its way: a head, and the numbers of a batch.
struct LineMessage {
    LineKind kind{};
    bool asks = false; ///< every stage answers the first one, and waits for its verdict
    std::array<std::int32_t, 4> arguments{};
    std::span<const std::int32_t> rest{};
};

/// What a stage answers: 0, or why it cannot.
struct LineAnswer {
    bool no_memory = false;
    std::optional<Refusal> refusal{};

    bool can() const { return !no_memory && !refusal; }
};

/// The messages between the stages of a pipeline, at a fixed address. An error is thrown as an `MpiFailure`, and again
/// by every later call. Keeps the memory of its messages: sending and receiving allocate only for messages that are
/// longer than those before, or if more of them are in flight.
class PipelineLine {
public:
    PipelineLine(const mpi::Communicator& comm, std::chrono::milliseconds time_limit, const std::source_location& where)
        : comm_{comm.handle(), where}, time_limit_{time_limit} {}
    PipelineLine(const PipelineLine&) = delete;
    PipelineLine& operator=(const PipelineLine&) = delete;
    ~PipelineLine() {
        const Deadline deadline{time_limit_};
        while (!finish_sends() && !deadline.has_passed()) std::this_thread::yield();
        if (sent_->empty()) return;
        for (Sent& sent : *sent_) MPI_Request_free(&sent.request);
        static_cast<void>(sent_.release()); // the readers are gone: the numbers stay where they are
    }

    const mpi::Communicator& communicator() const { return comm_; }
    bool is_first() const { return comm_.rank() == 0; }
    bool is_last() const { return comm_.rank() == comm_.size() - 1; }

    void expect_usable() const {
        if (lost_) throw mpi::MpiFailure{*lost_};
    }
    void expect_no_pass(const char* operation) const {
        CELLAR_EXPECTS(!has_pass_, operation, ": a pass is open, expected it to be committed or dropped first");
    }
    [[noreturn]] void fail(mpi::MpiError error) {
        lost_ = std::move(error);
        throw mpi::MpiFailure{*lost_};
    }

    /// Sets memory aside for `word`, which then allocates nothing.
    void reserve_word() {
        if (!word_.empty()) return;
        unused_sent();
        word_.splice(word_.end(), unused_, unused_.begin());
    }
    /// A pass is open until the message that keeps or drops it, its word.
    void begin_pass() { has_pass_ = true; }
    /// The pass that is open is kept, or dropped. `reserve_word` precedes it.
    void word(bool keeps) {
        has_pass_ = false;
        const Head head = head_of({.kind = keeps ? LineKind::commit : LineKind::drop}, ++number_);
        if (is_last()) return;
        expect_usable();
        word_.front().numbers.assign(head.begin(), head.end());
        send(comm_.rank() + 1, line_tag, word_);
    }

    /// For another stage than the first: whether its pass is kept. Passed on. Allocates nothing.
    bool receive_word() {
        const LineMessage message = receive(word_, [](std::size_t) {});
        if (message.kind != LineKind::commit && message.kind != LineKind::drop) fail_malformed();
        has_pass_ = false;
        return message.kind == LineKind::commit;
    }
    /// For another stage, which has dropped its pass: the word on it is received before the next operation.
    void leave() {
        has_pass_ = false;
        dropped_ = true;
    }

    [[noreturn]] void fail_malformed() {
        fail({mpi::MpiReason::malformed,
              comm_.rank() - 1,
              "pipeline: operation " + std::to_string(number_)
                  + " does not follow the one before, expected a commit or drop after each pass, and only there",
              {}});
    }
    /// This stage cannot do what the first one did.
    [[noreturn]] void fail_to_follow(const LineAnswer& answer) {
        const std::string name = "pipeline: rank " + std::to_string(comm_.rank());
        if (answer.no_memory)
            fail({mpi::MpiReason::no_memory,
                  comm_.rank(),
                  name + " is short of memory in operation " + std::to_string(number_)
                      + ", which the first stage had memory for",
                  {}});
        fail({mpi::MpiReason::refused, comm_.rank(),
              name + " refuses operation " + std::to_string(number_)
                  + ", which the first stage accepted: " + to_string(*answer.refusal),
              *answer.refusal});
    }

    /// Sends a message of the first stage to the next one. `std::bad_alloc` changes nothing.
    void start(const LineMessage& message) {
        if (message.asks) reserve_verdicts();
        const Head head = head_of(message, number_ + 1);
        if (!is_last()) send(comm_.rank() + 1, line_tag, head, message.rest);
        ++number_;
    }
    /// The next operation of the stage before, which is passed on. Valid until the next one. `reserve(n)` sets memory
    /// aside for what the caller does with n numbers behind the head. If it or this throws `std::bad_alloc`, the
    /// operation is received by the next call.
    template <class Reserve>
    LineMessage receive(Reserve reserve) {
        if (std::exchange(dropped_, false) && receive_word())
            fail({mpi::MpiReason::differs,
                  comm_.rank(),
                  "pipeline: rank " + std::to_string(comm_.rank())
                      + " dropped a pass that the first stage committed, expected it to do the same",
                  {}});
        return receive(unused_, [&](std::size_t size) {
            reserve_word();
            finish_sends();
            while (unused_.size() < 2) unused_.emplace_back(); // to pass it on, and to answer
            unused_.front().numbers.reserve(size);
            reserve(size - std::min(size, head_size));
        });
    }

    /// For the first stage: the answer of all other stages, that of the first one which cannot.
    LineAnswer answers() {
        LineAnswer found;
        for (int rank = 1; rank < comm_.size(); ++rank) {
            const Numbers& answer = receive(rank, answer_tag);
            if (answer.size() != 6 || answer[0] != in_message(number_))
                fail({mpi::MpiReason::malformed,
                      rank,
                      "pipeline: rank " + std::to_string(rank) + " sent another answer, expected one to operation "
                          + std::to_string(number_),
                      {}});
            found.no_memory = found.no_memory || answer[1] == 1;
            if (answer[1] == 2 && !found.refusal)
                found.refusal = Refusal{static_cast<Reason>(answer[2]), answer[3], {answer[4]}, {answer[5]}};
        }
        return found;
    }
    void send_verdict(bool goes) {
        const std::array<std::int32_t, 2> verdict{in_message(number_), goes ? 1 : 0};
        for (int rank = 1; rank < comm_.size(); ++rank) send(rank, verdict_tag, verdict);
    }

    /// For the others.
    void send_answer(const LineAnswer& answer) {
        const Refusal refusal = answer.refusal.value_or(Refusal{});
        const std::int32_t problem = answer.no_memory ? 1 : answer.refusal ? 2 : 0;
        const std::array<std::int32_t, 6> numbers{in_message(number_),
                                                  problem,
                                                  static_cast<std::int32_t>(refusal.reason),
                                                  refusal.member,
                                                  refusal.sequence.value,
                                                  refusal.expected.value};
        send(0, answer_tag, numbers);
    }
    bool receive_verdict() {
        const Numbers& verdict = receive(0, verdict_tag);
        return verdict.size() == 2 && verdict[0] == in_message(number_) && verdict[1] == 1;
    }

private:
    using Numbers = std::vector<std::int32_t>;
    static constexpr std::size_t head_size = 7;
    using Head = std::array<std::int32_t, head_size>; // kind, number of the operation, asks, four arguments
    struct Sent {
        MPI_Request request = MPI_REQUEST_NULL;
        Numbers numbers = with_room(head_size);
    };
    static constexpr int line_tag = 0x1b02;
    static constexpr int answer_tag = 0x1b03;
    static constexpr int verdict_tag = 0x1b04;

    static Numbers with_room(std::size_t size) {
        Numbers numbers;
        numbers.reserve(size);
        return numbers;
    }
    static std::int32_t in_message(std::uint32_t number) { return static_cast<std::int32_t>(number); }
    static Head head_of(const LineMessage& message, std::uint32_t number) {
        const auto& [a, b, c, d] = message.arguments;
        return {static_cast<std::int32_t>(message.kind), in_message(number), message.asks ? 1 : 0, a, b, c, d};
    }

    // Does not wait for the receiver.
    void send(int to, int tag, std::span<const std::int32_t> numbers, std::span<const std::int32_t> rest = {}) {
        expect_usable();
        Sent& unused = unused_sent();
        unused.numbers.assign(numbers.begin(), numbers.end());
        unused.numbers.insert(unused.numbers.end(), rest.begin(), rest.end());
        send(to, tag, unused_);
    }
    // The first of `list`. Allocates nothing.
    void send(int to, int tag, std::list<Sent>& list) {
        Sent& sent = list.front();
        const int size = static_cast<int>(sent.numbers.size());
        const int code = MPI_Isend(sent.numbers.data(), size, MPI_INT32_T, to, tag, comm_.handle(), &sent.request);
        if (code != MPI_SUCCESS) fail(error_of_code("pipeline", to, code));
        sent_->splice(sent_->end(), list, list.begin());
    }
    // True if none is left. Allocates nothing.
    bool finish_sends() {
        for (auto next = sent_->begin(); next != sent_->end();) {
            const auto sent = next++;
            int done = 0;
            if (MPI_Test(&sent->request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done != 0)
                unused_.splice(unused_.begin(), *sent_, sent);
        }
        return sent_->empty();
    }
    // The first one of `unused_`.
    Sent& unused_sent() {
        finish_sends();
        return unused_.empty() ? unused_.emplace_back() : unused_.front();
    }

    // Memory for a message, for the answers to it, and for the verdict on them.
    void reserve_verdicts() {
        finish_sends();
        while (std::ssize(unused_) < comm_.size()) unused_.emplace_back();
    }

    // The next message of the stage before. It is passed on with the memory of the first of `list`.
    template <class Reserve>
    LineMessage receive(std::list<Sent>& list, Reserve reserve) {
        const int from = comm_.rank() - 1;
        const Numbers& numbers = receive(from, line_tag, reserve);
        if (numbers.size() < head_size || numbers[0] < 0 || numbers[0] > static_cast<std::int32_t>(LineKind::end)
            || numbers[1] != in_message(++number_))
            fail({mpi::MpiReason::malformed,
                  from,
                  "pipeline: rank " + std::to_string(from) + " sent no operation number " + std::to_string(number_)
                      + ", expected one of the same version of cellar",
                  {}});
        if (!is_last()) {
            list.front().numbers.assign(numbers.begin(), numbers.end());
            send(comm_.rank() + 1, line_tag, list);
        }
        return {.kind = static_cast<LineKind>(numbers[0]),
                .asks = numbers[2] != 0,
                .arguments = {numbers[3], numbers[4], numbers[5], numbers[6]},
                .rest = std::span{numbers}.subspan(head_size)};
    }

    // Valid until the next call. `reserve(n)` precedes the receipt of n numbers: what it throws changes nothing.
    template <class Reserve>
    const Numbers& receive(int from, int tag, Reserve reserve) {
        expect_usable();
        const std::size_t size = wait_for(from, tag);
        received_.reserve(size);
        reserve(size);
        received_.resize(size);
        const int code = MPI_Recv(received_.data(), static_cast<int>(size), MPI_INT32_T, from, tag, comm_.handle(),
                                  MPI_STATUS_IGNORE);
        if (code != MPI_SUCCESS) fail(error_of_code("pipeline", from, code));
        return received_;
    }
    const Numbers& receive(int from, int tag) {
        return receive(from, tag, [](std::size_t) {});
    }
    // Returns how many numbers the next message has.
    std::size_t wait_for(int from, int tag) {
        const Deadline deadline{time_limit_};
        for (std::int64_t turns = 1;; ++turns) {
            int there = 0;
            MPI_Status status;
            if (const int code = MPI_Iprobe(from, tag, comm_.handle(), &there, &status); code != MPI_SUCCESS)
                fail(error_of_code("pipeline", from, code));
            if (there != 0) {
                int size = 0;
                MPI_Get_count(&status, MPI_INT32_T, &size);
                return static_cast<std::size_t>(size);
            }
            if (turns % 64 == 0) {
                finish_sends();
                std::this_thread::yield();
            }
            if (deadline.has_passed())
                fail({mpi::MpiReason::timed_out,
                      from,
                      "pipeline: rank " + std::to_string(from) + " has sent nothing within the time limit",
                      {}});
        }
    }

    mpi::Communicator comm_;
    std::chrono::milliseconds time_limit_;
    std::uint32_t number_ = 0; // of operations, and of words on passes. It begins again after 2^32
    std::unique_ptr<std::list<Sent>> sent_ = std::make_unique<std::list<Sent>>(); // in flight
    std::list<Sent> unused_;                                                      // memory for more
    std::list<Sent> word_;                                                        // the next one, for `word`
    Numbers received_ = with_room(head_size);
    std::optional<mpi::MpiError> lost_;
    bool has_pass_ = false;
    bool dropped_ = false; // this stage has dropped its pass
};

} // namespace cellar::detail
