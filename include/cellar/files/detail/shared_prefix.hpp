// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/base/position_run.hpp>
#include <cellar/memory/two_phase.hpp>

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace cellar::detail {

struct AnyCellVisitor {
    void operator()(Position, Cell, std::int32_t) const {}
};
template <class M>
concept lists_cells = requires(const M& m) {
    m.visit_cells(Sequence{}, AnyCellVisitor{});
};
template <class M>
concept lists_states = requires(const M& m) {
    m.kept(Sequence{}).back().slot;
};

/// Up to where sequence b has the same cells as a, in all members of the memory. A memory that does not list its cells,
/// and is not a recurrent one, shares nothing.
template <class M>
Position shared_prefix(const M& memory, Sequence a, Sequence b) {
    Position end = to_end;
    for_each_member(memory, [&]<class Member>(const Member& member) {
        if constexpr (lists_cells<Member>) {
            const auto runs_of = [&](Sequence s) {
                std::vector<PositionRun> runs;
                member.visit_cells(s, [&](Position p, Cell cell, std::int32_t n) {
                    runs.push_back({p.value, cell, n, p.value});
                });
                return runs;
            };
            end = std::min(end, first_difference(runs_of(a), runs_of(b)));
        } else if constexpr (!lists_states<Member>) {
            end = Position{0};
        }
    });
    return end;
}

/// True if the state that a keeps at `end` is the current one of b, in all recurrent members of the memory.
template <class M>
bool shares_state(const M& memory, Sequence a, Sequence b, Position end) {
    bool shares = true;
    for_each_member(memory, [&]<class Member>(const Member& member) {
        if constexpr (lists_states<Member>) {
            const auto states = member.kept(a);
            const auto current = member.kept(b);
            const auto found = std::find_if(states.begin(), states.end(), [&](const auto& s) { return s.next == end; });
            shares = shares && found != states.end() && !current.empty() && current.back().next == end
                     && current.back().slot == found->slot;
        }
    });
    return shares;
}

/// True if s has inputs of an encoder at position p or after it, in a member of the memory or of a hybrid in it.
template <class M>
bool has_inputs(const M& memory, Sequence s, Position p) {
    bool has = false;
    for_each_member(memory, [&]<class Member>(const Member& member) {
        if constexpr (!std::is_same_v<Member, M>) {
            has = has || has_inputs(member, s, p);
        } else if constexpr (may_have_inputs<Member>) {
            const auto range = member.range(s);
            has = range && range->last >= p;
        }
    });
    return has;
}

} // namespace cellar::detail
