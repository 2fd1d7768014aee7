// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/result.hpp>
#include <cellar/memory/detail/memory_access.hpp>
#include <cellar/memory/detail/optional_members.hpp>
#include <cellar/memory/memory.hpp>
#include <cellar/memory/operations.hpp>

#include <concepts>
#include <type_traits>
#include <utility>

namespace cellar {

namespace detail {

template <class R>
concept is_result = requires(R& result) {
    { result.has_value() } -> std::same_as<bool>;
    { result.error() } -> std::convertible_to<Refusal>;
    *result;
};
template <class R>
concept tells_allocation = requires(const R& result) {
    { result.allocated } -> std::convertible_to<bool>;
};
template <class R>
using ValueOf = std::remove_cvref_t<decltype(*std::declval<R&>())>;

} // namespace detail

/// What the first phase of an operation returns if it does not always allocate: a `Result`, and whether it had to. That
/// follows from the bookkeeping alone, so memories on several ranks that did the same operations answer alike.
template <class T>
class [[nodiscard]] Attempt : public Result<T> {
public:
    Attempt(T&& value, bool allocates) : Result<T>{std::move(value)}, allocated{allocates} {}
    Attempt(const T& value, bool allocates) requires(std::copy_constructible<T>)
        : Result<T>{value}, allocated{allocates} {}
    Attempt(Refusal refusal, bool allocates = false) : Result<T>{refusal}, allocated{allocates} {}
    Attempt(Reason reason) : Attempt{Refusal{reason}} {}
    /// `can`: whether preparing it allocated, or why it is refused.
    Attempt(const T& value, const Result<bool>& can) requires(std::copy_constructible<T>)
        : Attempt{can ? Attempt{value, *can} : Attempt{can.error()}} {}

    bool allocated;
};

/// The snapshots of a memory that has any.
template <class M>
using SnapshotOf = detail::ValueOf<decltype(std::declval<M&>().snapshot(Sequence{}, Position{}, Position{}))>;

/// What the first phase of an operation returns, if it does not refuse.
template <class M, class Operation>
using Prepared = detail::ValueOf<decltype(std::declval<M&>().prepare(std::declval<const Operation&>()))>;

namespace detail {

/// What the second phase of an operation returns.
template <class M, class Operation>
using Finished = decltype(std::declval<M&>().finish(std::declval<Prepared<M, Operation>>()));

/// Backends work in the second phase of these, and may throw.
template <class Operation>
inline constexpr bool may_fail = std::same_as<Operation, op::Begin> || std::same_as<Operation, op::Defragment>;

template <class M, class Operation>
struct Results { // of what returns nothing
    static constexpr bool match = true;
};
template <class M>
struct Results<M, op::Begin> {
    static constexpr bool match = std::same_as<Finished<M, op::Begin>, PassOf<M>>;
};
template <class M>
struct Results<M, op::Snapshot> {
    static constexpr bool match = std::same_as<Finished<M, op::Snapshot>, SnapshotOf<M>>;
};
template <class M, class Snapshot>
struct Results<M, op::Split<Snapshot>> {
    static constexpr bool match = std::same_as<Finished<M, op::Split<Snapshot>>, Snapshot>;
};

template <class M, class Operation>
concept prepares = requires(M& m, const Operation& operation) {
    { m.prepare(operation) } -> is_result;
};
template <class M, class Operation>
concept finishes = requires(M& m, Prepared<M, Operation> prepared) {
    m.finish(std::move(prepared));
};
template <class M, class Operation>
concept finishes_without_fail = may_fail<Operation> || requires(M& m, Prepared<M, Operation> prepared) {
    { m.finish(std::move(prepared)) }
    noexcept;
};
template <class M, class Operation>
concept returns_what_it_makes = Results<M, Operation>::match;

} // namespace detail

/// A memory that has an operation (`op::Begin`, `op::Remove`, ...) in two phases, so that several memories can do it
/// together, all or none:
///
/// - `prepare(operation)` decides, reserves what the second phase needs, and may refuse or throw. It changes nothing
///   that can be observed. Returns a `Result` whose value may simply be thrown away; it is of another type for each
///   operation that `finish` has to tell apart. An `Attempt` also says whether it allocated, so that several ranks
///   (`mpi::LockstepMemory`) need not always ask each other.
/// - `finish(value)` consumes that value. It returns the pass for `op::Begin`, the snapshot for `op::Snapshot` and
///   `op::Split`. It is noexcept, except for `op::Begin` and `op::Defragment`. Between the phases, nothing else may
///   change the memory.
// clang-format off
template <class M, class Operation>
concept Performs =
    detail::prepares<M, Operation> && detail::finishes<M, Operation>
    && detail::finishes_without_fail<M, Operation> && detail::returns_what_it_makes<M, Operation>;
// clang-format on

namespace detail {

/// The second phase, unless the first one has refused: a `Result` of what `finish(value)` returns.
template <class FirstPhase, class Finish>
auto finish_if(FirstPhase prepared, Finish finish) {
    using Done = decltype(finish(*std::move(prepared)));
    if (!prepared) return Result<Done>{prepared.error()};
    if constexpr (std::is_void_v<Done>) {
        finish(*std::move(prepared));
        return Result<void>{};
    } else {
        return Result<Done>{Made{[&] { return finish(*std::move(prepared)); }}};
    }
}

/// Both phases, for the line of a caller.
template <class M, class Operation>
auto perform(M& memory, const Operation& operation, Where where) {
    const Caller caller{where};
    return finish_if(memory.prepare(operation),
                     [&](auto&& prepared) { return memory.finish(std::forward<decltype(prepared)>(prepared)); });
}

template <class T, class... Types>
inline constexpr bool is_among = (std::same_as<T, Types> || ...);

/// True for what concerns only memories that have schedules, or cells (to promise, to form pages, to defragment).
/// Others leave it out.
template <class Operation>
inline constexpr bool may_leave_out =
    is_among<Operation, op::Schedule, op::Unschedule, op::Promise, op::FormPages, op::Defragment>;

/// What a memory that leaves an operation out prepares.
struct LeftOut {};

/// The two phases, for any memory.
template <class M, class Operation>
auto prepare_any(M& memory, const Operation& operation) {
    if constexpr (may_leave_out<Operation> && !prepares<M, Operation>) {
        return Attempt<LeftOut>{LeftOut{}, false};
    } else {
        return memory.prepare(operation);
    }
}
template <class Operation, class M, class Value>
auto finish_any(M& memory, Value&& prepared) noexcept(!may_fail<Operation>) {
    if constexpr (!std::same_as<std::remove_cvref_t<Value>, LeftOut>) {
        return memory.finish(std::forward<Value>(prepared));
    } else if constexpr (std::same_as<Operation, op::Defragment> && requires { memory.defragment(); }) {
        memory.defragment(); // in one phase
    }
}

/// Like `snapshot`, but keeps the schedule at its end if the memory can: for snapshots that are not the program's own.
template <class M>
auto snapshot_keeping_schedule(M& memory, Sequence s, Position from, Position to) {
    if constexpr (Performs<M, op::Snapshot>) {
        return perform(memory, op::Snapshot{s, from, to, true}, current_caller);
    } else {
        return memory.snapshot(s, from, to);
    }
}

template <class P>
concept has_expect_complete = requires(const P& pass) {
    pass.expect_complete();
};
template <class P>
concept has_finish_commit = requires(P& pass) {
    pass.finish_commit();
};

} // namespace detail

/// A memory that has snapshots: one of cellar's own, a hybrid of these, or a class of your own. Files and transfers do
/// not take the latter, because they also call internal functions.
template <class M>
concept HasSnapshots = Memory<M> && requires {
    typename SnapshotOf<M>;
};

/// A memory whose operations have two phases. Every member of a `Hybrid` is one.
///
/// A pass commits in two phases too: `expect_complete()` is a violation if the pass must not be committed yet;
/// `finish_commit()` commits, and cannot fail.
// clang-format off
template <class M>
concept TwoPhaseMemory =
    Memory<M>
    && Performs<M, op::Begin> && Performs<M, op::CopyPrefix> && Performs<M, op::Remove>
    && detail::has_expect_complete<PassOf<M>> && detail::has_finish_commit<PassOf<M>>;

/// A `TwoPhaseMemory` that has snapshots, whose operations have two phases, too. A hybrid whose members all satisfy it
/// has snapshots.
///
/// `op::Merge` and `op::Split` are optional: a hybrid has `merge`, or `split`, if all of its members have it. So are
/// `op::Schedule`, `op::Unschedule`, `op::Promise`, `op::FormPages` and `op::Defragment`, which members without them
/// ignore.
template <class M>
concept TwoPhaseSnapshots =
    TwoPhaseMemory<M> && HasSnapshots<M>
    && Performs<M, op::Snapshot> && Performs<M, op::Restore<SnapshotOf<M>>> && Performs<M, op::Rewind>
    && Performs<M, op::Offload<SnapshotOf<M>>> && Performs<M, op::Reload<SnapshotOf<M>>>;
// clang-format on

namespace detail {

template <class M>
concept merges = Performs<M, op::Merge<SnapshotOf<M>>>;
template <class M>
concept splits = Performs<M, op::Split<SnapshotOf<M>>>;

} // namespace detail

} // namespace cellar
