// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/batch.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/guards.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/memory_bytes.hpp>
#include <cellar/base/named_only.hpp>
#include <cellar/base/result.hpp>
#include <cellar/memory/two_phase.hpp>
#include <cellar/mpi/broadcast.hpp>
#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/detail/joint_call.hpp>
#include <cellar/mpi/detail/memory_on_ranks.hpp>
#include <cellar/mpi/detail/pipeline_line.hpp>
#include <cellar/mpi/detail/vote.hpp>
#include <cellar/mpi/mpi_result.hpp>

#include <chrono>
#include <concepts>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

namespace cellar::mpi {

/// How the stages of a pipeline wait for each other.
struct PipelineOptions {
    NamedOnly named_only{};
    /// Every operation waits until all stages have prepared it. Needed if the memories of the stages have different
    /// kinds of members, because a stage may then refuse what the first one accepts. Stages then work on one batch at
    /// a time.
    bool asks_always = false;
    /// How long a stage waits for a message. 0: without limit.
    std::chrono::milliseconds time_limit = std::chrono::seconds{60};
};

/// A pass over a batch in one stage. If the first stage commits its pass, all stages keep the tokens. If it drops the
/// pass, or destroys it without `commit`, the pass is dropped in all stages. Must not outlive its stage.
template <class Pass>
class [[nodiscard]] PipelinePass {
public:
    PipelinePass(PipelinePass&& other) noexcept(std::is_nothrow_move_constructible_v<Pass>)
        : pass_{std::move(other.pass_)}, line_{std::exchange(other.line_, nullptr)} {}
    PipelinePass& operator=(PipelinePass&&) = delete;
    /// Drops the pass, if it is open.
    ~PipelinePass() { drop(); }

    std::int32_t tokens() const { return pass_.tokens(); }

    /// See `MemoryPass`. Layers are counted within the stage.
    template <class F>
    decltype(auto) visit(int layer, F&& f, Where where = Where::current()) & {
        return pass_.visit(layer, std::forward<F>(f), where);
    }

    /// The pass of this stage's memory. Do not commit or drop it: it ends with this pass.
    Pass& local() & { return pass_; }

    /// Ends the pass. In the first stage: keeps its tokens. Elsewhere: waits for the message by which the first stage
    /// commits or drops, which has usually arrived, and does the same. Returns false if the pass was dropped. Throws
    /// `MpiFailure`; the pass is then dropped.
    bool commit(Where where = Where::current()) {
        const detail::Caller caller{where};
        detail::expect_open(line_);
        pass_.expect_complete();
        bool keeps = true;
        try {
            line_->is_first() ? line_->word(true) : static_cast<void>(keeps = line_->receive_word());
        } catch (...) {
            pass_.drop();
            std::exchange(line_, nullptr)->leave();
            throw;
        }
        line_ = nullptr;
        keeps ? pass_.finish_commit() : pass_.drop();
        return keeps;
    }

    /// Undoes the pass. In another stage than the first, this is allowed only if the first one drops it, too.
    void drop() noexcept {
        if (line_ == nullptr) return;
        pass_.drop();
        detail::PipelineLine& line = *std::exchange(line_, nullptr);
        try {
            line.is_first() ? line.word(false) : line.leave();
        } catch (const MpiFailure&) {} // thrown again by the next operation
    }

    /// For cellar itself.
    template <class Opened>
    PipelinePass(detail::PipelineLine& line, Opened opened) : pass_{opened()}, line_{&line} {
        line.begin_pass();
    }

private:
    Pass pass_;
    detail::PipelineLine* line_; // null once it is over
};

/// The memory of one stage of a pipeline, whose ranks have the layers of a model in order (`layers_of`). The first
/// stage decides; its operations travel down the line, beside the program's activations, and the others carry them out
/// in the same order: to call one elsewhere is a violation. Stages work on different batches at the same time.
///
/// All stages have the same limits and the same kinds of members, so their bookkeeping is the same, and only the first
/// one can refuse. Each recomputes which cells a batch takes, because that costs less than receiving them. An operation
/// that has to allocate, as the first stage knows, waits until all stages have prepared it. If one is short of memory,
/// `std::bad_alloc` is thrown in the first stage, with nothing changed in any.
///
/// If a rank is dead or silent for `PipelineOptions::time_limit`, an `MpiFailure` is thrown; from then on every
/// operation throws it, and `release` returns the memory, which is whole. Send activations and results without
/// blocking: the first stage may wait for the others in any operation.
template <TwoPhaseMemory M>
class PipelineStage : public detail::MemoryOnRanks<PipelineStage<M>, M> {
    using Base = detail::MemoryOnRanks<PipelineStage<M>, M>;
    using Operation = detail::JointOperation;
    using Message = detail::LineMessage;

public:
    using Pass = PipelinePass<PassOf<M>>;

    /// False for operations with snapshots, and others that are not sent down the line.
    template <class Operation>
    static constexpr bool
        performs = detail::is_among<Operation, op::CopyPrefix, op::Remove, op::Schedule, op::Unschedule, op::Promise,
                                    op::FormPages> || (std::same_as<Operation, op::Rewind> && Performs<M, op::Rewind>);

    /// All ranks make theirs at the same time. It has its own duplicate of `comm`.
    PipelineStage(const Communicator& comm, M memory, const PipelineOptions& options = {},
                  Where where = Where::current())
        : Base{std::move(memory)},
          line_{std::make_unique<detail::PipelineLine>(comm, options.time_limit, where)},
          asks_always_{options.asks_always},
          shared_{0} {}

    /// What it takes with a memory that takes `of_memory`: exactly, but for memory of MPI. See `Cache::bytes_for`.
    /// Later, it adds messages in flight, and a `SharedBatch` of the longest batch.
    static constexpr MemoryBytes bytes_for(const MemoryBytes& of_memory) {
        constexpr std::int64_t of_empty_batch = 12;
        return of_memory + MemoryBytes{.bookkeeping = detail::PipelineLine::bytes_for() + of_empty_batch};
    }

    /// True if this stage begins passes and sends them to the next one.
    bool is_first() const { return line().is_first(); }
    /// True if the output of this stage is that of the model.
    bool is_last() const { return line().is_last(); }

    /// First stage only: opens a pass, and sends the batch with the ids of its tokens, if any, down the line.
    Result<Pass> begin(const Batch& batch, std::span<const std::int32_t> ids = {}, Where where = Where::current()) {
        const detail::Caller caller{where};
        expect_first("begin");
        const op::Begin operation{batch};
        auto prepared = decide(operation, [&] {
            shared_.assign(batch, ids);
            return Message{.call = detail::joint_call(Operation::begin), .rest = shared_.message()};
        });
        if (!prepared) return prepared.error();
        return detail::Made{[&] { return open(*std::move(prepared)); }};
    }
    /// The same for the next `count` tokens of s, at next(s).
    Result<Pass> begin(Sequence s, std::int32_t count, std::span<const std::int32_t> ids = {},
                       Where where = Where::current()) {
        const detail::Caller caller{where};
        return begin(this->batch_of(s, count), ids);
    }

    /// First stage only: carries an operation out in all stages, as its member does.
    template <class Operation>
    Result<void> perform(const Operation& operation, Where where) {
        const detail::Caller caller{where};
        const detail::JointCall call = detail::call_of(operation);
        expect_first(detail::name_of(call.operation));
        return detail::finish_if(decide(operation, [&] { return Message{.call = call}; }), [&](auto&& prepared) {
            return detail::finish_any<Operation>(memory_, std::forward<decltype(prepared)>(prepared));
        });
    }

    /// Does not compile. The other stages carry operations out in `begin_received`, and have no place for a snapshot
    /// there. After `end`, take one of `memory()` in every stage, and restore it in every stage.
    template <class... Arguments>
    void snapshot(const Arguments&...) {
        refuse_snapshots<Arguments...>();
    }
    template <class... Arguments>
    void restore(const Arguments&...) {
        refuse_snapshots<Arguments...>();
    }

    /// First stage only: the others return from `begin_received` without a pass.
    void end(Where where = Where::current()) {
        const detail::Caller caller{where};
        expect_first("end");
        line_->expect_no_pass("end");
        line_->start({.call = detail::joint_call(Operation::end)});
    }

    /// In the other stages: carries out what the first stage did, up to its next pass, which it opens. Blocks until
    /// then. Empty after `end`. If this throws `std::bad_alloc`, call it again: it goes on where it was.
    std::optional<Pass> begin_received(Where where = Where::current()) {
        const detail::Caller caller{where};
        CELLAR_EXPECTS(!is_first(), "begin_received: the first stage decides, expected another one");
        line_->expect_no_pass("begin_received");
        while (true) {
            const Message received = line_->receive([&](std::size_t rest) { shared_.reserve_message(rest); });
            if (received.call.operation == Operation::end) return std::nullopt;
            if (received.call.operation != Operation::begin) {
                carry_out(received);
                continue;
            }
            if (!shared_.assign_message(received.rest)) line_->fail_malformed();
            if (auto prepared = follow(received, op::Begin{shared_})) return open(*std::move(prepared));
        }
    }
    /// In the other stages: the batch of the open pass, with the ids of its tokens. Valid until the next pass.
    const SharedBatch& received() const { return shared_; }

private:
    template <class... Arguments>
    static void refuse_snapshots() {
        static_assert(sizeof...(Arguments) > 99,
                      "PipelineStage: snapshots are not sent down the line, expected those of memory() in every stage");
    }
    const detail::PipelineLine& line() const { return detail::expect_not_moved(line_, "stage"); }
    void expect_first(const char* operation) const {
        CELLAR_EXPECTS(is_first(), operation, ": this is stage ", line_->communicator().rank(),
                       ", expected the first one, which decides");
        line_->expect_usable();
    }

    // In the other stages: what is no pass.
    void carry_out(const Message& received) {
        const auto& [a, b, c, d] = received.call.arguments;
        switch (received.call.operation) {
        case Operation::copy_prefix:
            return carry_out(received, op::CopyPrefix{Sequence{a}, Sequence{b}, Position{c}});
        case Operation::remove:
            return carry_out(received, received.call.count == 3
                                           ? op::Remove{Sequence{a}, Position{b}, Position{c}}
                                           : op::Remove{Sequence{a}, Position{b}, Position{c}, RotateBy{d}});
        case Operation::rewind:
            if constexpr (Performs<M, op::Rewind>) return carry_out(received, op::Rewind{Sequence{a}, Position{b}});
            break;
        case Operation::promise:
            return carry_out(received, op::Promise{Sequence{a}, b});
        case Operation::form_pages:
            return carry_out(received, op::FormPages{Sequence{a}, b});
        case Operation::schedule:
            return carry_out(received, op::Schedule{Sequence{a}, Position{b}});
        case Operation::unschedule:
            return carry_out(received, op::Unschedule{Sequence{a}, Position{b}});
        default:
            break;
        }
        line_->fail_malformed();
    }
    template <class Operation>
    void carry_out(const Message& received, const Operation& operation) {
        if (auto prepared = follow(received, operation)) detail::finish_any<Operation>(memory_, *std::move(prepared));
    }

    // The first stage. What it refuses without having allocated is sent to nobody.
    template <class Operation, class MakeMessage>
    auto decide(const Operation& operation, const MakeMessage& make_message) {
        bool asks = asks_always_;
        auto prepared = [&] {
            try {
                auto found = detail::prepare_any(memory_, operation);
                if constexpr (detail::tells_allocation<decltype(found)>) {
                    asks |= found.allocated;
                } else {
                    asks = true;
                }
                if (!asks && !found) return found;
                Message message = make_message();
                message.asks = asks;
                line_->start(message);
                return found;
            } catch (const std::bad_alloc&) {
                asks_always_ = true; // this stage may have other room than the others from now on
                throw;
            }
        }();
        if (!asks) return prepared;
        const detail::Vote answer = line_->answers();
        line_->send_verdict(prepared && answer.can());
        asks_always_ = asks_always_ || answer.no_memory;
        if (!prepared) return prepared;
        if (answer.no_memory) throw std::bad_alloc{};
        if (answer.refusal) return decltype(prepared){*answer.refusal};
        return prepared;
    }

    // Another stage. Empty if the operation is not to be carried out.
    template <class Operation>
    auto follow(const Message& received, const Operation& operation) {
        detail::Vote answer;
        auto prepared = detail::prepared_for(answer, [&] { return detail::prepare_any(memory_, operation); });
        if (received.asks) {
            line_->send_answer(answer);
            if (!line_->receive_verdict()) prepared.reset();
        } else if (!answer.can()) {
            line_->fail_to_follow(answer);
        }
        return prepared;
    }

    template <class Prepared>
    Pass open(Prepared prepared) {
        return Pass{*line_, [&]() noexcept { return memory_.finish(std::move(prepared)); }};
    }

    using Base::memory_;

    std::unique_ptr<detail::PipelineLine> line_; // at a fixed address, for the pass
    bool asks_always_;
    SharedBatch shared_;
};

} // namespace cellar::mpi
