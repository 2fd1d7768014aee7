// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/batch.hpp>
#include <cellar/base/batch_builder.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/guards.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/memory_bytes.hpp>
#include <cellar/base/result.hpp>
#include <cellar/memory/two_phase.hpp>
#include <cellar/prefix/detail/prefix_state.hpp>
#include <cellar/prefix/detail/shared_position.hpp>
#include <cellar/prefix/fwd.hpp>
#include <cellar/prefix/prefix_limits.hpp>
#include <cellar/prefix/prefix_node_view.hpp>
#include <cellar/prefix/prefix_pin.hpp>
#include <cellar/prefix/prefix_statistics.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

namespace cellar {

/// A radix tree over tokens, whose nodes own snapshots of a memory. It finds what the memory has already computed for
/// the first tokens of a sequence. Works with every memory that has snapshots and counts tokens: `Cache`,
/// `RecurrentMemory`, `Hybrid`, `mpi::LockstepMemory`. An `EncoderMemory` counts none, so it is of use only in a
/// hybrid.
///
/// Token i of a list has position i. A salt is any number that stands for what the tokens do not say and that changes
/// what is computed (an adapter, the images of a prompt): prefixes with different salts never match.
///
/// The nodes own cells or slots in place, as sequences do, until the memory needs room. Then they are offloaded, within
/// `PrefixLimits::offloaded_bytes`, or evicted. The memory must not be moved, and must outlive the tree. Movable, not
/// copyable. One thread at a time may use the tree and its memory.
template <PrefixTreeMemory M>
class PrefixTree {
    using State = detail::PrefixState<M>;

public:
    using memory_type = M;

    explicit PrefixTree(M& memory, const PrefixLimits& limits = {}, Where where = Where::current())
        : state_{make_state(where, memory, limits)} {}

    /// Gives s, which is empty, the longest prefix of `tokens` that the tree has and the memory can restore. Its
    /// next token is then tokens[length]. The model has no output for attached tokens: if you need the output for the
    /// last token, leave it out of `tokens`. A sequence that gets a prefix loses its schedules: call `schedule` of the
    /// memory afterwards. A prefix in place is shared, with no copy. One that was offloaded comes
    /// back in place if there is room, or if other prefixes can be offloaded or evicted for it. If memory is short,
    /// attaches a shorter prefix, and never throws for want of memory. Refuses with `not_empty` if s has tokens or
    /// inputs, and for nothing else. O(tokens compared + nodes passed + what `restore` and `reload` cost for each
    /// snapshot on the way).
    Result<PrefixMatch> attach(Sequence s, std::span<const std::int32_t> tokens, std::uint64_t salt = 0,
                               Where where = Where::current()) {
        const detail::Caller caller{where};
        State& own = state();
        if (!detail::is_empty(own.memory(), s)) return Refusal{.reason = Reason::not_empty, .sequence = s};
        const auto walk = own.walk(tokens, salt);
        const PrefixMatch match{own.attach(s, walk), static_cast<std::int32_t>(walk.verified)};
        count(tokens, match);
        return match;
    }

    /// What `attach` would attach, if there is memory for it. Changes nothing. O(tokens compared + nodes passed).
    PrefixMatch match(std::span<const std::int32_t> tokens, std::uint64_t salt = 0,
                      Where where = Where::current()) const {
        const detail::Caller caller{where};
        const auto walk = state().walk(tokens, salt);
        return {state().deepest(walk).end, static_cast<std::int32_t>(walk.verified)};
    }

    /// Keeps a snapshot of s at the end of `tokens`, which must be the first tokens of s. No data moves, and no cell is
    /// needed. If the tree has them already, only marks them as used. Call it where other requests may continue: at the
    /// end of a prompt or of a turn. Windows and recurrent states are kept only at such ends, and where two lists part,
    /// if s can still go back to that point. If there are too many snapshots, makes room first, as `begin` does. Else
    /// refuses as `snapshot` of the memory does, with nothing changed, or throws `std::bad_alloc`: the tree then has
    /// the same prefixes, some of which may be in place that were offloaded. Refuses with `shared_position` if s has
    /// several tokens at one position, below the length of `tokens`, and the memory lists its cells, as `Cache` does.
    /// Refuses with `altered` if some of these tokens have other keys than a prefill would give
    /// (`Cache::altered_from`): after a context shift, for example, until s goes back to where its gap was closed.
    /// O(tokens compared + tokens added + nodes passed + runs of s + what `snapshot` and `split` cost), amortised.
    /// Longer prefixes become less useful: O(log nodes) for each that has no other one in between, and O(1) for each
    /// node without a snapshot that is passed on the way there.
    Result<void> insert(Sequence s, std::span<const std::int32_t> tokens, std::uint64_t salt = 0,
                        Where where = Where::current()) {
        const detail::Caller caller{where};
        State& own = state();
        const Position next = own.memory().next(s);
        CELLAR_EXPECTS(tokens.size() <= static_cast<std::size_t>(next.value), "insert: ", tokens.size(),
                       " tokens, expected at most the ", next, " of sequence ", s);
        const Position end{static_cast<std::int32_t>(tokens.size())};
        const auto refused_at = [&](Reason reason, Position p) {
            return Refusal{.reason = reason, .sequence = s, .needed = end.value, .available = p.value};
        };
        const Position shared = detail::first_shared_position(own.memory(), s, end);
        if (shared < end) return refused_at(Reason::shared_position, shared);
        const Position altered = detail::altered_from(own.memory(), s);
        if (altered < end) return refused_at(Reason::altered, altered);
        return tokens.empty() ? Result<void>{} : own.insert(s, tokens, salt);
    }

    /// Pins the prefix that `match` finds: it is not evicted while the pin exists. If `match` finds nothing, the pin
    /// pins nothing. O(tokens compared + nodes passed); allocates nothing.
    [[nodiscard]] PrefixPin pin(std::span<const std::int32_t> tokens, std::uint64_t salt = 0,
                                Where where = Where::current()) {
        const detail::Caller caller{where};
        const auto place = state().deepest(state().walk(tokens, salt));
        if (place.node == nullptr) return {};
        return {*place.node, place.end};
    }

    /// Calls `begin` of the memory. While that refuses with `full`, offloads the least useful prefix that frees cells,
    /// and tries again. If `PrefixLimits::offloaded_bytes` do not suffice, evicts what was offloaded, the least useful
    /// first, or else the prefix itself. If none frees cells alone, because prefixes share them (one text under two
    /// salts), the same with the fewest that do together, the less useful ones first. If those do not help either, the
    /// same with a longer one that needs one that does. A prefix stays if it is pinned, if a longer one that stays
    /// needs it, or if sequences own all of its cells, and of those that it needs. Returns the refusal if no room can
    /// be made, and any other refusal at once. Each prefix costs a `begin`, O(log nodes), and `offload`. Less useful
    /// ones that would free nothing cost O(log nodes + runs) each, every time, because a memory does not tell when
    /// sequences give up cells; if none helps alone, log nodes times as much.
    Result<PassOf<M>> begin(const Batch& batch, Where where = Where::current()) {
        const detail::Caller caller{where};
        State& own = state();
        while (true) {
            Result<PassOf<M>> pass = own.memory().begin(batch);
            if (pass || !own.make_room(pass.error())) return pass;
        }
    }
    /// The same for the next `count` tokens of s, at next(s).
    Result<PassOf<M>> begin(Sequence s, std::int32_t count, Where where = Where::current()) {
        const detail::Caller caller{where};
        State& own = state();
        return begin(detail::next_tokens(own.next_tokens(), s, own.memory().next(s), count));
    }

    /// After another operation of the memory was refused for want of room (`full`, `too_many_snapshots`): offloads or
    /// evicts one prefix, as `begin` does, or several that help together. After a refused `remove` or `restore`, also
    /// prefixes that share cells with its sequence alone: without them, these cells need no copy. Returns true if it is
    /// worth trying again. Else, and after any other refusal, nothing has changed.
    bool make_room(const Refusal& refusal, Where where = Where::current()) {
        const detail::Caller caller{where};
        State& own = state();
        MemoryAccess::expect_no_pass(own.memory(), "make_room");
        if (refusal.sequence.value >= 0) static_cast<void>(own.memory().next(refusal.sequence)); // checks it
        return own.make_room(refusal);
    }

    /// Evicts the least useful prefix, in place or offloaded, that is neither pinned nor part of a longer one. Returns
    /// false if none is left. O(log nodes + what the memory needs to release a snapshot), and O(tokens of the
    /// shorter one) if two edges become one, amortised.
    bool evict(Where where = Where::current()) {
        const detail::Caller caller{where};
        return state().evict();
    }

    /// Evicts everything that is not pinned. Each prefix costs an `evict`.
    void clear(Where where = Where::current()) {
        while (evict(where)) {}
    }

    /// How many more cells of the memory would be free if all prefixes were offloaded or evicted that are not pinned:
    /// cells that neither sequences nor other snapshots own. `begin` refuses with `full` only if `free_cells` of the
    /// memory and these are fewer than it needs. O(1); while prefixes are pinned, O(nodes + 64-cell words that the
    /// pinned ones span).
    /// Not const, because it marks what is pinned, and takes that back.
    Cell evictable(Where where = Where::current()) requires(detail::counts_evictable<M>) {
        const detail::Caller caller{where};
        return state().evictable();
    }

    /// Calls f(node), with a `PrefixNodeView<M>`, for each node, the parent before its children, in no other order. f
    /// must not change the tree or its memory. O(nodes).
    template <class F>
    void visit(F&& f, Where where = Where::current()) const {
        const detail::Caller caller{where};
        state().nodes().for_each_in_order([&](const auto& root, const auto& node, int depth) {
            f(PrefixNodeView<M>{root.salt,
                                {node.tokens.begin(), node.tokens.end()},
                                Position{node.begin()},
                                depth,
                                node.snapshot ? &*node.snapshot : nullptr,
                                node.bytes,
                                PrefixPin::count(node),
                                node.last_used});
        });
    }

    /// The memory whose snapshots the tree keeps.
    M& memory(Where where = Where::current()) const {
        const detail::Caller caller{where};
        return state().memory();
    }

    /// What a tree takes, before it is made: what `bytes()` is at most while it has `nodes` nodes, and `tokens` tokens
    /// in their edges. Exactly, but for the tokens: they take 4 bytes each, and up to 8 in edges that were divided or
    /// joined. Each prefix that is kept is a node, and so are each place where two part, and each salt; tokens that
    /// prefixes share count once. An `insert` that has to make room may count two nodes more.
    static constexpr MemoryBytes bytes_for(std::int64_t nodes, std::int64_t tokens, Where where = Where::current()) {
        CELLAR_EXPECTS_AT(where, nodes >= 0 && tokens >= 0, "bytes_for: ", nodes, " nodes and ", tokens,
                          " tokens, expected 0 or more");
        return {.bookkeeping = State::bytes_for(nodes, tokens)};
    }

    /// What the tree itself takes on the host: nodes, tokens (4 to 8 bytes each), tables; exactly, but for 8 bytes for
    /// each token of the largest pass that was begun without a batch. What its snapshots own is the memory's: see
    /// `statistics`. O(nodes).
    std::int64_t bytes(Where where = Where::current()) const {
        const detail::Caller caller{where};
        return state().own_bytes();
    }

    /// What the tree holds now, and counts of its operations so far. O(1).
    PrefixStatistics statistics(Where where = Where::current()) const {
        const detail::Caller caller{where};
        PrefixStatistics statistics = state().counters();
        statistics.nodes = static_cast<std::int64_t>(state().nodes().size()) - state().nodes().roots();
        statistics.snapshots = state().snapshots();
        statistics.in_place_bytes = state().bytes().in_place;
        statistics.offloaded = state().offloaded();
        statistics.offloaded_bytes = state().bytes().offloaded;
        statistics.tokens = state().nodes().tokens();
        return statistics;
    }

private:
    friend struct MemoryAccess;

    static std::unique_ptr<State> make_state(Where where, M& memory, const PrefixLimits& limits) {
        const detail::Caller caller{where};
        CELLAR_EXPECTS(limits.usefulness != nullptr, "limits: no function for the usefulness, expected one");
        CELLAR_EXPECTS(limits.offloaded_bytes >= 0, "limits: ", limits.offloaded_bytes,
                       " bytes for what is offloaded, expected 0 or more");
        CELLAR_EXPECTS(limits.page > 0 && 64 % limits.page == 0, "limits: pages of ", limits.page,
                       ", expected a divisor of 64");
        CELLAR_EXPECTS(detail::has_pages<M> || limits.page == 1, "limits: pages of ", limits.page,
                       ", expected 1, because this memory has no cells that form pages");
        CELLAR_EXPECTS(
            State::offloads || limits.offloaded_bytes == 0, "limits: ", limits.offloaded_bytes,
            " bytes for what is offloaded, expected 0, because the snapshots of this memory cannot be offloaded");
        return std::make_unique<State>(memory, limits);
    }

    void count(std::span<const std::int32_t> tokens, const PrefixMatch& match) {
        if (tokens.empty()) return;
        PrefixStatistics& counters = state().counters();
        const auto asked = static_cast<std::int32_t>(tokens.size());
        ++(match.length == asked ? counters.hits : match.length > 0 ? counters.partial_hits : counters.misses);
        counters.tokens_asked += asked;
        counters.tokens_attached += match.length;
    }

    State& state() { return const_cast<State&>(std::as_const(*this).state()); }
    const State& state() const { return detail::expect_not_moved(state_, "tree"); }

    std::unique_ptr<State> state_;
};

} // namespace cellar
