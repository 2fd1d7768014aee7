// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/type_list.hpp>
#include <cellar/memory/two_phase.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>

namespace cellar {

/// A snapshot of a sequence of a hybrid: one of each member, all up to the same position, except that inputs that wait
/// for the next token may lie behind it. Move-only; see the snapshots of the members for what they own.
template <class... Members>
class HybridSnapshot {
public:
    /// The largest of the members' `from`: below it, at least one member needs the sequence's own tokens.
    Position from(Where where = Where::current()) const {
        Position from{0};
        for_each([&](const auto& snapshot) { from = std::max(from, snapshot.from(where)); });
        return from;
    }
    /// Where it ends: the position of the next token.
    Position to(Where where = Where::current()) const {
        Position to = to_end; // as snapshots with inputs behind it say; the others agree
        for_each([&](const auto& snapshot) { to = std::min(to, snapshot.to(where)); });
        return to;
    }

    /// True after `offload`.
    bool is_offloaded(Where where = Where::current()) const {
        bool all = true;
        for_each([&](const auto& snapshot) { all = all && snapshot.is_offloaded(where); });
        return all;
    }

    /// Bytes of all members' snapshots outside their memories: 0 if they are in place.
    std::int64_t bytes(Where where = Where::current()) const {
        std::int64_t bytes = 0;
        for_each([&](const auto& snapshot) { bytes += snapshot.bytes(where); });
        return bytes;
    }

    /// The snapshot of one member.
    template <class Member>
    const auto& of(Where where = Where::current()) const {
        static_assert(detail::times_among<Member, Members...> == 1, "the hybrid has no such member");
        return of<detail::index_among<Member, Members...>()>(where);
    }
    template <int I>
    const auto& of(Where where = Where::current()) const {
        const auto& snapshot = std::get<static_cast<std::size_t>(I)>(members_);
        CELLAR_EXPECTS_AT(where, snapshot.has_value(), "of: the hybrid was made without member ", I,
                          ", expected one with it");
        return *snapshot;
    }

private:
    friend struct MemoryAccess;

    explicit HybridSnapshot(std::optional<SnapshotOf<Members>>... members) : members_{std::move(members)...} {}

    template <int I>
    auto& member() {
        return const_cast<SnapshotOf<std::tuple_element_t<static_cast<std::size_t>(I), std::tuple<Members...>>>&>(
            std::as_const(*this).template of<I>());
    }

    template <class F>
    void for_each(F f) const {
        const auto call = [&](const auto& snapshot) {
            if (snapshot) f(*snapshot);
        };
        std::apply([&](const auto&... snapshot) { (call(snapshot), ...); }, members_);
    }

    std::tuple<std::optional<SnapshotOf<Members>>...> members_;
};

} // namespace cellar
