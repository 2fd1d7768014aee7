// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/batch.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/result.hpp>
#include <cellar/base/type_list.hpp>
#include <cellar/fwd.hpp>
#include <cellar/hybrid_pass.hpp>
#include <cellar/memory.hpp>
#include <cellar/pattern.hpp>
#include <cellar/refused.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

namespace cellar {

namespace detail {

// Which memories do their verbs in halves.
template <layout_policy Layout, window_policy Window, shift_policy ShiftPolicy, backend Backend>
std::true_type has_halves(const Cache<Layout, Window, ShiftPolicy, Backend>*);
template <class States, backend Backend>
std::true_type has_halves(const RecurrentState<States, Backend>*);
template <layout_policy Layout, backend Backend>
std::true_type has_halves(const EncoderMemory<Layout, Backend>*);
std::false_type has_halves(const void*);

} // namespace detail

template <class M>
concept done_in_halves = decltype(detail::has_halves(static_cast<const M*>(nullptr)))::value;

/// What can be done together with others, all or none: a `Memory` that lets a hybrid prepare what it finishes later.
template <class M>
concept hybrid_member = Memory<M> && done_in_halves<M>;

/// The memory of a model whose layers remember in different ways: some within a window, some everything, some in a
/// state.
///
/// - `Pattern`: which layer has which memory (`Repeat<Times<5, Sliding>, Full>`, `Every<4, Full, Recurrent>`).
/// - `Members`: these memories, each with its own layout, window, limits and backend. Further ones, which the pattern
///   has no layers for, are reached by `member<M>()`, and in a pass by `of<M>()`.
///
/// All members do what a verb says, or none does: a refusal, which names the member, and an exception leave all of them
/// as they were. Movable, not copyable; one thread at a time.
template <class Pattern, class... Members>
class Hybrid {
    static_assert(sizeof...(Members) > 0, "a hybrid has at least one member");
    static_assert((hybrid_member<Members> && ...), "a member of a hybrid is a Memory: a Cache, a RecurrentState, "
                                                   "an EncoderMemory or a class derived from one");
    using Map = LayerMap<Pattern, Members...>;
    using Pass = HybridPass<Pattern, Members...>;
    using Passes = std::tuple<PassOf<Members>...>;

public:
    /// The memory of a model with so many layers. A member has as many as the pattern gives it; all have the same
    /// number of sequences.
    explicit Hybrid(int layers, Members... members) : layers_{layers}, members_{std::move(members)...} {
        CELLAR_EXPECTS(layers > 0, "hybrid: ", layers, " layers, expected at least 1");
        CELLAR_EXPECTS(Map::repeats || layers == Map::period, "hybrid: ", layers, " layers, expected the ", Map::period,
                       " of the pattern");
        int member = 0;
        for_each([&](const auto& m) { check(m, member++); });
    }

    int layers() const { return layers_; }

    /// Where the memory of a layer of the model is.
    static constexpr LayerPlace place(int layer) { return Map::place(layer); }

    /// How many layers a member has in a model of `layers` layers.
    static constexpr int layers_of(int member, int layers) { return Map::layers_of(member, layers); }

    /// Opens a pass in all members. Refuses if one of them does, with nothing opened. Costs what it costs the members.
    Result<Pass, Refused> begin(const Batch& batch) {
        if (const auto prepared = prepare([&](auto& m) { return m.prepare_begin(batch); }); !prepared)
            return prepared.error();
        // Braces open them in turn; an exception drops those that are open.
        return std::apply([&](auto&... m) { return Pass{layers_, Passes{m.open(batch)...}}; }, members_);
    }

    /// A pass of `tokens` tokens in all members that stores nothing, for sizing buffers and capturing graphs.
    Pass reserve(std::int32_t tokens) {
        return std::apply([&](auto&... m) { return Pass{layers_, Passes{m.reserve(tokens)...}}; }, members_);
    }

    /// `to` shares what all members keep of `from` below position `length`, in place of its own; no data moves. Refuses
    /// with `cannot_rewind` if a recurrent member keeps no state there.
    Result<void, Refused> copy_prefix(Sequence from, Sequence to, std::int32_t length) {
        const auto prepared = prepare([&](auto& m) { return m.prepare_copy_prefix(from, to, length); });
        if (prepared) for_each([&](auto& m) { m.finish_copy_prefix(from, to, length); });
        return prepared;
    }

    /// True if all members can go on from there.
    bool can_resume(Sequence s, Position p) const {
        return std::apply([&](const auto&... m) { return (m.can_resume(s, p) && ...); }, members_);
    }

    /// The largest q <= p with can_resume(s, q). The members are asked in turn until all agree.
    Position resumable_prefix(Sequence s, Position p) const {
        while (true) {
            const Position before = p;
            for_each([&](const auto& m) { p = m.resumable_prefix(s, p); });
            if (p == before) return p;
        }
    }

    /// Drops positions [begin, end) of s in all members, and closes the gap. Refuses as the members do: a recurrent one
    /// only goes back, to where it keeps a state.
    Result<void, Refused> remove(Sequence s, Position begin, Position end) {
        const auto prepared = prepare([&](auto& m) { return m.prepare_remove(s, begin, end); });
        if (prepared) for_each([](auto& m) { m.finish_remove(); });
        return prepared;
    }

    /// Of all members that have cells.
    void defragment() {
        for_each([](auto& m) {
            if constexpr (requires { m.defragment(); }) m.defragment();
        });
    }

    /// Blocks until all that was enqueued is done, by all members.
    void fence() {
        for_each([](auto& m) { m.fence(); });
    }

    /// Of all members.
    std::int64_t bytes() const {
        return std::apply([](const auto&... m) { return (m.bytes() + ...); }, members_);
    }

    /// A member, for what only its kind can do. What changes its sequences is better done to the whole, so that the
    /// members agree about them.
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

    /// The first half of a verb: asks the members in turn, up to the first that refuses.
    template <class F>
    Result<void, Refused> prepare(F f) {
        std::optional<Refusal> refusal;
        int member = -1;
        const auto agrees = [&](const Result<void>& prepared) {
            ++member;
            if (!prepared) refusal = prepared.error();
            return prepared.has_value();
        };
        if (std::apply([&](auto&... m) { return (agrees(f(m)) && ...); }, members_)) return {};
        return Refused{*refusal, member};
    }

    template <class M>
    void check(const M& m, int member) const {
        const int own = Map::layers_of(member, layers_);
        CELLAR_EXPECTS(!Map::uses(member) || m.shape().layers() == own, "hybrid: member ", member, " has ",
                       m.shape().layers(), " layers, expected ", own, " of ", layers_, " in its pattern");
        const std::int32_t sequences = this->member<0>().limits().sequences;
        CELLAR_EXPECTS(m.limits().sequences == sequences, "hybrid: member ", member, " has ", m.limits().sequences,
                       " sequences, expected ", sequences, " as the first one has");
    }

    int layers_;
    std::tuple<Members...> members_;
};

} // namespace cellar
