// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/batch.hpp>
#include <cellar/base/batch_builder.hpp>
#include <cellar/base/consecutive.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/expect_batch.hpp>
#include <cellar/base/guards.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/named_only.hpp>
#include <cellar/cache/cache.hpp>
#include <cellar/memory/two_phase.hpp>
#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/context_pass.hpp>
#include <cellar/mpi/context_snapshot.hpp>
#include <cellar/mpi/detail/context_state.hpp>
#include <cellar/mpi/detail/joint_call.hpp>
#include <cellar/mpi/mpi_result.hpp>
#include <cellar/window/resume.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <source_location>
#include <utility>

namespace cellar::mpi {

/// How positions are divided between ranks.
struct ContextOptions {
    NamedOnly named_only{};
    /// Consecutive positions on one rank: position p is stored by rank p / block % ranks. A multiple of 64,
    /// the cells of a block (see `Placement`).
    std::int32_t block = 64;
    /// How long an operation waits for the other ranks. 0: without limit.
    std::chrono::milliseconds time_limit = std::chrono::seconds{60};
};

/// A cache whose sequences are divided between ranks: blocks of positions are dealt to the ranks in turn, each rank
/// stores its own, and `mpi::attend` merges what they find. Contexts can be as long as all ranks' cells together.
///
/// All ranks make the same calls, with the same arguments. Positions are those of `Positions::consecutive`. What one
/// rank refuses is refused on all, with the same error, and nothing changes on any: `begin`, `copy_prefix`, `remove`,
/// `rewind`, `promise`, `snapshot` and `restore` send one small message to every rank for that. They also compare a
/// hash of all calls so far, and fail with `MpiReason::differs` if a rank has made other ones. `commit` and functions
/// that change nothing send nothing.
///
/// If a rank is dead or silent for `ContextOptions::time_limit`, the error names it (`timed_out`, or `lost` if MPI
/// knows that it has died). From then on every operation returns that error, and what this rank stores stays as it is.
///
/// Movable, not copyable. One thread may use it at a time.
template <class Cache>
class ContextParallel {
    using State = detail::ContextState<Cache>;
    using Pass = ContextPass<Cache>;

public:
    /// `cache`: empty, with `Positions::any`, and the same on all ranks: shape, window, sequences and batch. Its
    /// `capacity` is the length of a whole sequence; `cells` are those of this rank. All ranks make theirs at the same
    /// time. It has its own duplicate of `comm`.
    ContextParallel(const Communicator& comm, Cache cache, ContextOptions options = {},
                    const std::source_location& where = std::source_location::current())
        : state_{make_state(comm, std::move(cache), options, where)} {}

    /// Opens a pass on all ranks. Refuses as a `Cache` with `Positions::consecutive` does; `full` is that of the rank
    /// that lacks cells, which the error names. `batch.stored` is empty: the positions decide.
    MpiResult<Pass> begin(const Batch& batch, const std::source_location& where = std::source_location::current()) {
        const detail::Caller caller{where};
        State& s = state();
        expect_no_pass("begin");
        detail::expect_batch(batch, s.cache.sequences());
        CELLAR_EXPECTS(batch.stored.empty(), "begin: a list of stored tokens, expected none: the positions decide");
        const detail::JointCall call = detail::call_of(op::Begin{batch});
        auto prepared = prepare_on_all(call, [&]() -> decltype(s.cache.prepare(op::Begin{batch})) {
            if (const Result<void> can = s.check(batch); !can) return can.error();
            return s.cache.prepare(op::Begin{s.divide(batch)});
        });
        if (!prepared) return prepared.error();
        s.pass_open = true;
        return Pass{s, s.cache.finish(*std::move(prepared))};
    }
    /// The same for the next `count` tokens of s, at next(s).
    MpiResult<Pass> begin(Sequence s, std::int32_t count,
                          const std::source_location& where = std::source_location::current()) {
        const detail::Caller caller{where};
        return begin(detail::next_tokens(state().next_tokens, s, next(s), count));
    }

    /// `to` gives up its own tokens and shares those of `from` below position `end`, on each rank. No data moves.
    /// Refuses as `Cache::copy_prefix` does.
    MpiResult<void> copy_prefix(Sequence from, Sequence to, Position end,
                                const std::source_location& where = std::source_location::current()) {
        const detail::Caller caller{where};
        State& s = state();
        expect_no_pass("copy_prefix");
        const op::CopyPrefix copy{from, to, end};
        detail::KeptPositions copied = s.kept(from);
        auto prepared = prepare_on_all(detail::call_of(copy), [&]() -> decltype(s.cache.prepare(copy)) {
            auto found = s.cache.prepare(copy);
            if (!found || from == to) return found;
            copied.remove(end, to_end); // NOLINT(readability-suspicious-call-argument): from `end` on
            if (!detail::can_resume_with(cache().window(), copied, copied.end()))
                return Refusal{.reason = Reason::cannot_resume, .sequence = from};
            return found;
        });
        if (!prepared) return prepared.error();
        s.cache.finish(*std::move(prepared));
        s.kept(to) = copied;
        return {};
    }

    /// Removes positions [begin, end) of s and closes the gap: later tokens move down with their cells, on the ranks
    /// where they are, and their keys are rotated there. New tokens go to the ranks of their positions. Refuses as
    /// `Cache::remove` does.
    MpiResult<void> remove(Sequence s, Position begin, Position end,
                           const std::source_location& where = std::source_location::current()) {
        const detail::Caller caller{where};
        return remove_on_all(op::Remove{s, begin, end});
    }
    /// The same, where later keys are rotated back by `rotate_by` positions; see `Cache::remove`.
    MpiResult<void> remove(Sequence s, Position begin, Position end, RotateBy rotate_by,
                           const std::source_location& where = std::source_location::current()) {
        static_assert(
            requires(Cache & c) { c.remove(s, begin, end, rotate_by); },
            "remove: the shift of this cache rotates no keys");
        const detail::Caller caller{where};
        return remove_on_all(op::Remove{s, begin, end, rotate_by});
    }

    /// The way back: s goes on at position `to`. Refuses as `Cache::rewind` does.
    MpiResult<void> rewind(Sequence s, Position to,
                           const std::source_location& where = std::source_location::current()) {
        const detail::Caller caller{where};
        CELLAR_EXPECTS(to.value >= 0, "rewind: position ", to, ", expected 0 or more");
        expect_no_pass("rewind");
        const detail::KeptPositions& kept = state().kept(s);
        Result<void> can;
        if (to > kept.end()) {
            can = detail::not_next(s, kept.end(), to);
        } else if (!detail::can_resume_with(cache().window(), kept, to)) {
            can = detail::cannot_resume(s, to, detail::resumable_prefix_with(cache().window(), kept, to));
        }
        return remove_on_all({s, to, to_end}, detail::call_of(op::Rewind{s, to}), can);
    }

    /// Sets cells aside on each rank for those of the next `tokens` tokens of s that it will store, in place of an
    /// earlier promise: see `Cache::promise`. Refuses with `full` if one rank has too few. A removal that closes a gap
    /// moves the positions to come, and so the ranks that will store them: promise again then.
    MpiResult<void> promise(Sequence s, std::int32_t tokens,
                            const std::source_location& where = std::source_location::current()) {
        const detail::Caller caller{where};
        CELLAR_EXPECTS(tokens >= 0, "promise: ", tokens, " tokens, expected 0 or more");
        expect_no_pass("promise");
        State& all = state();
        const op::Promise own{s, all.stored_from(all.kept(s).end(), tokens)};
        auto prepared = prepare_on_all(detail::call_of(op::Promise{s, tokens}), [&] { return all.cache.prepare(own); });
        if (!prepared) return prepared.error();
        all.cache.finish(*std::move(prepared));
        return {};
    }

    /// Does not compile: a rank has blocks of positions with gaps between them, and `ReadPass::pages` wants none.
    template <class... Arguments>
    void form_pages(const Arguments&...) {
        static_assert(sizeof...(Arguments) > 99, "ContextParallel: the part of a rank has gaps, expected kernels that "
                                                 "take lists of cells");
    }

    /// What a sequence has, on all ranks. No data moves. Refuses with `cannot_resume` if the sequence cannot go on from
    /// its last token.
    MpiResult<ContextSnapshot> snapshot(Sequence sequence,
                                        const std::source_location& where = std::source_location::current()) {
        const detail::Caller caller{where};
        State& s = state();
        expect_no_pass("snapshot");
        const detail::KeptPositions& kept = s.kept(sequence);
        const op::Snapshot operation{.sequence = sequence, .to = kept.end(), .unchecked = true};
        auto prepared = prepare_on_all(detail::call_of(operation), [&]() -> decltype(s.cache.prepare(operation)) {
            if (!detail::can_resume_with(s.cache.window(), kept, kept.end()))
                return Refusal{.reason = Reason::cannot_resume, .sequence = sequence};
            return s.cache.prepare(operation);
        });
        if (!prepared) return prepared.error();
        return ContextSnapshot{s.cache.finish(*std::move(prepared)), kept, ++s.snapshots};
    }

    /// The sequence gives up its tokens, and shares those of a snapshot of this memory, on all ranks.
    MpiResult<void> restore(Sequence sequence, const ContextSnapshot& snapshot,
                            const std::source_location& where = std::source_location::current()) {
        const detail::Caller caller{where};
        State& s = state();
        expect_no_pass("restore");
        static_cast<void>(s.kept(sequence)); // checks it
        s.calls.add(snapshot.number_);
        const op::Restore<CellSnapshot> restore{sequence, snapshot.local_, snapshot.to(), true};
        auto prepared = prepare_on_all(detail::call_of(restore), [&] { return s.cache.prepare(restore); });
        if (!prepared) return prepared.error();
        s.cache.finish(*std::move(prepared));
        s.kept(sequence) = snapshot.kept_;
        return {};
    }

    /// The position of the next token of s: after its last one, on whichever rank that is, or where it was cut.
    Position next(Sequence s, const std::source_location& where = std::source_location::current()) const {
        const detail::Caller caller{where};
        return state().kept(s).end();
    }

    /// True if everything that a query at p would see below p is still kept, by all ranks together. Never beyond
    /// next(s).
    bool can_resume(Sequence s, Position p, const std::source_location& where = std::source_location::current()) const {
        const detail::Caller caller{where};
        CELLAR_EXPECTS(p.value >= 0, "can_resume: position ", p, ", expected 0 or more");
        const detail::KeptPositions& kept = state().kept(s);
        return p <= kept.end() && detail::can_resume_with(cache().window(), kept, p);
    }

    /// The largest q <= p with can_resume(s, q).
    Position resumable_prefix(Sequence s, Position p,
                              const std::source_location& where = std::source_location::current()) const {
        const detail::Caller caller{where};
        CELLAR_EXPECTS(p.value >= 0, "resumable_prefix: position ", p, ", expected 0 or more");
        const detail::KeptPositions& kept = state().kept(s);
        return detail::resumable_prefix_with(cache().window(), kept, std::min(p, kept.end()));
    }

    /// The rank that stores new tokens at position p.
    int rank_of(Position p, const std::source_location& where = std::source_location::current()) const {
        CELLAR_EXPECTS_AT(where, p.value >= 0, "rank_of: position ", p, ", expected 0 or more");
        return state().rank_of(p);
    }

    /// This rank's part: `statistics()`, `tokens(s)` and `bytes()` count what it stores.
    const Cache& cache() const { return state().cache; }

    int ranks() const { return state().comm.size(); }
    int layers() const { return cache().layers(); }
    std::int32_t sequences() const { return cache().sequences(); }

    /// Blocks until all enqueued work of this rank is done.
    void fence() { state().cache.fence(); }

private:
    static std::unique_ptr<State> make_state(const Communicator& comm, Cache&& cache, const ContextOptions& options,
                                             const std::source_location& where) {
        const detail::Caller caller{where};
        CELLAR_EXPECTS(options.block > 0 && options.block % 64 == 0, "ContextParallel: a block of ", options.block,
                       " positions, expected a multiple of 64");
        CELLAR_EXPECTS(options.time_limit.count() >= 0, "ContextParallel: a time limit of ", options.time_limit.count(),
                       " ms, expected 0 or more");
        CELLAR_EXPECTS(cache.limits().positions == Positions::any,
                       "ContextParallel: a cache of consecutive positions, expected Positions::any");
        CELLAR_EXPECTS(cache.statistics().tokens == 0, "ContextParallel: a cache with ", cache.statistics().tokens,
                       " tokens, expected an empty one");
        return std::make_unique<State>(comm, std::move(cache), options.block, options.time_limit, where);
    }

    // The first phase of an operation. Collective: what was prepared, if every rank could; else nothing has changed on
    // any.
    template <class Prepare>
    auto prepare_on_all(const detail::JointCall& call, Prepare prepare)
        -> MpiResult<detail::ValueOf<decltype(prepare())>> {
        State& s = state();
        const char* const operation = detail::name_of(call.operation);
        s.note(call);
        if (s.lost) return *s.lost;
        detail::Vote vote{.calls = s.calls.value()};
        auto prepared = detail::prepared_for(vote, prepare);
        s.lost = s.votes.exchange(s.comm, operation, vote, s.time_limit);
        if (s.lost) return *s.lost;
        if (auto error = detail::error_of_votes(operation, s.votes.all())) return *std::move(error);
        return *std::move(prepared);
    }

    MpiResult<void> remove_on_all(const op::Remove& remove) {
        expect_no_pass("remove");
        detail::KeptPositions after = state().kept(remove.sequence);
        const Position before = after.end();
        after.remove(remove.begin, remove.end);
        Result<void> can;
        if (after.end() != before && !detail::can_resume_with(cache().window(), after, after.end()))
            can = Refusal{.reason = Reason::cannot_resume, .sequence = remove.sequence};
        return remove_on_all(remove, detail::call_of(remove), can);
    }
    // `can`: what all ranks refuse, unless this one refuses for a reason of its own.
    MpiResult<void> remove_on_all(const op::Remove& remove, const detail::JointCall& call, const Result<void>& can) {
        State& s = state();
        detail::KeptPositions after = s.kept(remove.sequence);
        const bool had_tokens = after.has_tokens();
        after.remove(remove.begin, remove.end);
        auto prepared = prepare_on_all(call, [&]() -> decltype(s.cache.prepare(remove)) {
            auto found = s.cache.prepare(remove);
            if (found && !can) return can.error();
            return found;
        });
        if (!prepared) return prepared.error();
        // A promise ends with the last token of all ranks, not with that of one.
        prepared->empties = remove.begin < remove.end && !after.has_tokens() && (had_tokens || remove.begin.value == 0);
        s.cache.finish(*std::move(prepared));
        s.kept(remove.sequence) = after;
        return {};
    }

    void expect_no_pass(const char* operation) const { detail::expect_no_pass(operation, state().pass_open); }

    State& state() { return const_cast<State&>(std::as_const(*this).state()); }
    const State& state() const { return detail::expect_not_moved(state_, "memory"); }

    std::unique_ptr<State> state_;
};

} // namespace cellar::mpi
