// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/result.hpp>
#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/lockstep_options.hpp>
#include <cellar/mpi/mpi_result.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mpi.h>
#include <optional>
#include <source_location>
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
    std::int32_t number = 0;
    std::vector<std::int32_t> rest{};
};

/// What a stage answers: 0, or why it cannot.
struct LineAnswer {
    bool no_memory = false;
    std::optional<Refusal> refusal{};

    bool can() const { return !no_memory && !refusal; }
};

/// The messages between the stages of a pipeline, at a fixed address. An error is thrown as an `MpiFailure`, and again
/// by every later call.
class PipelineLine {
public:
    PipelineLine(const mpi::Communicator& comm, double seconds, const std::source_location& where)
        : comm_{comm.handle(), where}, seconds_{seconds} {}
    PipelineLine(const PipelineLine&) = delete;
    PipelineLine& operator=(const PipelineLine&) = delete;
    ~PipelineLine() {
        const double begun = MPI_Wtime();
        while (!finish_sends() && (seconds_ == 0 || MPI_Wtime() - begun < seconds_)) std::this_thread::yield();
        for (Sent& sent : sent_) { // its reader is gone: the numbers stay where they are
            MPI_Request_free(&sent.request);
            static_cast<void>(sent.numbers.release());
        }
    }

    const mpi::Communicator& communicator() const { return comm_; }
    bool is_first() const { return comm_.rank() == 0; }
    bool is_last() const { return comm_.rank() == comm_.size() - 1; }

    void expect_usable() const {
        if (lost_) throw mpi::MpiFailure{*lost_};
    }
    [[noreturn]] void fail(mpi::MpiError error) {
        lost_ = std::move(error);
        throw mpi::MpiFailure{*lost_};
    }

    /// Room for one more message in flight. Afterwards `word` allocates nothing.
    void reserve_word() {
        finish_sends();
        sent_.reserve(sent_.size() + 2);
        if (word_ == nullptr) word_ = std::make_unique<Numbers>();
        word_->reserve(head);
    }
    /// The pass that is open is kept, or dropped. `reserve_word` precedes it.
    void word(bool keeps) {
        word_->assign({static_cast<std::int32_t>(keeps ? LineKind::commit : LineKind::drop), ++number_, 0, 0, 0, 0, 0});
        if (!is_last()) send(comm_.rank() + 1, line_tag, std::exchange(word_, nullptr));
    }

    /// For another stage than the first: whether its pass is kept. Passed on.
    bool receive_word() {
        const LineMessage message = receive();
        if (message.kind != LineKind::commit && message.kind != LineKind::drop) fail_malformed();
        return message.kind == LineKind::commit;
    }
    /// For another stage, which has dropped its pass: the word on it comes before the next operation.
    void leave() { dropped_ = true; }

    [[noreturn]] void fail_malformed() {
        fail({mpi::MpiReason::malformed,
              comm_.rank() - 1,
              "pipeline: operation " + std::to_string(number_)
                  + " does not follow the one before, expected the word on a pass after the pass, and only there",
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

    /// Sends a message of the first stage to the next one.
    void start(LineMessage message) {
        message.number = ++number_;
        pass_on(message);
    }
    /// The next message of the stage before, which is passed on.
    LineMessage receive() {
        const int from = comm_.rank() - 1;
        if (std::exchange(dropped_, false) && receive_word())
            fail({mpi::MpiReason::differs,
                  comm_.rank(),
                  "pipeline: rank " + std::to_string(comm_.rank())
                      + " dropped a pass that the first stage committed, expected it to do the same",
                  {}});
        Numbers numbers = receive(from, line_tag, "pipeline");
        if (numbers.size() < head || numbers[0] < 0 || numbers[0] > static_cast<std::int32_t>(LineKind::end)
            || numbers[1] != ++number_)
            fail({mpi::MpiReason::malformed,
                  from,
                  "pipeline: rank " + std::to_string(from) + " sent no operation number " + std::to_string(number_)
                      + ", expected one of the same version of cellar",
                  {}});
        LineMessage message{static_cast<LineKind>(numbers[0]),
                            numbers[2] != 0,
                            {numbers[3], numbers[4], numbers[5], numbers[6]},
                            numbers[1],
                            {numbers.begin() + static_cast<std::ptrdiff_t>(head), numbers.end()}};
        pass_on(message);
        return message;
    }

    /// For the first stage: the answer of all other stages, that of the first one which cannot.
    LineAnswer answers() {
        LineAnswer found;
        for (int rank = 1; rank < comm_.size(); ++rank) {
            const Numbers answer = receive(rank, answer_tag, "pipeline");
            if (answer.size() != 6 || answer[0] != number_)
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
        for (int rank = 1; rank < comm_.size(); ++rank) send(rank, verdict_tag, Numbers{number_, goes ? 1 : 0});
    }

    /// For the others.
    void send_answer(const LineAnswer& answer) {
        const Refusal refusal = answer.refusal.value_or(Refusal{});
        send(0, answer_tag,
             Numbers{number_,
                     answer.no_memory ? 1
                     : answer.refusal ? 2
                                      : 0,
                     static_cast<std::int32_t>(refusal.reason), refusal.member, refusal.sequence.value,
                     refusal.expected.value});
    }
    bool receive_verdict() {
        const Numbers verdict = receive(0, verdict_tag, "pipeline");
        return verdict.size() == 2 && verdict[0] == number_ && verdict[1] == 1;
    }

private:
    using Numbers = std::vector<std::int32_t>;
    struct Sent {
        MPI_Request request;
        std::unique_ptr<Numbers> numbers;
    };
    static constexpr std::size_t head = 7;
    static constexpr int line_tag = 0x1b02;
    static constexpr int answer_tag = 0x1b03;
    static constexpr int verdict_tag = 0x1b04;

    void pass_on(const LineMessage& message) {
        if (is_last()) return;
        Numbers numbers{static_cast<std::int32_t>(message.kind), message.number, message.asks ? 1 : 0};
        numbers.insert(numbers.end(), message.arguments.begin(), message.arguments.end());
        numbers.insert(numbers.end(), message.rest.begin(), message.rest.end());
        send(comm_.rank() + 1, line_tag, std::move(numbers));
    }

    void send(int to, int tag, Numbers numbers) {
        finish_sends();
        send(to, tag, std::make_unique<Numbers>(std::move(numbers)));
    }
    // Does not wait for the receiver.
    void send(int to, int tag, std::unique_ptr<Numbers> numbers) {
        expect_usable();
        const int size = static_cast<int>(numbers->size());
        sent_.push_back({MPI_REQUEST_NULL, std::move(numbers)});
        Sent& sent = sent_.back();
        const int code = MPI_Isend(sent.numbers->data(), size, MPI_INT32_T, to, tag, comm_.handle(), &sent.request);
        if (code != MPI_SUCCESS) fail(error_of_code("pipeline", to, code));
    }
    // True if none is left.
    bool finish_sends() {
        std::erase_if(sent_, [](Sent& sent) {
            int done = 0;
            return MPI_Test(&sent.request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done != 0;
        });
        return sent_.empty();
    }

    Numbers receive(int from, int tag, const char* operation) {
        expect_usable();
        const double begun = MPI_Wtime();
        for (std::int64_t turns = 1;; ++turns) {
            int there = 0;
            MPI_Message message = MPI_MESSAGE_NULL;
            MPI_Status status;
            if (const int code = MPI_Improbe(from, tag, comm_.handle(), &there, &message, &status); code != MPI_SUCCESS)
                fail(error_of_code(operation, from, code));
            if (there != 0) {
                int size = 0;
                MPI_Get_count(&status, MPI_INT32_T, &size);
                Numbers numbers(static_cast<std::size_t>(size));
                if (const int code = MPI_Mrecv(numbers.data(), size, MPI_INT32_T, &message, &status);
                    code != MPI_SUCCESS)
                    fail(error_of_code(operation, from, code));
                return numbers;
            }
            if (turns % 64 == 0) {
                finish_sends();
                std::this_thread::yield();
            }
            if (seconds_ > 0 && MPI_Wtime() - begun > seconds_)
                fail({mpi::MpiReason::timed_out,
                      from,
                      std::string{operation} + ": rank " + std::to_string(from)
                          + " has sent nothing within the time limit",
                      {}});
        }
    }

    mpi::Communicator comm_;
    double seconds_;
    std::int32_t number_ = 0; // of operations, and of words on passes
    std::vector<Sent> sent_;
    std::unique_ptr<Numbers> word_;
    std::optional<mpi::MpiError> lost_;
    bool dropped_ = false; // this stage has dropped its pass
};

} // namespace cellar::detail
