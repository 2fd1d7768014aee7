// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/memory_bytes.hpp>
#include <cellar/base/result.hpp>
#include <cellar/memory/two_phase.hpp>
#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/detail/exchange.hpp>
#include <cellar/mpi/detail/joint_call.hpp>
#include <cellar/mpi/detail/patience.hpp>
#include <cellar/mpi/detail/transfers.hpp>
#include <cellar/mpi/detail/vote.hpp>
#include <cellar/mpi/mpi_result.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <new>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace cellar::detail {

/// What a rank tells the others about itself.
struct RankReport {
    std::int64_t number = 0; ///< of the operation; the first is 1
    JointCall call{};
    JointCall last{};       ///< the operation before
    std::uint64_t book = 0; ///< the hash of the bookkeeping before the operation; 0 if it is not compared
    std::int32_t failed = 0;
    std::int32_t unused = 0;
};

/// Lets the ranks of a communicator do operations together: all or none. See `mpi::LockstepMemory`.
class Lockstep {
public:
    /// `compares`: every operation compares calls and bookkeeping.
    Lockstep(const mpi::Communicator& comm, bool compares, std::chrono::milliseconds time_limit, Where where)
        : comm_{comm.handle(), where},
          compares_{compares},
          time_limit_{expect_limit("lockstep", time_limit, where)},
          reports_{comm_.size(), 0x1b01} {}
    static constexpr std::int64_t bytes_for(int ranks) {
        return bytes_of<Transfers>(1) + RankValues<RankReport>::bytes_for(ranks);
    }

    const mpi::Communicator& communicator() const { return comm_; }
    std::int64_t agreements() const { return agreements_; }

    /// A violation if the memories of the ranks do not begin alike.
    template <class M>
    void expect_same_memories(const M& memory, Where where) {
        RankReport own{.call = {.operation = JointOperation::compare}};
        own.book = MemoryAccess::book_hash(memory);
        if (exchange(own)) throw mpi::MpiFailure{*lost_};
        const DifferingRanks other = differing_ranks(reports_.all(), same_book);
        CELLAR_EXPECTS_AT(where, other.first < 0, "lockstep: other limits, windows, rotations or tokens on ",
                          ranks(other), ", expected the same on all ranks");
    }

    /// The first phase of an operation. If it had to allocate, or does not tell, all ranks wait for each other; if
    /// memory was short on one, it has failed on all. (If it does not tell, also if it failed otherwise.)
    template <class M, class Operation>
    auto prepare(M& memory, const Operation& operation) {
        return attempt(
            memory, [&] { return call_of(operation); }, [&] { return prepare_any(memory, operation); });
    }
    /// The same for a call without phases. `make` returns a `Result`.
    template <class M, class Make>
    auto make(const M& memory, const JointCall& call, Make make) {
        return attempt(
            memory, [&] { return call; }, make);
    }

    template <class M>
    mpi::MpiResult<void> compare(const M& memory) {
        if (lost_) return *lost_;
        RankReport own{.number = number_, .call = {.operation = JointOperation::compare}, .last = last_};
        own.book = MemoryAccess::book_hash(memory);
        if (exchange(own)) return *lost_;
        if (std::string message = difference(); !message.empty())
            return mpi::MpiError{mpi::MpiReason::differs, differing_, std::move(message), {}};
        return {};
    }

private:
    // `call` says what is done, for messages.
    template <class M, class Call, class Prepare>
    auto attempt(const M& memory, Call call, Prepare prepare) -> std::invoke_result_t<Prepare&> {
        constexpr bool tells = tells_allocation<std::invoke_result_t<Prepare&>>;
        if (lost_) throw mpi::MpiFailure{*lost_};
        ++number_;
        bool asks = !tells || asks_always_ || compares_;
        bool asked = false;
        const auto ask = [&](bool failed) {
            asked = true;
            agree(call(), compares_ ? MemoryAccess::book_hash(memory) : 0, failed);
        };
        try {
            auto prepared = prepare();
            if constexpr (tells) asks |= prepared.allocated;
            if (asks) ask(false);
            return prepared;
        } catch (const std::bad_alloc&) {
            if (!asked) ask(true);
            throw;
        } catch (...) {
            if (!asked && asks) ask(true);
            throw;
        }
    }

    // Throws if the operation has failed on another rank, and not on this one.
    [[gnu::noinline]] void agree(const JointCall& call, std::uint64_t book, bool failed) {
        ++agreements_;
        RankReport own{.number = number_, .call = call, .last = last_, .book = book};
        own.failed = failed ? 1 : 0;
        if (exchange(own)) throw mpi::MpiFailure{*lost_};
        const std::string message = difference();
        CELLAR_EXPECTS(message.empty(), message);
        last_ = call;
        const auto has_failed = [](const RankReport& report) { return report.failed != 0; };
        if (std::any_of(reports_.all().begin(), reports_.all().end(), has_failed)) {
            asks_always_ = true; // the ranks have different room from now on
            if (!failed) throw std::bad_alloc{};
        }
    }

    // True if a rank is lost.
    bool exchange(const RankReport& own) {
        lost_ = reports_.exchange(comm_, name_of(own.call.operation), own, time_limit_);
        return lost_.has_value();
    }

    // Which ranks made another call, or have another book. Empty if none has.
    std::string difference() {
        const auto of = [&](int rank) -> const RankReport& { return reports_.all()[static_cast<std::size_t>(rank)]; };
        const auto same_call = [](const RankReport& a, const RankReport& b) {
            return a.number == b.number && a.call == b.call;
        };
        if (const DifferingRanks other = differing_ranks(reports_.all(), same_call); other.first >= 0) {
            differing_ = other.first;
            return called(of(other.like)) + ": " + ranks(other) + " called " + called(of(other.first))
                   + ", expected the same calls on all ranks";
        }
        const DifferingRanks other = differing_ranks(reports_.all(), same_book);
        if (other.first < 0) return {};
        differing_ = other.first;
        return called(of(other.like)) + ": the bookkeeping of " + ranks(other)
               + " differs from that of the other ranks before this call, expected the same on all; the last operation "
                 "that was compared: "
               + text_of(of(other.first).last);
    }

    static bool same_book(const RankReport& a, const RankReport& b) { return a.book == b.book; }
    static std::string called(const RankReport& report) {
        return text_of(report.call) + " as operation " + std::to_string(report.number);
    }
    static std::string ranks(const DifferingRanks& other) {
        return (other.list.find(',') == std::string::npos ? "rank " : "ranks ") + other.list;
    }

    mpi::Communicator comm_;
    bool compares_;
    std::chrono::milliseconds time_limit_;
    RankValues<RankReport> reports_;
    std::optional<mpi::MpiError> lost_{};
    bool asks_always_ = false;
    std::int64_t number_ = 0; // of operations
    std::int64_t agreements_ = 0;
    JointCall last_{};
    int differing_ = -1;
};

} // namespace cellar::detail
