// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/batch.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/result.hpp>
#include <cellar/base/type_list.hpp>
#include <cellar/hybrid/fwd.hpp>
#include <cellar/hybrid/hybrid_pass.hpp>
#include <cellar/hybrid/pattern.hpp>
#include <cellar/memory/memory.hpp>
#include <cellar/memory/two_phase.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>

namespace cellar {

/// The memory of a model whose layers remember in different ways: some within a window, some everything, some in a
/// recurrent state.
///
/// - `Pattern`: which layer has which memory (`Repeat<Times<5, Sliding>, Full>`, `Every<4, Full, Recurrent>`).
/// - `Members`: these memories, each with its own layout, window, limits and backend: any type that satisfies
///   `TwoPhaseMemory`. Members that the pattern has no layers for are reached by `member<M>()`, and in a pass by
///   `of<M>()`.
///
/// All members carry out an operation, or none does: a refusal, which names the member, or an exception leaves all of them
/// as they were. Movable, not copyable. One thread may use it at a time.
template <class Pattern, class... Members>
class Hybrid {
    static_assert(sizeof...(Members) > 0, "a hybrid has at least one member");
    static_assert((TwoPhaseMemory<Members> && ...), "every member of a hybrid satisfies TwoPhaseMemory");
    using Map = LayerMap<Pattern, Members...>;
    using Pass = HybridPass<Pattern, Members...>;
    using Passes = std::tuple<PassOf<Members>...>;

public:
    /// The memory of a model with `layers` layers. Each member has as many layers as the pattern gives it, and all have
    /// the same number of sequences; anything else is a violation.
    explicit Hybrid(int layers, Members... members) : layers_{layers}, members_{std::move(members)...} {
        CELLAR_EXPECTS(layers > 0, "hybrid: ", layers, " layers, expected at least 1");
        CELLAR_EXPECTS(Map::repeats || layers == Map::period, "hybrid: ", layers, " layers, expected the ", Map::period,
                       " of the pattern");
        int member = 0;
        for_each([&](const auto& m) { check(m, member++); });
    }

    int layers() const { return layers_; }
    std::int32_t sequences() const { return this->member<0>().sequences(); }

    /// Where a layer of the model has its memory.
    static constexpr LayerPlace place(int layer) { return Map::place(layer); }

    /// How many layers a member has in a model of `layers` layers.
    static constexpr int layers_of(int member, int layers) { return Map::layers_of(member, layers); }

    /// Opens a pass in all members. If one refuses, none is opened. Costs what it costs the members.
    Result<Pass> begin(const Batch& batch) {
        auto prepared = prepare_begin(batch);
        if (!prepared) return prepared.error();
        return finish(*std::move(prepared));
    }

    /// A pass of `tokens` tokens in all members that stores nothing, for sizing buffers and capturing graphs.
    Pass reserve(std::int32_t tokens) {
        return std::apply([&](auto&... m) { return make_pass(Passes{m.reserve(tokens)...}); }, members_);
    }

    /// `to` gives up what it has and shares what all members keep of `from` below position `length`. No data moves.
    /// Refuses with `cannot_rewind` if a recurrent member keeps no state there.
    Result<void> copy_prefix(Sequence from, Sequence to, std::int32_t length) {
        auto prepared = prepare_copy_prefix(from, to, length);
        if (!prepared) return prepared.error();
        finish(*std::move(prepared));
        return {};
    }

    /// True if all members can resume there.
    bool can_resume(Sequence s, Position p) const {
        return std::apply([&](const auto&... m) { return (m.can_resume(s, p) && ...); }, members_);
    }

    /// The largest q <= p with can_resume(s, q). Asks the members in turn until they agree.
    Position resumable_prefix(Sequence s, Position p) const {
        while (true) {
            const Position before = p;
            for_each([&](const auto& m) { p = m.resumable_prefix(s, p); });
            if (p == before) return p;
        }
    }

    /// Removes positions [begin, end) of s in all members, and closes the gap. Refuses as the members do: a recurrent one
    /// only goes back, to a position where it keeps a state.
    Result<void> remove(Sequence s, Position begin, Position end) {
        auto prepared = prepare_remove(s, begin, end);
        if (!prepared) return prepared.error();
        finish(*std::move(prepared));
        return {};
    }

    /// Defragments all members that have cells.
    void defragment() {
        for_each([](auto& m) {
            if constexpr (requires { m.defragment(); }) m.defragment();
        });
    }

    /// Blocks until all enqueued work of all members is done.
    void fence() {
        for_each([](auto& m) { m.fence(); });
    }

    /// Of all members together.
    std::int64_t bytes() const {
        return std::apply([](const auto&... m) { return (m.bytes() + ...); }, members_);
    }

    /// A member, for what only its kind can do (statistics, checkpoints, an encoder's inputs). To change sequences, use the
    /// hybrid's own operations, so that the members agree about them.
    template <int I>
    auto& member() {
        return std::get<static_cast<std::size_t>(I)>(members_);
    }
    template <int I>
    const auto& member() const {
        return std::get<static_cast<std::size_t>(I)>(members_);
    }
    template <class M>
    M& member() {
        return member<index_of<M>()>();
    }
    template <class M>
    const M& member() const {
        return member<index_of<M>()>();
    }

private:
    friend struct MemoryAccess;

    // What the members prepared, in their order. Each operation has its own type.
    template <template <class> class PreparedOf>
    struct Prepared {
        std::tuple<std::optional<PreparedOf<Members>>...> members;
    };
    using Begin = Prepared<detail::PreparedBegin>;
    using CopyPrefix = Prepared<detail::PreparedCopyPrefix>;
    using Remove = Prepared<detail::PreparedRemove>;

    Result<Begin> prepare_begin(const Batch& batch) {
        return prepare<Begin>([&](auto& m) { return MemoryAccess::prepare_begin(m, batch); }, indices);
    }
    Pass finish(Begin&& begin) { return open(std::move(begin), indices); }

    Result<CopyPrefix> prepare_copy_prefix(Sequence from, Sequence to, std::int32_t length) {
        return prepare<CopyPrefix>([&](auto& m) { return MemoryAccess::prepare_copy_prefix(m, from, to, length); },
                                   indices);
    }
    void finish(CopyPrefix&& copy) noexcept { finish_all(std::move(copy), indices); }

    Result<Remove> prepare_remove(Sequence s, Position begin, Position end) {
        return prepare<Remove>([&](auto& m) { return MemoryAccess::prepare_remove(m, s, begin, end); }, indices);
    }
    void finish(Remove&& removal) noexcept { finish_all(std::move(removal), indices); }

    static constexpr std::index_sequence_for<Members...> indices{};

    /// The first phase of an operation: asks the members in turn, up to the first that refuses.
    template <class AllPrepared, class F, std::size_t... I>
    Result<AllPrepared> prepare(F f, std::index_sequence<I...>) {
        AllPrepared all;
        Refusal refusal;
        const auto agrees = [&](auto result, auto& prepared, int member) {
            if (result) {
                prepared.emplace(*std::move(result));
            } else {
                refusal = result.error();
                refusal.member = member;
            }
            return prepared.has_value();
        };
        if ((agrees(f(std::get<I>(members_)), std::get<I>(all.members), static_cast<int>(I)) && ...)) return all;
        return refusal;
    }

    // Braces evaluate in order. If one throws, the passes that are open are dropped.
    template <std::size_t... I>
    Pass open(Begin begin, std::index_sequence<I...>) {
        return make_pass(
            Passes{MemoryAccess::finish(std::get<I>(members_), *std::move(std::get<I>(begin.members)))...});
    }

    template <class AllPrepared, std::size_t... I>
    void finish_all(AllPrepared all, std::index_sequence<I...>) noexcept {
        (MemoryAccess::finish(std::get<I>(members_), *std::move(std::get<I>(all.members))), ...);
    }

    Pass make_pass(Passes passes) { return MemoryAccess::make<Pass>(layers_, std::move(passes)); }

    template <class M>
    static constexpr int index_of() {
        static_assert(detail::times_among<M, Members...> == 1, "the hybrid has no such member");
        return detail::index_among<M, Members...>();
    }

    template <class F>
    void for_each(F f) {
        std::apply([&](auto&... m) { (f(m), ...); }, members_);
    }
    template <class F>
    void for_each(F f) const {
        std::apply([&](const auto&... m) { (f(m), ...); }, members_);
    }

    template <class M>
    void check(const M& m, int member) const {
        const int own = Map::layers_of(member, layers_);
        CELLAR_EXPECTS(!Map::uses(member) || m.layers() == own, "hybrid: member ", member, " has ", m.layers(),
                       " layers, expected ", own, " of ", layers_, " in its pattern");
        CELLAR_EXPECTS(m.sequences() == sequences(), "hybrid: member ", member, " has ", m.sequences(),
                       " sequences, expected ", sequences(), " as the first one has");
    }

    int layers_;
    std::tuple<Members...> members_;
};

} // namespace cellar
