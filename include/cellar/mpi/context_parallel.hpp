// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/batch.hpp>
#include <cellar/base/batch_builder.hpp>
#include <cellar/base/consecutive.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/expect_batch.hpp>
#include <cellar/base/guards.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/memory_bytes.hpp>
#include <cellar/base/named_only.hpp>
#include <cellar/cache/cache.hpp>
#include <cellar/cache/cache_limits.hpp>
#include <cellar/cache/cell_snapshot.hpp>
#include <cellar/memory/memory.hpp>
#include <cellar/memory/two_phase.hpp>
#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/detail/context_state.hpp>
#include <cellar/mpi/detail/joint_call.hpp>
#include <cellar/mpi/detail/kept_positions.hpp>
#include <cellar/mpi/detail/patience.hpp>
#include <cellar/mpi/detail/vote.hpp>
#include <cellar/mpi/mpi_result.hpp>
#include <cellar/window/resume.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
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

/// One forward pass over a batch whose tokens are divided between ranks. All ranks have one for the same batch, and
/// make the same calls. Each puts the keys and values of the tokens that it stores, and calls `attend` for all tokens.
/// Destroyed without `commit`, it is dropped: on all ranks, the memory is as if it had never begun. One pass may be
/// open at a time; it must not outlive its memory.
template <class Cache>
class [[nodiscard]] ContextPass {
    using State = detail::ContextState<Cache>;

public:
    ContextPass(ContextPass&& other) noexcept
        : state_{std::exchange(other.state_, nullptr)}, local_{std::move(other.local_)} {}
    ContextPass& operator=(ContextPass&&) = delete;
    ~ContextPass() { drop(); }

    /// The tokens of the batch: each rank has the queries of all.
    std::int32_t tokens() const { return local_.tokens(); }

    /// The tokens that this rank stores, as indices into the batch, in ascending order.
    std::span<const std::int32_t> stored_indices(Where where = Where::current()) const {
        const detail::Caller caller{where};
        return state().stored;
    }

    /// Stores the keys [stored, kv_heads, key_dim] and values [stored, kv_heads, value_dim] of the tokens in
    /// `stored_indices()`, in their order; see `CachePass::put`. Not needed if there are none.
    template <class K, class V>
    void put(int layer, const K& k, const V& v, Where where = Where::current()) & {
        const detail::Caller caller{where};
        static_cast<void>(state());
        local_.put(layer, k, v, where);
    }
    template <class K, class V>
    void put(int, const K&, const V&) && = delete; // the pass is dropped at the end of the line

    /// This rank's part. It commits and drops with this pass, and not by itself.
    const PassOf<Cache>& local() const& { return local_; }

    /// Keeps the batch's tokens, and forgets tokens that fell out of the retention. A layer that was not put is a
    /// violation. Sends no message.
    void commit(Where where = Where::current()) {
        const detail::Caller caller{where};
        State& s = state();
        local_.commit(where);
        state_ = nullptr;
        s.commit();
    }

    /// Undoes the pass, as the destructor does. Sends no message.
    void drop() noexcept {
        if (state_ == nullptr) return;
        local_.drop();
        std::exchange(state_, nullptr)->drop();
    }

    /// For cellar itself.
    ContextPass(State& the_state, PassOf<Cache>&& local) : state_{&the_state}, local_{std::move(local)} {}

private:
    friend struct ::cellar::MemoryAccess;

    State& state() const { return detail::expect_open(state_); }

    State* state_;
    PassOf<Cache> local_;
};

/// What a sequence has, kept whatever happens to the sequence: the cells of this rank, in place, and which positions
/// all ranks have. Made by `ContextParallel::snapshot` on all ranks. Each rank may destroy its own at any time: its
/// cells are then free again. Move-only. Must not be used after its memory was destroyed.
class ContextSnapshot {
public:
    /// The position of the next token.
    Position to() const { return kept_.end(); }

    /// How many tokens this rank has of it.
    std::int32_t stored_tokens() const { return local_.tokens(); }

private:
    template <class Cache>
    friend class ContextParallel;

    ContextSnapshot(CellSnapshot&& local, const detail::KeptPositions& kept, std::uint64_t number)
        : local_{std::move(local)}, kept_{kept}, number_{number} {}

    CellSnapshot local_;
    detail::KeptPositions kept_;
    std::uint64_t number_; // the same on all ranks
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
    static_assert(
        requires { typename Cache::window_type; },
        "ContextParallel: expected a Cache, because it divides the positions of one; a hybrid has several, also where "
        "they are a cache and its residual");

    using State = detail::ContextState<Cache>;
    using Pass = ContextPass<Cache>;

public:
    /// `cache`: empty, with `Positions::any`, and the same on all ranks: shape, window, sequences and batch. Its
    /// `capacity` is the length of a whole sequence; `cells` are those of this rank. All ranks make theirs at the same
    /// time. It has its own duplicate of `comm`.
    ContextParallel(const Communicator& comm, Cache cache, ContextOptions options = {}, Where where = Where::current())
        : state_{make_state(comm, std::move(cache), options, where)} {}

    /// What it takes on one of `ranks` ranks with a cache of these limits that takes `of_cache`: exactly, but not what
    /// MPI takes. See `Cache::bytes_for`. Later, `attend` adds partial results.
    static constexpr MemoryBytes bytes_for(const MemoryBytes& of_cache, const CacheLimits& limits, int ranks) {
        return of_cache + MemoryBytes{.bookkeeping = State::bytes_for(limits, ranks)};
    }

    /// Opens a pass on all ranks. Refuses as a `Cache` with `Positions::consecutive` does; `full` is that of the rank
    /// that lacks cells, which the error names. `batch.stored` is empty: the positions decide.
    MpiResult<Pass> begin(const Batch& batch, Where where = Where::current()) {
        const detail::Caller caller{where};
        State& s = state();
        detail::expect_batch(batch, s.cache.sequences());
        CELLAR_EXPECTS(batch.stored.empty(), "begin: a list of stored tokens, expected none: the positions decide");
        const op::Begin begin{batch};
        auto prepared = prepare_on_all(detail::call_of(begin), [&]() -> decltype(s.cache.prepare(begin)) {
            if (const Result<void> can = s.check(batch); !can) return can.error();
            return s.cache.prepare(op::Begin{s.divide(batch)});
        });
        if (!prepared) return prepared.error();
        s.pass_open = true;
        return Pass{s, s.cache.finish(*std::move(prepared))};
    }
    /// The same for the next `count` tokens of s, at next(s).
    MpiResult<Pass> begin(Sequence s, std::int32_t count, Where where = Where::current()) {
        const detail::Caller caller{where};
        return begin(detail::next_tokens(state().next_tokens, s, next(s), count));
    }

    /// `to` gives up its own tokens and shares those of `from` below position `end`, on each rank. No data moves.
    /// Refuses as `Cache::copy_prefix` does.
    MpiResult<void> copy_prefix(Sequence from, Sequence to, Position end, Where where = Where::current()) {
        const detail::Caller caller{where};
        const op::CopyPrefix copy{from, to, end};
        detail::KeptPositions copied = state().kept(from);
        const auto can = [&]() -> Result<void> {
            if (from == to) return {};
            copied.remove(end, to_end); // NOLINT(readability-suspicious-call-argument): from `end` on
            return resumes(from, copied, copied.end());
        };
        if (auto done = perform(detail::call_of(copy), copy, can); !done) return done;
        state().kept(to) = copied;
        return {};
    }

    /// Removes positions [begin, end) of s and closes the gap: later tokens move down with their cells, on the ranks
    /// where they are, and their keys are rotated there. New tokens go to the ranks of their positions. Refuses as
    /// `Cache::remove` does.
    MpiResult<void> remove(Sequence s, Position begin, Position end, Where where = Where::current()) {
        const detail::Caller caller{where};
        return remove_on_all(op::Remove{s, begin, end});
    }
    /// The same, where later keys are rotated back by `rotate_by` positions; see `Cache::remove`.
    MpiResult<void> remove(Sequence s, Position begin, Position end, RotateBy rotate_by,
                           Where where = Where::current()) {
        static_assert(
            requires(Cache & c) { c.remove(s, begin, end, rotate_by); },
            "remove: the shift of this cache rotates no keys");
        const detail::Caller caller{where};
        return remove_on_all(op::Remove{s, begin, end, rotate_by});
    }

    /// The way back: s goes on at position `to`. Refuses as `Cache::rewind` does.
    MpiResult<void> rewind(Sequence s, Position to, Where where = Where::current()) {
        const detail::Caller caller{where};
        CELLAR_EXPECTS(to.value >= 0, "rewind: position ", to, ", expected 0 or more");
        const detail::KeptPositions& kept = state().kept(s);
        const Result<void> can = to > kept.end() ? detail::not_next(s, kept.end(), to) : resumes(s, kept, to);
        return remove_on_all({s, to, to_end}, detail::call_of(op::Rewind{s, to}), can);
    }

    /// Sets cells aside on each rank for those of the next `tokens` tokens of s that it will store, in place of an
    /// earlier promise: see `Cache::promise`. Refuses with `full` if one rank has too few. A removal that closes a gap
    /// moves the positions to come, and so the ranks that will store them: promise again then.
    MpiResult<void> promise(Sequence s, std::int32_t tokens, Where where = Where::current()) {
        const detail::Caller caller{where};
        CELLAR_EXPECTS(tokens >= 0, "promise: ", tokens, " tokens, expected 0 or more");
        const op::Promise own{s, state().stored_from(state().kept(s).end(), tokens)};
        return perform(detail::call_of(op::Promise{s, tokens}), own);
    }

    /// Does not compile: a rank has blocks of positions with gaps between them, which page tables cannot have.
    /// `mpi::attend` reads the blocks of all ranks.
    template <class... Arguments>
    void form_pages(const Arguments&...) {
        static_assert(sizeof...(Arguments) > 99, "ContextParallel: the part of a rank has gaps, which page tables "
                                                 "cannot have, expected mpi::attend");
    }

    /// What a sequence has, on all ranks. No data moves. Refuses with `cannot_resume` if the sequence cannot go on from
    /// its last token.
    MpiResult<ContextSnapshot> snapshot(Sequence sequence, Where where = Where::current()) {
        const detail::Caller caller{where};
        State& s = state();
        const detail::KeptPositions& kept = s.kept(sequence);
        const op::Snapshot own{.sequence = sequence, .to = kept.end(), .unchecked = true};
        auto prepared = prepare_on_all(detail::call_of(own),
                                       [&] { return part(own, [&] { return resumes(sequence, kept, kept.end()); }); });
        if (!prepared) return prepared.error();
        return ContextSnapshot{s.cache.finish(*std::move(prepared)), kept, ++s.snapshots};
    }

    /// The sequence gives up its tokens, and shares those of a snapshot of this memory, on all ranks.
    MpiResult<void> restore(Sequence sequence, const ContextSnapshot& snapshot, Where where = Where::current()) {
        const detail::Caller caller{where};
        detail::KeptPositions& kept = state().kept(sequence);
        const op::Restore<CellSnapshot> own{sequence, snapshot.local_, snapshot.to(), true};
        detail::JointCall call = detail::call_of(own);
        call.batch = snapshot.number_; // not only one with the same positions
        if (auto done = perform(call, own); !done) return done;
        kept = snapshot.kept_;
        return {};
    }

    /// The position of the next token of s: after its last one, on whichever rank that is, or where it was cut.
    Position next(Sequence s, Where where = Where::current()) const {
        const detail::Caller caller{where};
        return state().kept(s).end();
    }

    /// True if everything that a query at p would see below p is still kept, by all ranks together. Never beyond
    /// next(s).
    bool can_resume(Sequence s, Position p, Where where = Where::current()) const {
        const detail::Caller caller{where};
        CELLAR_EXPECTS(p.value >= 0, "can_resume: position ", p, ", expected 0 or more");
        const detail::KeptPositions& kept = state().kept(s);
        return p <= kept.end() && detail::can_resume_with(cache().window(), kept, p);
    }

    /// The largest q <= p with can_resume(s, q).
    Position resumable_prefix(Sequence s, Position p, Where where = Where::current()) const {
        const detail::Caller caller{where};
        CELLAR_EXPECTS(p.value >= 0, "resumable_prefix: position ", p, ", expected 0 or more");
        const detail::KeptPositions& kept = state().kept(s);
        return detail::resumable_prefix_with(cache().window(), kept, std::min(p, kept.end()));
    }

    /// The rank that stores new tokens at position p.
    int rank_of(Position p, Where where = Where::current()) const {
        CELLAR_EXPECTS_AT(where, p.value >= 0, "rank_of: position ", p, ", expected 0 or more");
        return state().rank_of(p);
    }

    /// This rank's part: `statistics()`, `tokens(s)` and `bytes()` count what it stores.
    const Cache& cache() const { return state().cache; }

    /// The number of ranks between which sequences are divided.
    int ranks() const { return state().comm.size(); }
    int layers() const { return cache().layers(); }
    std::int32_t sequences() const { return cache().sequences(); }

    /// Blocks until all enqueued work of this rank is done.
    void fence() { state().cache.fence(); }

private:
    static std::unique_ptr<State> make_state(const Communicator& comm, Cache&& cache, const ContextOptions& options,
                                             Where where) {
        const detail::Caller caller{where};
        CELLAR_EXPECTS(options.block > 0 && options.block % 64 == 0, "ContextParallel: a block of ", options.block,
                       " positions, expected a multiple of 64");
        detail::expect_limit("ContextParallel", options.time_limit, where);
        CELLAR_EXPECTS(cache.limits().positions == Positions::any,
                       "ContextParallel: a cache of consecutive positions, expected Positions::any");
        CELLAR_EXPECTS(cache.statistics().tokens == 0, "ContextParallel: a cache with ", cache.statistics().tokens,
                       " tokens, expected an empty one");
        return std::make_unique<State>(comm, std::move(cache), options.block, options.time_limit, where);
    }

    // Both phases of an operation. `own` is this rank's part of it.
    template <class Operation, class Can>
    MpiResult<void> perform(const detail::JointCall& call, const Operation& own, Can can) {
        auto prepared = prepare_on_all(call, [&] { return part(own, can); });
        if (!prepared) return prepared.error();
        state().cache.finish(*std::move(prepared));
        return {};
    }
    template <class Operation>
    MpiResult<void> perform(const detail::JointCall& call, const Operation& own) {
        return perform(call, own, [] { return Result<void>{}; });
    }

    // The first phase of this rank's part. `can()`: what all ranks refuse, unless one refuses its part.
    template <class Operation, class Can>
    auto part(const Operation& own, Can can) -> decltype(std::declval<Cache&>().prepare(own)) {
        auto prepared = state().cache.prepare(own);
        if (!prepared) return prepared;
        if (const Result<void> all = can(); !all) return all.error();
        return prepared;
    }

    // The first phase of an operation. Collective: what was prepared, if every rank could; else nothing has changed on
    // any.
    template <class Prepare>
    auto prepare_on_all(const detail::JointCall& call, Prepare prepare)
        -> MpiResult<detail::ValueOf<decltype(prepare())>> {
        State& s = state();
        const char* const operation = detail::name_of(call.operation);
        detail::expect_no_pass(operation, s.pass_open);
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
        const auto& window = cache().window();
        const detail::KeptPositions& kept = state().kept(remove.sequence);
        detail::KeptPositions after = kept;
        after.remove(remove.begin, remove.end);
        Result<void> can;
        if (after.end() != kept.end() && !detail::can_resume_with(window, after, after.end()))
            can = detail::cannot_resume(remove.sequence, after.end(),
                                        detail::resumable_prefix_with(window, kept, remove.begin));
        return remove_on_all(remove, detail::call_of(remove), can);
    }
    MpiResult<void> remove_on_all(const op::Remove& remove, const detail::JointCall& call, const Result<void>& can) {
        State& s = state();
        detail::KeptPositions after = s.kept(remove.sequence);
        const bool had_tokens = after.has_tokens();
        after.remove(remove.begin, remove.end);
        auto prepared = prepare_on_all(call, [&] { return part(remove, [&] { return can; }); });
        if (!prepared) return prepared.error();
        // A promise ends with the last token of all ranks, not with that of one.
        prepared->empties = remove.begin < remove.end && !after.has_tokens() && (had_tokens || remove.begin.value == 0);
        s.cache.finish(*std::move(prepared));
        s.kept(remove.sequence) = after;
        return {};
    }

    // Whether s, of which this is kept, can go on at position p.
    Result<void> resumes(Sequence s, const detail::KeptPositions& kept, Position p) const {
        const auto& window = cache().window();
        if (detail::can_resume_with(window, kept, p)) return {};
        return detail::cannot_resume(s, p, detail::resumable_prefix_with(window, kept, p));
    }

    State& state() { return const_cast<State&>(std::as_const(*this).state()); }
    const State& state() const { return detail::expect_not_moved(state_, "memory"); }

    std::unique_ptr<State> state_;
};

} // namespace cellar::mpi
