// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/batch.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/memory_bytes.hpp>
#include <cellar/base/named_only.hpp>
#include <cellar/base/offload_to.hpp>
#include <cellar/base/result.hpp>
#include <cellar/memory/memory.hpp>
#include <cellar/memory/two_phase.hpp>
#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/detail/joint_call.hpp>
#include <cellar/mpi/detail/lockstep.hpp>
#include <cellar/mpi/detail/memory_on_ranks.hpp>
#include <cellar/mpi/mpi_result.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

namespace cellar::mpi {

/// How ranks keep their memories alike.
struct LockstepOptions {
    NamedOnly named_only{};
    /// Every operation compares calls and bookkeeping of all ranks, and a rank that differs is a violation. Costs a
    /// message to every other rank, and O(runs). The default of a program that is compiled with `NDEBUG` is false.
#if defined(NDEBUG)
    bool compares = false;
#else
    bool compares = true;
#endif
    /// How long an operation waits for the other ranks. 0: without limit.
    std::chrono::milliseconds time_limit = std::chrono::seconds{60};
};

/// One memory on several ranks, each of which holds its own heads of every layer (tensor parallel): a `Memory` whose
/// operations all ranks call in the same order with the same arguments.
///
/// All ranks carry out an operation, or none does. Bookkeeping is the same on all ranks, so they refuse alike without a
/// message. But one rank alone may be short of memory: so an operation that has to allocate waits until all ranks have
/// allocated, and if one cannot, `std::bad_alloc` is thrown on all, with nothing changed on any. Which operations
/// allocate follows from the bookkeeping, so all ranks know it. A pass within the planned room, as in decode steps,
/// sends nothing. `commit` and `drop` never do. Operations with a snapshot, `reserve` and `defragment` always ask. Once
/// an operation was short of memory somewhere, every operation asks the other ranks. A memory of your own type asks
/// unless its `prepare` returns an `Attempt`, which tells whether it allocated. If it does not prepare
/// `op::Defragment`, its `defragment` must not throw.
///
/// A snapshot is of this rank's heads. All ranks must keep and destroy theirs together; destroying one sends nothing.
///
/// Operations of a pass (masks, `attend`) can fail on one rank alone. A backend that throws while it carries out an
/// operation ends the process. One that throws anything but `std::bad_alloc` while it allocates, on one rank alone,
/// leaves the others waiting. If a rank is dead or silent for `LockstepOptions::time_limit`, an `MpiFailure` is
/// thrown; from then on every operation throws it, and `release` returns the memory, which is whole.
template <TwoPhaseMemory M>
class LockstepMemory : public detail::MemoryOnRanks<LockstepMemory<M>, M> {
    using Base = detail::MemoryOnRanks<LockstepMemory<M>, M>;

public:
    /// False if keys and values are not here: see `NoData`.
    static constexpr bool holds_data = detail::holds_data<M>;
    /// False for operations that the memory lacks.
    template <class Operation>
    static constexpr bool performs = Performs<M, Operation>;

    /// All ranks make theirs at the same time, from memories with the same limits, windows, pairs of rotated elements
    /// and tokens: a difference is a violation on all ranks. It has its own duplicate of `comm`.
    LockstepMemory(const Communicator& comm, M memory, const LockstepOptions& options = {},
                   Where where = Where::current())
        : Base{std::move(memory)}, lockstep_{comm, options.compares, options.time_limit, where} {
        lockstep_.expect_same_memories(memory_, where);
    }

    /// What it takes on one of `ranks` ranks with a memory that takes `of_memory`: exactly, but for memory of MPI. See
    /// `Cache::bytes_for`.
    static constexpr MemoryBytes bytes_for(const MemoryBytes& of_memory, int ranks) {
        return of_memory + MemoryBytes{.bookkeeping = detail::Lockstep::bytes_for(ranks)};
    }

    /// The duplicate.
    const Communicator& communicator() const { return lockstep_.communicator(); }

    /// How many operations have asked the other ranks so far: the same number on all ranks.
    std::int64_t agreements() const { return lockstep_.agreements(); }

    /// Compares the bookkeeping of all ranks, which all call it: `differs` names those that differ from most others,
    /// and their last operation. Collective; O(runs).
    MpiResult<void> compare() { return lockstep_.compare(memory_); }

    /// Opens a pass on all ranks. Collective; else as `Cache::begin`. Communicates only if it has to allocate.
    Result<PassOf<M>> begin(const Batch& batch, Where where = Where::current()) {
        return perform(op::Begin{batch}, where);
    }
    /// The same for the next `count` tokens of s, at next(s).
    Result<PassOf<M>> begin(Sequence s, std::int32_t count, Where where = Where::current()) {
        const detail::Caller caller{where};
        return begin(this->batch_of(s, count));
    }

    /// Carries an operation out on all ranks, as its member does. A backend that throws in the second phase ends the
    /// process.
    template <class Operation>
    auto perform(const Operation& operation, Where where) {
        const detail::Caller caller{where};
        return detail::finish_if(lockstep_.prepare(memory_, operation), [&](auto&& prepared) noexcept {
            return detail::finish_any<Operation>(memory_, std::forward<decltype(prepared)>(prepared));
        });
    }

    /// Collective; else as that of the memory. Always asks the other ranks.
    PassOf<M> reserve(std::int32_t tokens, Where where = Where::current()) {
        const detail::Caller caller{where};
        return *lockstep_.make(memory_, detail::joint_call(detail::JointOperation::reserve, tokens), [&] {
            return Result<PassOf<M>>{detail::Made{[&] { return memory_.reserve(tokens); }}};
        });
    }

    /// Not collective, as `next` and the next two: answers from this rank's bookkeeping, which is that of all ranks.
    bool can_resume(Sequence s, Position p, Where where = Where::current()) const {
        const detail::Caller caller{where};
        return memory_.can_resume(s, p);
    }
    Position altered_from(Sequence s, Where where = Where::current()) const {
        const detail::Caller caller{where};
        return detail::altered_from(memory_, s);
    }
    Position resumable_prefix(Sequence s, Position p, Where where = Where::current()) const {
        const detail::Caller caller{where};
        return memory_.resumable_prefix(s, p);
    }

    /// This and the next two: as the memory answers, of this rank. Not collective.
    Cell free_cells() const requires(detail::counts_cells<M>) { return memory_.free_cells(); }
    std::int32_t cells_needed(const Batch& batch) requires(detail::counts_cells<M>) {
        return memory_.cells_needed(batch);
    }
    std::int32_t cells_freed_by(Sequence s) const requires(detail::counts_cells<M>) {
        return memory_.cells_freed_by(s);
    }

    /// For prefix trees; see `Cache`.
    template <class Snapshot>
    void set_evictable(Snapshot& snapshot, bool evictable) noexcept {
        detail::set_evictable(memory_, snapshot, evictable);
    }
    Cell evictable_cells() const requires(detail::counts_evictable<M>) { return memory_.evictable_cells(); }
    /// The same as of the memory on this rank.
    template <class Snapshot>
    bool can_restore(const Snapshot& snapshot, Position to) const {
        return detail::can_restore(memory_, snapshot, to);
    }
    /// The same as of the memory on this rank.
    template <class Snapshot>
    bool frees_cells(const Snapshot& snapshot, const Refusal& refusal) const {
        return detail::frees_cells(memory_, snapshot, refusal);
    }
    /// The same as of the memory on this rank.
    template <class ForEach>
    bool frees_together(ForEach for_each, Sequence s, const Refusal& refusal) {
        return detail::frees_together(memory_, for_each, s, refusal);
    }
    /// The same as of the memory on this rank.
    template <class Snapshot>
    std::int64_t occupied_bytes(const Snapshot& snapshot, std::optional<OffloadTo> once_it_is = {}) const {
        return detail::occupied_bytes(memory_, snapshot, once_it_is);
    }

private:
    using Base::memory_;

    detail::Lockstep lockstep_;
};

} // namespace cellar::mpi
