// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/batch.hpp>
#include <cellar/base/batch_builder.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/memory_bytes.hpp>
#include <cellar/base/offload_to.hpp>
#include <cellar/base/result.hpp>
#include <cellar/base/type_list.hpp>
#include <cellar/hybrid/detail/hybrid_members.hpp>
#include <cellar/hybrid/detail/layer_map.hpp>
#include <cellar/hybrid/fwd.hpp>
#include <cellar/hybrid/hybrid_pass.hpp>
#include <cellar/hybrid/hybrid_snapshot.hpp>
#include <cellar/hybrid/pattern.hpp>
#include <cellar/memory/memory.hpp>
#include <cellar/memory/operations_by_name.hpp>
#include <cellar/memory/saves_snapshots.hpp>
#include <cellar/memory/stored_snapshot.hpp>
#include <cellar/memory/two_phase.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace cellar {

/// The memory of a model whose layers are of several kinds: some see a window, some everything, some have a recurrent
/// state.
///
/// - `Pattern`: which layer has which memory (`Repeat<Times<5, Sliding>, Full>`, `Every<4, Full, Recurrent>`), or
///   `RunTimePattern`.
/// - `Members`: these memories, each with its own layout, window, limits and backend: any type that satisfies
///   `TwoPhaseMemory`. Members that the pattern has no layers for are reached by `member<M>()`, and in a pass by
///   `of<M>()`.
///
/// All members carry out an operation, or none does: a refusal, which names the member, or an exception leaves all of
/// them as they were. Movable, not copyable. One thread may use it at a time.
///
/// Inputs of an encoder may wait for the next token of a sequence:
/// - `copy_prefix` copies them if it goes up to `next(from)` or further.
/// - A snapshot up to the end keeps them, and a `restore` up to the snapshot's end brings them back.
/// - A `remove` from `next(s)` on, and a `rewind` to it, leave them where they are.
/// - A `remove` from 0 on takes them away, so that another user can have s.
template <class Pattern, class... Members>
class Hybrid : public OperationsByName<Hybrid<Pattern, Members...>, HybridSnapshot<Members...>> {
    static_assert(sizeof...(Members) > 0, "a hybrid has at least one member");
    static_assert((TwoPhaseMemory<Members> && ...), "every member of a hybrid satisfies TwoPhaseMemory");
    static_assert(((detail::times_among<Members, Members...> == 1) && ...),
                  "two members have the same type: let one of them be a class of its own that derives from it");
    using Map = detail::LayerMap<Pattern, Members...>;
    using Pass = HybridPass<Pattern, Members...>;
    using Snapshot = HybridSnapshot<Members...>;
    static constexpr bool at_run_time = std::is_same_v<Pattern, RunTimePattern>;
    template <class Operation>
    using Prepared = detail::PreparedByAll<Operation, Members...>;

public:
    using pass_type = Pass;

    /// False if keys and values of a member are not here: see `NoData`.
    static constexpr bool holds_data = (detail::holds_data<Members> && ...);
    /// False for operations that a member lacks.
    template <class Operation>
    static constexpr bool performs = (detail::takes_part<Members, Operation> && ...);

    /// The memory of a model with `layers` layers. Each member has as many layers as the pattern gives it, and all have
    /// the same number of sequences and the same tokens, if any; anything else is a violation. `WithResidual`: so are
    /// caches whose shifts rotate different elements of keys, by different frequencies, or not both when they are read.
    explicit Hybrid(int layers, Members... members, Where where = Where::current()) requires(!at_run_time)
        : map_{make_map(where, layers)}, members_{std::move(members)...} {
        check_members(where);
    }

    /// The same for `RunTimePattern`. `member_of_layer` has the index of a member, or `no_memory`, for each layer of
    /// the model. A member without layers may be left out: `std::nullopt`.
    explicit Hybrid(const std::vector<int>& member_of_layer, std::optional<Members>... members,
                    Where where = Where::current()) requires(at_run_time)
        : map_{make_map(where, member_of_layer)}, members_{std::move(members)...} {
        check_members(where);
    }

    /// What a hybrid of `layers` layers takes whose members take that. See `Cache::bytes_for`.
    template <std::same_as<MemoryBytes>... Bytes>
    static constexpr MemoryBytes bytes_for(int layers, const Bytes&... of_members) {
        return (MemoryBytes{.bookkeeping = Map::bytes_for(layers)} + ... + of_members);
    }

    int layers(Where where = Where::current()) const {
        const detail::Caller caller{where};
        return map_.layers();
    }
    std::int32_t sequences() const { return sequences_; }

    /// Where a layer of the model has its memory.
    static constexpr LayerPlace place(int layer) requires(!at_run_time) { return Map::place(layer); }
    LayerPlace place(int layer, Where where = Where::current()) const requires(at_run_time) {
        const detail::Caller caller{where};
        return map_.place(layer);
    }

    /// How many layers a member has in a model of `layers` layers, or how many have `no_memory`.
    static constexpr int layers_of(int member, int layers) requires(!at_run_time) {
        return Map::layers_of(member, layers);
    }

    /// Opens a pass in all members. If one refuses, none is opened. Costs what it costs the members.
    Result<Pass> begin(const Batch& batch, Where where = Where::current()) { return perform(op::Begin{batch}, where); }
    /// The same for the next `count` tokens of s, at next(s).
    Result<Pass> begin(Sequence s, std::int32_t count, Where where = Where::current()) {
        const detail::Caller caller{where};
        return begin(detail::next_tokens(next_tokens_, s, next(s), count));
    }

    /// A pass of `tokens` tokens in all members that stores nothing, for sizing buffers and capturing graphs.
    Pass reserve(std::int32_t tokens, Where where = Where::current()) {
        const detail::Caller caller{where};
        using Passes = std::tuple<std::optional<PassOf<Members>>...>;
        const auto open = [&](auto& m) { return m ? std::optional{m->reserve(tokens)} : std::nullopt; };
        // Braces keep the order.
        Passes passes = std::apply([&](auto&... m) { return Passes{open(m)...}; }, members_.all());
        return std::apply([&](auto&... pass) { return make_pass(tokens, std::move(pass)...); }, passes);
    }

    /// The position of the next token of s: the largest of what the members answer.
    Position next(Sequence s, Where where = Where::current()) const {
        const detail::Caller caller{where};
        return members_.next(s);
    }

    /// True if all members can resume there.
    bool can_resume(Sequence s, Position p, Where where = Where::current()) const {
        const detail::Caller caller{where};
        return members_.all_of([&](const auto& m, auto) { return m.can_resume(s, p); });
    }

    /// The largest q <= p with can_resume(s, q). Asks the members in turn until they agree.
    Position resumable_prefix(Sequence s, Position p, Where where = Where::current()) const {
        const detail::Caller caller{where};
        while (true) {
            const Position before = p;
            members_.for_each([&](const auto& m) { p = m.resumable_prefix(s, p); });
            if (p == before) return p;
        }
    }

    /// The least of what the members answer: see `Cache::altered_from`.
    Position altered_from(Sequence s, Where where = Where::current()) const {
        const detail::Caller caller{where};
        Position altered = to_end;
        members_.for_each([&](const auto& m) { altered = std::min(altered, detail::altered_from(m, s)); });
        return altered;
    }

    /// Writes zeros to the free cells of all members that have cells; see `Cache::erase_free_cells`. States are not
    /// erased.
    void erase_free_cells(Where where = Where::current()) {
        const detail::Caller caller{where};
        MemoryAccess::expect_no_pass(*this, "erase_free_cells");
        members_.for_each([](auto& m) {
            if constexpr (requires { m.erase_free_cells(); }) m.erase_free_cells();
        });
    }

    /// Blocks until all enqueued work of all members is done.
    void fence(Where where = Where::current()) {
        const detail::Caller caller{where};
        members_.for_each([](auto& m) { m.fence(); });
    }

    /// Of all members together.
    std::int64_t bytes(Where where = Where::current()) const {
        const detail::Caller caller{where};
        std::int64_t sum = 0;
        members_.for_each([&](const auto& m) { sum += m.bytes(); });
        return sum;
    }

    /// The fewest free cells of a member: see `Cache::free_cells`. INT32_MAX if no member has cells. O(1).
    Cell free_cells(Where where = Where::current()) const {
        const detail::Caller caller{where};
        return members_.fewest([](const auto& m) { return m.free_cells(); });
    }
    /// How many cells must be free so that `begin` does not refuse this batch with `full`: see `Cache::cells_needed`.
    std::int32_t cells_needed(const Batch& batch, Where where = Where::current()) {
        const detail::Caller caller{where};
        return free_cells() - members_.fewest([&](auto& m) { return m.free_cells() - m.cells_needed(batch); });
    }
    /// By how much `free_cells` grows when s loses all its tokens. As `Cache::cells_freed_by`, for each member.
    std::int32_t cells_freed_by(Sequence s, Where where = Where::current()) const {
        const detail::Caller caller{where};
        return members_.fewest([&](const auto& m) { return m.free_cells() + m.cells_freed_by(s); }) - free_cells();
    }
    /// How many more snapshots the members have room for: see `RecurrentMemory`. INT32_MAX if none has such a limit.
    std::int32_t free_snapshots(Where where = Where::current()) const {
        const detail::Caller caller{where};
        std::int32_t fewest = INT32_MAX;
        members_.for_each([&](const auto& m) {
            if constexpr (requires { m.free_snapshots(); }) fewest = std::min(fewest, m.free_snapshots());
        });
        return fewest;
    }

    /// A member, for what only its kind can do (statistics, checkpoints, an encoder's inputs). To change sequences, use
    /// the hybrid's own operations, so that the members agree about them.
    template <int I>
    auto& member(Where where = Where::current()) {
        auto& m = members_.template get<I>();
        CELLAR_EXPECTS_AT(where, m.has_value(), "member: the hybrid was made without member ", I,
                          ", expected one with it");
        return *m;
    }
    template <int I>
    const auto& member(Where where = Where::current()) const {
        const auto& m = members_.template get<I>();
        CELLAR_EXPECTS_AT(where, m.has_value(), "member: the hybrid was made without member ", I,
                          ", expected one with it");
        return *m;
    }
    template <class M>
    M& member(Where where = Where::current()) {
        return member<index_of<M>()>(where);
    }
    template <class M>
    const M& member(Where where = Where::current()) const {
        return member<index_of<M>()>(where);
    }

    /// Carries an operation out in all members, or in none.
    template <class Operation>
    auto perform(const Operation& operation, Where where) {
        return detail::perform(*this, operation, where);
    }
    /// The two phases of an operation: those of all members, or of none. See `Performs`.
    template <class Operation>
        requires performs<Operation>
    auto prepare(const Operation& operation) {
        expect_valid(operation);
        auto prepared = members_.prepare(operation);
        if constexpr (std::same_as<Operation, op::Begin>)
            if (prepared) prepared->tokens = operation.batch.tokens();
        return prepared;
    }
    template <class Operation>
    void finish(Prepared<Operation>&& prepared) noexcept(!detail::may_fail<Operation>) {
        members_.template finish<Operation>(std::move(prepared));
    }
    Pass finish(Prepared<op::Begin>&& begin) { return open(std::move(begin), std::index_sequence_for<Members...>{}); }
    template <class Operation>
        requires detail::makes_snapshot<Operation> Snapshot finish(Prepared<Operation>&& made)
    noexcept { return members_.template finish_snapshot<Operation>(std::move(made)); }

    /// Calls f for each member that is there.
    template <class F>
    void for_each_member(F f) const {
        members_.for_each(f);
    }

    /// For transfers: calls f(member, its index, the layer's index there) for the member that has this layer of the
    /// model, if one has; with a residual, for both.
    template <class F>
    void for_each_with_layer(int layer, F f) const {
        const LayerPlace at = place(layer);
        members_.all_of([&](const auto& m, auto i) {
            if (std::is_same_v<Pattern, WithResidual> || at.member == i) f(m, i, at.layer);
            return true;
        });
    }

    /// For hybrids, prefix trees, files and transfers; see `Cache`.
    void save(const Snapshot& snapshot, const std::string& prefix,
              detail::StoredSnapshot& stored) requires(detail::SavesSnapshots<Members>&&...) {
        members_.for_each_indexed([&](auto& m, auto i) {
            m.save(snapshot.template of<decltype(i)::value>(), detail::member_prefix(prefix, i), stored);
        });
    }
    /// The same of what s will have at position `to`.
    void save_ahead(Sequence s, Position to, const std::string& prefix,
                    detail::StoredSnapshot& stored) requires(detail::SavesSnapshots<Members>&&...) {
        members_.for_each_indexed(
            [&](auto& m, auto i) { m.save_ahead(s, to, detail::member_prefix(prefix, i), stored); });
    }

    detail::Checked<Prepared<detail::Load>>
    prepare(const detail::Load& load) requires(detail::SavesSnapshots<Members>&&...) {
        return members_.prepare(load);
    }

    /// False if all members are memories of encoders.
    bool counts_tokens() const { return members_.counts_tokens(); }

    /// For prefix trees, as the next three: true if all members can.
    bool can_restore(const Snapshot& snapshot, Position to) const {
        return all_of(snapshot,
                      [&](const auto& m, const auto& of_member, int) { return detail::can_restore(m, of_member, to); });
    }
    /// True if cells of the member that refused become free when the snapshot goes; of any member, if none is named.
    bool frees_cells(const Snapshot& snapshot, const Refusal& refusal) const {
        return !all_of(snapshot, [&](const auto& m, const auto& of_member, int i) {
            return !refused(refusal, i) || !detail::frees_cells(m, of_member, in_member(refusal));
        });
    }

    /// As `Cache::frees_together`, for that member, or for any.
    template <class ForEach>
    bool frees_together(ForEach for_each, Sequence s, const Refusal& refusal) {
        bool frees = false;
        members_.for_each_indexed([&](auto& m, auto i) {
            const auto of_member = [&](auto visit) {
                for_each([&](const Snapshot& snapshot) { visit(snapshot.template of<decltype(i)::value>()); });
            };
            if (refused(refusal, i)) frees = frees || detail::frees_together(m, of_member, s, in_member(refusal));
        });
        return frees;
    }

    void set_evictable(Snapshot& snapshot, bool evictable) noexcept {
        members_.for_each_indexed([&](auto& m, auto i) {
            detail::set_evictable(m, MemoryAccess::member<decltype(i)::value>(snapshot), evictable);
        });
    }
    Cell evictable_cells() const {
        const auto in_time = [](const auto& m) {
            if constexpr (requires { m.evictable_cells(); })
                return m.free_cells() + m.evictable_cells();
            else
                return m.free_cells();
        };
        return members_.fewest(in_time) - free_cells();
    }
    /// The sum over all members: see `Cache::occupied_bytes`.
    std::int64_t occupied_bytes(const Snapshot& snapshot, std::optional<OffloadTo> once_it_is = {}) const {
        std::int64_t bytes = 0;
        all_of(snapshot, [&](const auto& m, const auto& of_member, int) {
            bytes += detail::occupied_bytes(m, of_member, once_it_is);
            return true;
        });
        return bytes;
    }

private:
    static bool refused(const Refusal& refusal, int member) { return refusal.member < 0 || refusal.member == member; }
    // What the member itself said.
    static Refusal in_member(Refusal refusal) {
        refusal.member = std::exchange(refusal.inner, -1);
        return refusal;
    }
    static void expect_valid(const auto&) {}
    static void expect_valid(const op::Split<Snapshot>& split) {
        const Position from = split.snapshot.from();
        const Position to = split.snapshot.to();
        CELLAR_EXPECTS(from <= split.at && split.at <= to, "split: position ", split.at, ", expected ", from, " to ",
                       to);
    }

    // If one throws, the passes that are open are dropped.
    template <std::size_t... I>
    Pass open(Prepared<op::Begin>&& begin, std::index_sequence<I...>) {
        const auto open = [](auto& m, auto& prepared) {
            return detail::pass_of(m, [&m, &prepared] { return m->finish(*std::move(prepared)); });
        };
        return make_pass(begin.tokens, open(members_.template get<int{I}>(), std::get<I>(begin.members))...);
    }

    template <class... Opened>
    Pass make_pass(std::int32_t tokens, Opened... opened) {
        return Pass{map_.reference(), tokens, std::move(opened)...};
    }

    // True if f(member, its snapshot, index) holds for all members that are there.
    template <class F>
    bool all_of(const Snapshot& snapshot, F f) const {
        return members_.all_of(
            [&](const auto& m, auto i) { return f(m, snapshot.template of<decltype(i)::value>(), i); });
    }

    template <class M>
    static constexpr int index_of() {
        static_assert(detail::times_among<M, Members...> == 1, "the hybrid has no such member");
        return detail::index_among<M, Members...>();
    }

    template <class Layers>
    static Map make_map(Where where, const Layers& layers) {
        const detail::Caller caller{where};
        return Map{layers};
    }

    void check_members(Where where) {
        const detail::Caller caller{where};
        int member = 0;
        std::apply([&](const auto&... m) { (check(m, member++), ...); }, members_.all());
        CELLAR_EXPECTS(sequences_ > 0, "hybrid: no member, expected at least one");
        if constexpr (std::is_same_v<Pattern, WithResidual>) check_rotations();
        check_tokens();
    }

    // Both caches get the same keys.
    void check_rotations() {
        CELLAR_EXPECTS(MemoryAccess::rotation(*members_.template get<0>())
                           == MemoryAccess::rotation(*members_.template get<1>()),
                       "hybrid: the exact cache rotates other elements of keys than the coarse one, or at another "
                       "time, expected the same shift in both");
        const int layer = MemoryAccess::other_frequencies(*members_.template get<0>(), *members_.template get<1>());
        CELLAR_EXPECTS(layer < 0, "hybrid: the exact cache rotates keys of layer ", layer,
                       " by other frequencies than the coarse one, expected the same shift in both");
    }

    template <class M>
    void check(const std::optional<M>& m, int member) {
        CELLAR_EXPECTS(m || !map_.uses(member), "hybrid: no member ", member, ", expected one with ",
                       map_.layers_of(member), " layers");
        if (!m) return;
        CELLAR_EXPECTS(!map_.uses(member) || m->layers() == map_.layers_of(member), "hybrid: member ", member, " has ",
                       m->layers(), " layers, expected ", map_.layers_of(member), " of ", layers(), " in its pattern");
        if (sequences_ == 0) sequences_ = m->sequences();
        CELLAR_EXPECTS(m->sequences() == sequences_, "hybrid: member ", member, " has ", m->sequences(),
                       " sequences, expected ", sequences_, " as the first one has");
    }

    // An encoder has no next token, and can resume anywhere.
    void check_tokens() {
        for (std::int32_t s = 0; s < sequences_; ++s) {
            const Position p = next(Sequence{s});
            members_.for_each_indexed([&](const auto& m, auto i) {
                CELLAR_EXPECTS(m.next(Sequence{s}) == p || m.can_resume(Sequence{s}, p), "hybrid: member ",
                               decltype(i)::value, " cannot resume sequence ", s, " at position ", p,
                               ", where another member does, expected members with the same tokens");
            });
        }
    }

    Map map_;
    detail::HybridMembers<Members...> members_;
    std::int32_t sequences_ = 0;
    BatchBuilder next_tokens_; // of a pass that was asked for by their number
};

} // namespace cellar
