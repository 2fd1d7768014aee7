// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/memory/two_phase.hpp>

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace cellar::detail {

/// The first position below `end` at which s has several tokens in a member of the memory that lists its cells; `end`
/// if there is none. O(runs of s).
template <class M>
Position first_shared_position(const M& memory, Sequence s, Position end) {
    Position shared = end;
    for_each_member(memory, [&]<class Member>(const Member& member) {
        // The inputs of an encoder share their positions, and are not tokens of the sequence: its `next` is 0.
        if (member.next(s) == Position{0}) return;
        Position behind{0}; // the last token that was visited
        const auto visit = [&](Position p, Cell, std::int32_t n) {
            if (p < behind) shared = std::min(shared, p);
            behind = p + n;
        };
        if constexpr (requires { member.visit_cells(s, visit); }) {
            member.visit_cells(s, visit);
        } else if constexpr (!std::is_same_v<Member, M>) {
            shared = std::min(shared, first_shared_position(member, s, end)); // a hybrid, too
        }
    });
    return shared;
}

} // namespace cellar::detail
