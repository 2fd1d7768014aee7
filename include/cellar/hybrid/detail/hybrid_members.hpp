// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/base/result.hpp>
#include <cellar/memory/stored_snapshot.hpp>
#include <cellar/memory/two_phase.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace cellar::detail {

/// The names of what a snapshot has of a member begin with this.
inline std::string member_prefix(const std::string& prefix, int member) {
    return prefix + "members." + std::to_string(member) + ".";
}

/// Why a member's snapshot does not end where those of the members before do; else an empty string. A member that does
/// not tell may end anywhere, and so may inputs that wait for the next token.
inline std::string mismatch_of_ends(std::optional<std::int64_t> found, std::optional<std::int64_t>& expected) {
    if (!found) return "";
    if (!expected) expected = found;
    if (found == expected) return "";
    return "its snapshot ends at position " + std::to_string(*found) + ", expected " + std::to_string(*expected)
           + ", as in the members before";
}

/// What converts to the pass that `open` returns, if the member is there.
template <class M, class F>
auto pass_of(const std::optional<M>& m, F open) {
    using OptionalPass = std::optional<PassOf<M>>;
    return Made{[&m, open = std::move(open)]() mutable {
        return m ? OptionalPass{std::in_place, Made{std::move(open)}} : OptionalPass{};
    }};
}

/// The members of a hybrid, some of which may be missing, and the two phases of what they do together: all or none.
template <class... Members>
class HybridMembers {
public:
    /// What the members prepared, in their order. Each operation has its own type.
    template <template <class> class PreparedOf>
    struct Prepared {
        std::tuple<std::optional<PreparedOf<Members>>...> members;
        std::int32_t tokens = 0;
    };

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

    /// False if all members that are there have inputs of an encoder.
    bool counts_tokens() const {
        return !all_of([](const auto& m, auto) { return !MemoryAccess::counts_tokens(m); });
    }
    /// True if m has no tokens but inputs, and those of s at position p would wait for the next token of s.
    template <class M>
    bool wait_in(const M& m, Sequence s, Position p) const {
        return !MemoryAccess::counts_tokens(m) && counts_tokens() && p >= next(s);
    }
    /// Where the snapshot of all that m has of s ends. Members that may have inputs know it themselves.
    template <class M>
    Position end_in(const M&, Sequence s) const {
        return MemoryAccess::may_have_inputs<M>() ? to_end : next(s);
    }

    /// The first phase of an operation: asks f(member, index) in turn, up to the first member that refuses.
    template <class AllPrepared, class F>
    Result<AllPrepared> prepare(F f) {
        return prepare<AllPrepared>(f, indices);
    }
    /// The first phase of loading a snapshot, which ends at the same position in all members.
    template <class Load>
    LoadResult<Load> prepare_load(StoredSource& source, const std::string& prefix, std::vector<StoredArray>& arrays,
                                  LoadTo to) {
        std::string problem;
        std::optional<std::int64_t> end;
        auto prepared = prepare<Load>([&](auto& m, auto i) {
            const std::string own = member_prefix(prefix, i);
            auto loaded = MemoryAccess::prepare_load_to(to, m, source, own, arrays);
            using One = typename decltype(loaded.prepared)::value_type;
            auto end_of_member = source.number(own + "to");
            if (!MemoryAccess::counts_tokens(m) && end_of_member == to_end.value) end_of_member = std::nullopt;
            if (loaded.prepared) loaded.problem = mismatch_of_ends(end_of_member, end);
            if (loaded.prepared && loaded.problem.empty()) return Result<One>{*std::move(loaded.prepared)};
            if (loaded.refusal) return Result<One>{*loaded.refusal};
            problem = "member " + std::to_string(int{i}) + ": " + loaded.problem;
            return Result<One>{Reason::full}; // only the problem counts
        });
        if (prepared) return {*std::move(prepared), ""};
        return {std::nullopt, problem, problem.empty() ? std::optional{prepared.error()} : std::nullopt};
    }

    /// The second phase.
    template <class AllPrepared>
    void finish(AllPrepared all) noexcept {
        finish(all, indices);
    }
    /// The second phase of an operation that returns a snapshot.
    template <class Snapshot, class AllPrepared>
    Snapshot finish_snapshot(AllPrepared all) noexcept {
        return finish_snapshot<Snapshot>(all, indices);
    }

    /// The phases of schedules, which members without any ignore.
    Result<void> prepare_schedule(Sequence s, Position p) {
        const auto prepared = prepare<Prepared<Nothing>>([&](auto& m, auto) {
            const Result<void> one = MemoryAccess::prepare_schedule(m, s, p);
            return one ? Result<int>{0} : Result<int>{one.error()};
        });
        if (!prepared) return prepared.error();
        return {};
    }
    void finish_schedule(Sequence s, Position p) noexcept {
        for_each([&](auto& m) { MemoryAccess::finish_schedule(m, s, p); });
    }
    void prepare_unschedule(Sequence s, Position p) {
        for_each([&](auto& m) { MemoryAccess::prepare_unschedule(m, s, p); });
    }
    void finish_unschedule(Sequence s, Position p) noexcept {
        for_each([&](auto& m) { MemoryAccess::finish_unschedule(m, s, p); });
    }

    /// The phases of `defragment`, which members without cells ignore. One that has no phases does all in the second.
    auto prepare_defragment() {
        const auto prepare_one = [](auto& m) {
            if constexpr (prepares_defragment<decltype(*m)>) {
                return m ? std::optional{MemoryAccess::prepare_defragment(*m)} : std::nullopt;
            } else {
                return 0;
            }
        };
        // Braces keep the order.
        return std::apply([&](auto&... m) { return std::tuple{prepare_one(m)...}; }, members_);
    }
    template <class AllPrepared>
    void finish_defragment(const AllPrepared& all) {
        for_each_indexed([&](auto& m, auto member) {
            if constexpr (prepares_defragment<decltype(m)>) {
                MemoryAccess::finish_defragment(m, *std::get<decltype(member)::value>(all));
            } else if constexpr (requires { m.defragment(); }) {
                m.defragment();
            }
        });
    }

private:
    static constexpr std::index_sequence_for<Members...> indices{};

    template <class>
    using Nothing = int;

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

    template <class AllPrepared, class F, std::size_t... I>
    Result<AllPrepared> prepare(F f, std::index_sequence<I...>) {
        AllPrepared all;
        Refusal refusal;
        const auto agrees = [&](auto& m, auto& prepared, auto member) {
            if (!m) return true;
            auto result = f(*m, member);
            if (result) {
                prepared.emplace(*std::move(result));
            } else {
                refusal = result.error();
                refusal.member = member;
            }
            return prepared.has_value();
        };
        if ((agrees(std::get<I>(members_), std::get<I>(all.members), std::integral_constant<int, int{I}>{}) && ...))
            return all;
        return refusal;
    }

    template <class AllPrepared, std::size_t... I>
    void finish(AllPrepared& all, std::index_sequence<I...>) noexcept {
        const auto finish_one = [](auto& m, auto& prepared) {
            if (m) MemoryAccess::finish(*m, *std::move(prepared));
        };
        (finish_one(std::get<I>(members_), std::get<I>(all.members)), ...);
    }

    template <class Snapshot, class AllPrepared, std::size_t... I>
    Snapshot finish_snapshot(AllPrepared& keep, std::index_sequence<I...>) noexcept {
        const auto finish_one = []<class M>(std::optional<M>& m, auto& prepared) -> std::optional<SnapshotOf<M>> {
            if (!m) return std::nullopt;
            return MemoryAccess::finish(*m, *std::move(prepared));
        };
        return MemoryAccess::make<Snapshot>(finish_one(std::get<I>(members_), std::get<I>(keep.members))...);
    }

    std::tuple<std::optional<Members>...> members_;
};

} // namespace cellar::detail
