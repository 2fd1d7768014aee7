// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/base/result.hpp>
#include <cellar/memory/two_phase.hpp>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <span>
#include <type_traits>

namespace cellar::serve {

/// A request that is about to run.
struct Admission {
    Sequence sequence;                   ///< which is empty
    std::span<const std::int32_t> known; ///< what may be known already: all tokens but the last, whose output is needed
    std::uint64_t salt;
    std::int32_t room;  ///< tokens that must fit, those that are known included
    std::int32_t spare; ///< further cells that must be free
    bool promised;      ///< whether the room stays set aside
};

} // namespace cellar::serve

namespace cellar::detail {

template <class M>
concept enters = requires(M& m, const serve::Admission& admission, typename M::kept_type& kept) {
    { m.enter(admission, kept) } -> std::same_as<Result<void>>;
};
template <class M>
concept says_next = requires(const M& m, Sequence s) {
    { m.next(s) } -> std::same_as<Position>;
};
template <class M>
concept keeps_tokens = requires(M& m, Sequence s, std::span<const std::int32_t> tokens, std::uint64_t salt) {
    m.keep(s, tokens, salt);
};
template <class M>
concept puts_back = requires(M& m, Sequence s, std::span<const std::int32_t> tokens, std::uint64_t salt) {
    { m.put_back(s, tokens, salt) } -> std::same_as<typename M::kept_type>;
};
template <class M>
concept clears = requires(M& m, Sequence s) {
    m.clear(s);
};
template <class M>
concept removes = requires(M& m, Sequence s, Position begin, Position end) {
    { m.remove(s, begin, end) } -> std::same_as<Result<void>>;
};

/// Sets cells aside for the next tokens of s. A memory without cells has room.
template <class M>
Result<void> promise_any(M& memory, Sequence s, std::int32_t tokens) {
    if constexpr (requires { memory.promise(s, tokens); }) return memory.promise(s, tokens);
    return {};
}

/// The tokens of a batch that every member takes. A memory that does not say it takes any number.
template <class M>
std::int32_t largest_batch(const M& m) {
    if constexpr (requires { m.limits().batch; }) {
        return m.limits().batch;
    } else {
        std::int32_t least = INT32_MAX;
        for_each_member(m, [&]<class Member>(const Member& member) {
            if constexpr (!std::is_same_v<Member, M>) least = std::min(least, largest_batch(member));
        });
        return least;
    }
}

/// Cells that are free, and those that a prefix tree could give up, of all members. O(members).
template <class M>
std::int64_t room_of(const M& m) {
    std::int64_t room = 0;
    for_each_member(m, [&]<class Member>(const Member& member) {
        if constexpr (!std::is_same_v<Member, M>) {
            room += room_of(member); // a hybrid, too
        } else if constexpr (requires { member.free_cells(); }) {
            room += member.free_cells();
            if constexpr (requires { member.evictable_cells(); }) room += member.evictable_cells();
        }
    });
    return room;
}

} // namespace cellar::detail

namespace cellar::serve {

/// What a scheduler asks of a memory: `TreeMemory` has it with a prefix tree, `PlainMemory` without one.
///
/// - `enter(admission, kept)`: the sequence gets what is known of its tokens, and `kept` is used up. Refuses (with
///   `full`, if the room is not there) or throws with the sequence empty and `kept` as it was.
/// - `next(s)`: how many tokens of s are computed.
/// - `keep(s, tokens, salt)`: others may go on from these tokens, which are all that s has; if the memory can do that.
/// - `put_back(s, tokens, salt)`: keeps them for the request itself, and empties s. What it returns is given to `enter`
///   when the request runs again. What could not be kept is computed again.
/// - `clear(s)`: empties s, and ends its promise.
/// - `remove(s, begin, end)`: as of the memory.
/// - `sequences()`, `batch()`, optional: how many it has, and the most tokens of a batch. Limits of a scheduler that
///   exceed them are a violation.
/// - `room()`, optional: a number (`std::int64_t`) that is larger after cells became free. A scheduler asks for it in
///   each step, and looks again whether the oldest request that waits can run once it has grown. Without it, and after
///   what `room()` does not count, it looks when a request ends, is put back, forgets tokens or is kept. `TreeMemory`
///   and `PlainMemory` add up the cells of all members, with those of pinned prefixes.
/// - `begin(batch)`, unless `Scheduler::begin` is called with a function.
// clang-format off
template <class M>
concept RequestMemory =
    std::movable<M> && std::default_initializable<typename M::kept_type> && std::movable<typename M::kept_type>
    && detail::enters<M> && detail::says_next<M> && detail::keeps_tokens<M> && detail::puts_back<M>
    && detail::clears<M> && detail::removes<M>;
// clang-format on

} // namespace cellar::serve
