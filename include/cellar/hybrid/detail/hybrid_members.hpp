// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/base/result.hpp>
#include <cellar/hybrid/hybrid_snapshot.hpp>
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

namespace cellar::detail {

/// The names of what a snapshot has of a member begin with this.
inline std::string member_prefix(const std::string& prefix, int member) {
    return prefix + "members." + std::to_string(member) + ".";
}

/// Why a member's snapshot does not end where those of the members before do, or begins behind that. A member that does
/// not tell may end anywhere, and so may inputs that wait for the next token.
inline Checked<void> check_range(std::optional<std::int64_t> begin, std::optional<std::int64_t> end,
                                 StoredRange& range) {
    if (!range.end) range.end = end;
    if (end && end != range.end)
        return Problem{"its snapshot ends at position " + std::to_string(*end) + ", expected "
                       + std::to_string(*range.end) + ", as in the members before"};
    range.begin = std::max(range.begin, begin.value_or(0));
    if (range.end && range.begin > *range.end)
        return Problem{"its snapshot or that of a member before begins at position " + std::to_string(range.begin)
                       + ", expected at most " + std::to_string(*range.end) + ", where they end"};
    return {};
}

/// What converts to the pass that `open` returns, if the member is there.
template <class M, class F>
auto pass_of(const std::optional<M>& m, F open) {
    using OptionalPass = std::optional<PassOf<M>>;
    return Made{[&m, open = std::move(open)]() mutable {
        return m ? OptionalPass{std::in_place, Made{std::move(open)}} : OptionalPass{};
    }};
}

/// What an operation on a hybrid is for one of its members: the same, with the member's snapshots.
template <class M, class Operation>
struct ForMember {
    using type = Operation;
};
template <class M, template <class> class Operation, class Snapshot>
    requires HasSnapshots<M>
struct ForMember<M, Operation<Snapshot>> {
    using type = Operation<SnapshotOf<M>>;
};
template <class M, class Operation>
using OperationFor = typename ForMember<M, Operation>::type;

template <class M, class Operation>
concept takes_part = may_leave_out<Operation> || Performs<M, OperationFor<M, Operation>>;

/// What the first phase of a member returns.
template <class M, class Operation>
using FirstPhase = decltype(prepare_any(std::declval<M&>(), std::declval<const OperationFor<M, Operation>&>()));

template <class M, class Operation>
struct PreparedBy {
    using type = ValueOf<FirstPhase<M, Operation>>;
};

/// True if the second phase returns a snapshot.
template <class Operation>
inline constexpr bool makes_snapshot = std::same_as<Operation, op::Snapshot> || std::same_as<Operation, Load>;
template <class Snapshot>
inline constexpr bool makes_snapshot<op::Split<Snapshot>> = true;

/// What the members of a hybrid prepared, in their order.
template <class Operation, class... Members>
struct PreparedByAll {
    std::tuple<std::optional<typename PreparedBy<Members, Operation>::type>...> members;
    std::int32_t tokens = 0; ///< of a pass
};

/// The members of a hybrid, some of which may be missing, and the two phases of what they do together: all or none.
template <class... Members>
class HybridMembers {
public:
    using Snapshot = HybridSnapshot<Members...>;

    template <class Operation>
    using Prepared = PreparedByAll<Operation, Members...>;

    explicit HybridMembers(std::optional<Members>... members) : members_{std::move(members)...} {}

    std::tuple<std::optional<Members>...>& all() { return members_; }
    const std::tuple<std::optional<Members>...>& all() const { return members_; }
    template <int I>
    auto& get() {
        return std::get<static_cast<std::size_t>(I)>(members_);
    }
    template <int I>
    const auto& get() const {
        return std::get<static_cast<std::size_t>(I)>(members_);
    }

    /// Calls f for every member that is there.
    template <class F>
    void for_each(F f) {
        const auto call = [&](auto& m) {
            if (m) f(*m);
        };
        std::apply([&](auto&... m) { (call(m), ...); }, members_);
    }
    template <class F>
    void for_each(F f) const {
        const auto call = [&](const auto& m) {
            if (m) f(*m);
        };
        std::apply([&](const auto&... m) { (call(m), ...); }, members_);
    }

    /// The same with the index: f(member, index).
    template <class F>
    void for_each_indexed(F f) {
        for_each_indexed(f, indices);
    }

    /// True if f(member, index) holds for all that are there; asks in turn, up to the first for which it does not.
    template <class F>
    bool all_of(F f) const {
        return all_of(f, indices);
    }

    /// The largest of what the members answer.
    Position next(Sequence s) const {
        Position next{0};
        for_each([&](const auto& m) { next = std::max(next, m.next(s)); });
        return next;
    }

    /// The least that members with cells answer to f(member).
    template <class F>
    Cell fewest(F f) const {
        return fewest_of(*this, f);
    }
    template <class F>
    Cell fewest(F f) {
        return fewest_of(*this, f);
    }

    /// False if all members that are there have inputs of an encoder.
    bool counts_tokens() const {
        return !all_of([](const auto& m, auto) { return !detail::counts_tokens(m); });
    }
    /// True if m holds encoder inputs only, and no token of s sees the inputs from p on yet.
    template <class M>
    bool wait_in(const M& m, Sequence s, Position p) const {
        return !detail::counts_tokens(m) && counts_tokens() && p >= next(s);
    }
    /// The first phase of an operation: asks the members in turn, up to the first one that refuses.
    /// Tells whether one has allocated, if all of them do.
    template <class Operation>
    auto prepare(const Operation& operation) {
        const auto prepare_one = [&](auto& m, auto member) {
            return prepare_any(m, for_member<decltype(member)::value>(m, operation));
        };
        bool allocated = false;
        auto prepared = prepare<Operation, Refusal>(prepare_one, allocated, indices);
        if constexpr ((tells_allocation<FirstPhase<Members, Operation>> && ...)) {
            using All = Attempt<Prepared<Operation>>;
            return prepared ? All{*std::move(prepared), allocated} : All{prepared.error(), allocated};
        } else {
            return prepared;
        }
    }
    /// The first phase of loading a snapshot, which ends at the same position in all members, and begins before it.
    Checked<Prepared<Load>> prepare(const Load& load) {
        StoredRange of_this;
        StoredRange& range = load.range == nullptr ? of_this : *load.range;
        const auto prepare_one = [&](auto& m, auto i) {
            const std::string own = member_prefix(load.prefix, i);
            auto loaded = m.prepare(Load{load.source, own, load.arrays, load.to, &range});
            auto end = load.source.number(own + "to");
            if (!detail::counts_tokens(m) && end == to_end.value) end = std::nullopt;
            const auto begin = load.source.number(own + "from");
            if (auto fits = loaded ? check_range(begin, end, range) : Checked<void>{}; !fits)
                loaded = std::move(fits).error();
            return loaded;
        };
        bool allocated = true;
        return prepare<Load, Problem>(prepare_one, allocated, indices);
    }

    /// The second phase.
    template <class Operation>
    void finish(Prepared<Operation> all) noexcept(!may_fail<Operation>) {
        finish(all, indices);
    }
    /// The second phase of an operation that returns a snapshot.
    template <class Operation>
    Snapshot finish_snapshot(Prepared<Operation> all) noexcept {
        return finish_snapshot(all, indices);
    }

private:
    static constexpr std::index_sequence_for<Members...> indices{};

    template <class Self, class F>
    static Cell fewest_of(Self& self, F f) {
        Cell fewest = INT32_MAX;
        self.for_each([&](auto& m) {
            if constexpr (counts_cells<std::remove_const_t<std::remove_reference_t<decltype(m)>>>)
                fewest = std::min(fewest, Cell{f(m)});
        });
        return fewest;
    }

    // What the operation is for a member.
    template <int I, class M, class Operation>
    Operation for_member(const M&, const Operation& operation) const {
        return operation;
    }
    template <int I, class M>
    op::CopyPrefix for_member(const M& m, const op::CopyPrefix& copy) const {
        return {copy.from, copy.to, wait_in(m, copy.from, copy.end) ? to_end : copy.end};
    }
    template <int I, class M>
    op::Remove for_member(const M& m, const op::Remove& remove) const {
        const bool nothing = remove.begin > Position{0} && wait_in(m, remove.sequence, remove.begin);
        return {remove.sequence, nothing ? remove.end : remove.begin, remove.end, remove.rotate_by};
    }
    template <int I, class M>
    op::Rewind for_member(const M& m, const op::Rewind& rewind) const {
        return {rewind.sequence, wait_in(m, rewind.sequence, rewind.to) ? to_end : rewind.to};
    }
    // Members that may have inputs know themselves where the snapshot of all that they have ends.
    template <int I, class M>
    op::Snapshot for_member(const M&, op::Snapshot snapshot) const {
        if (snapshot.to == to_end && !may_have_inputs<M>) snapshot.to = next(snapshot.sequence);
        return snapshot;
    }
    template <int I, class M>
    op::Restore<SnapshotOf<M>> for_member(const M&, const op::Restore<Snapshot>& restore) const {
        const auto& own = restore.snapshot.template of<I>();
        const bool whole = restore.to == restore.snapshot.to();
        return {restore.sequence, own, whole ? own.to() : restore.to, restore.unchecked};
    }
    template <int I, class M>
    op::Merge<SnapshotOf<M>> for_member(const M&, const op::Merge<Snapshot>& merge) const {
        return {MemoryAccess::member<I>(merge.parent), MemoryAccess::member<I>(merge.child)};
    }
    template <int I, class M>
    op::Split<SnapshotOf<M>> for_member(const M&, const op::Split<Snapshot>& split) const {
        return {MemoryAccess::member<I>(split.snapshot), split.at};
    }
    template <int I, class M>
    op::Offload<SnapshotOf<M>> for_member(const M&, const op::Offload<Snapshot>& page) const {
        return {MemoryAccess::member<I>(page.snapshot), page.to};
    }
    template <int I, class M>
    op::Reload<SnapshotOf<M>> for_member(const M&, const op::Reload<Snapshot>& page) const {
        return {MemoryAccess::member<I>(page.snapshot)};
    }

    template <class F, std::size_t... I>
    void for_each_indexed(F f, std::index_sequence<I...>) {
        const auto call = [&](auto& m, auto i) {
            if (m) f(*m, i);
        };
        (call(std::get<I>(members_), std::integral_constant<int, int{I}>{}), ...);
    }

    template <class F, std::size_t... I>
    bool all_of(F f, std::index_sequence<I...>) const {
        const auto holds = [&](const auto& m, auto i) { return !m || f(*m, i); };
        return (holds(std::get<I>(members_), std::integral_constant<int, int{I}>{}) && ...);
    }

    static void add_member(Refusal& refusal, int member) {
        refusal.inner = std::exchange(refusal.member, member); // of a hybrid that is a member
    }
    static void add_member(Problem& problem, int member) {
        if (problem.refusal) return add_member(*problem.refusal, member);
        problem.text = "member " + std::to_string(member) + ": " + problem.text;
    }

    template <class Operation, class Error, class F, std::size_t... I>
    Result<Prepared<Operation>, Error> prepare(F f, bool& allocated, std::index_sequence<I...>) {
        Prepared<Operation> all;
        Error error;
        const auto agrees = [&](auto& m, auto& prepared, auto member) {
            if (!m) return true;
            auto result = f(*m, member);
            if constexpr (tells_allocation<decltype(result)>) allocated |= result.allocated;
            if (result) {
                prepared.emplace(*std::move(result));
            } else {
                error = std::move(result).error();
                add_member(error, member);
            }
            return prepared.has_value();
        };
        if ((agrees(std::get<I>(members_), std::get<I>(all.members), std::integral_constant<int, int{I}>{}) && ...))
            return all;
        return error;
    }

    template <class Operation, std::size_t... I>
    void finish(Prepared<Operation>& all, std::index_sequence<I...>) noexcept(!may_fail<Operation>) {
        const auto finish_one = [](auto& m, auto& prepared) {
            if (m) finish_any<Operation>(*m, *std::move(prepared));
        };
        (finish_one(std::get<I>(members_), std::get<I>(all.members)), ...);
    }

    template <class Operation, std::size_t... I>
    Snapshot finish_snapshot(Prepared<Operation>& all, std::index_sequence<I...>) noexcept {
        const auto finish_one = [](auto& m, auto& prepared) {
            using One = decltype(m->finish(*std::move(prepared)));
            return m ? std::optional<One>{m->finish(*std::move(prepared))} : std::nullopt;
        };
        return MemoryAccess::make<Snapshot>(finish_one(std::get<I>(members_), std::get<I>(all.members))...);
    }

    std::tuple<std::optional<Members>...> members_;
};

} // namespace cellar::detail
