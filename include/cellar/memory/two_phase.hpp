// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/batch.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/result.hpp>
#include <cellar/memory/detail/memory_access.hpp>
#include <cellar/memory/memory.hpp>
#include <cellar/memory/stored_snapshot.hpp>

#include <concepts>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace cellar {

namespace detail {

template <class M>
concept prepares_defragment = requires(M& m) {
    MemoryAccess::prepare_defragment(m);
};

template <class R>
concept is_result = requires(R& result) {
    { result.has_value() } -> std::same_as<bool>;
    { result.error() } -> std::convertible_to<Refusal>;
    *result;
};
template <class R>
using ValueOf = std::remove_cvref_t<decltype(*std::declval<R&>())>;

template <class M>
concept prepares_begin = requires(M& m, const Batch& batch) {
    { MemoryAccess::prepare_begin(m, batch) } -> is_result;
};
template <class M>
concept prepares_copy_prefix = requires(M& m, Sequence s, std::int32_t length) {
    { MemoryAccess::prepare_copy_prefix(m, s, s, length) } -> is_result;
};
template <class M>
concept prepares_remove = requires(M& m, Sequence s, Position p) {
    { MemoryAccess::prepare_remove(m, s, p, p) } -> is_result;
};

/// What the first phase of each operation returns.
template <class M>
using PreparedBegin = ValueOf<decltype(MemoryAccess::prepare_begin(std::declval<M&>(), std::declval<const Batch&>()))>;
template <class M>
using PreparedCopyPrefix =
    ValueOf<decltype(MemoryAccess::prepare_copy_prefix(std::declval<M&>(), Sequence{}, Sequence{}, 0))>;
template <class M>
using PreparedRemove =
    ValueOf<decltype(MemoryAccess::prepare_remove(std::declval<M&>(), Sequence{}, Position{}, Position{}))>;

template <class M>
concept finishes_begin = requires(M& m, PreparedBegin<M> prepared) {
    { MemoryAccess::finish(m, std::move(prepared)) } -> std::same_as<PassOf<M>>;
};
template <class M>
concept finishes_copy_prefix = requires(M& m, PreparedCopyPrefix<M> prepared) {
    { MemoryAccess::finish(m, std::move(prepared)) }
    noexcept;
};
template <class M>
concept finishes_remove = requires(M& m, PreparedRemove<M> prepared) {
    { MemoryAccess::finish(m, std::move(prepared)) }
    noexcept;
};
template <class P>
concept has_expect_complete = requires(const P& pass) {
    MemoryAccess::expect_complete(pass);
};
template <class P>
concept has_finish_commit = requires(P& pass) {
    MemoryAccess::finish_commit(pass);
};

} // namespace detail

/// The snapshots of a memory that has any.
template <class M>
using SnapshotOf = detail::ValueOf<decltype(std::declval<M&>().snapshot(Sequence{}, Position{}, Position{}))>;

/// A memory that has snapshots: one of cellar's own, a hybrid of these, or a class of your own. Files and transfers do
/// not take the latter, because they also call internal functions.
template <class M>
concept HasSnapshots = Memory<M> && requires {
    typename SnapshotOf<M>;
};

/// A memory whose operations have two phases, so that several memories can do an operation together, all or none. Every
/// member of a `Hybrid` is one.
///
/// - `prepare_begin(batch)`, `prepare_copy_prefix(from, to, length)`, `prepare_remove(s, begin, end)`: the first phase.
///   It decides, reserves what the second phase needs, and may refuse or throw. It changes nothing that can be
///   observed. Returns a `Result` whose value describes the operation, and may simply be thrown away.
/// - `finish(value)`: the second phase; consumes that value. For `prepare_begin` it returns the pass, and may throw.
///   For the other two it is noexcept. Between the phases, nothing else may change the memory.
/// - A pass commits in two phases too: `expect_complete()` is a violation if the pass must not be committed yet;
///   `finish_commit()` commits, and cannot fail.
///
/// These functions may be private: see `MemoryAccess`.
// clang-format off
template <class M>
concept TwoPhaseMemory =
    Memory<M>
    && detail::prepares_begin<M> && detail::finishes_begin<M>
    && detail::prepares_copy_prefix<M> && detail::finishes_copy_prefix<M>
    && detail::prepares_remove<M> && detail::finishes_remove<M>
    && detail::has_expect_complete<PassOf<M>> && detail::has_finish_commit<PassOf<M>>;
// clang-format on

namespace detail {

template <class M>
using PreparedSnapshot =
    ValueOf<decltype(MemoryAccess::prepare_snapshot(std::declval<M&>(), Sequence{}, Position{}, Position{}))>;
template <class M>
using PreparedRestore = ValueOf<decltype(MemoryAccess::prepare_restore(
    std::declval<M&>(), Sequence{}, std::declval<const SnapshotOf<M>&>(), Position{}))>;

template <class M>
concept prepares_snapshot = requires(M& m, Sequence s, Position p) {
    { MemoryAccess::prepare_snapshot(m, s, p, p) } -> is_result;
};
template <class M>
concept prepares_restore = requires(M& m, Sequence s, Position p, const SnapshotOf<M>& snapshot) {
    { MemoryAccess::prepare_restore(m, s, snapshot, p) } -> is_result;
};
template <class M>
concept finishes_snapshot = requires(M& m, PreparedSnapshot<M> prepared) {
    { MemoryAccess::finish(m, std::move(prepared)) }
    noexcept->std::same_as<SnapshotOf<M>>;
};
template <class M>
concept finishes_restore = requires(M& m, PreparedRestore<M> prepared) {
    { MemoryAccess::finish(m, std::move(prepared)) }
    noexcept;
};

template <class M>
using PreparedPageOut =
    decltype(MemoryAccess::prepare_page_out(std::declval<M&>(), std::declval<SnapshotOf<M>&>(), PageTo::host));
template <class M>
using PreparedPageIn =
    ValueOf<decltype(MemoryAccess::prepare_page_in(std::declval<M&>(), std::declval<SnapshotOf<M>&>()))>;

template <class M>
using PreparedMerge = ValueOf<decltype(MemoryAccess::prepare_merge(std::declval<M&>(), std::declval<SnapshotOf<M>&>(),
                                                                   std::declval<SnapshotOf<M>&>()))>;
template <class M>
using PreparedSplit =
    ValueOf<decltype(MemoryAccess::prepare_split(std::declval<M&>(), std::declval<SnapshotOf<M>&>(), Position{}))>;

template <class M>
using PreparedLoad =
    typename decltype(MemoryAccess::prepare_load(std::declval<M&>(), std::declval<StoredSource&>(), std::string{},
                                                 std::declval<std::vector<StoredArray>&>())
                          .prepared)::value_type;

template <class M>
concept rewinds = requires(M& m, Sequence s, Position p) {
    { MemoryAccess::prepare_rewind(m, s, p) } -> std::same_as<Result<PreparedRemove<M>>>;
};
template <class M>
concept pages_out = requires(M& m, SnapshotOf<M>& snapshot, PreparedPageOut<M> prepared) {
    { MemoryAccess::finish(m, std::move(prepared)) }
    noexcept;
};
template <class M>
concept pages_in = requires(M& m, SnapshotOf<M>& snapshot, PreparedPageIn<M> prepared) {
    { MemoryAccess::prepare_page_in(m, snapshot) } -> is_result;
    { MemoryAccess::finish(m, std::move(prepared)) }
    noexcept;
};
template <class M>
concept merges = requires(M& m, SnapshotOf<M>& snapshot, PreparedMerge<M> prepared) {
    { MemoryAccess::prepare_merge(m, snapshot, snapshot) } -> is_result;
    { MemoryAccess::finish(m, std::move(prepared)) }
    noexcept;
};
template <class M>
concept splits = requires(M& m, SnapshotOf<M>& snapshot, PreparedSplit<M> prepared) {
    { MemoryAccess::prepare_split(m, snapshot, Position{}) } -> is_result;
    { MemoryAccess::finish(m, std::move(prepared)) }
    noexcept->std::same_as<SnapshotOf<M>>;
};

} // namespace detail

/// A `TwoPhaseMemory` that has snapshots, whose operations have two phases, too. A hybrid whose members all satisfy it
/// has snapshots.
///
/// - `prepare_snapshot(s, from, to)`: its `finish` returns the snapshot.
/// - `prepare_restore(s, snapshot, to)`, and `prepare_rewind(s, to)` without a snapshot, which prepares a removal.
/// - `prepare_page_out(snapshot, place)`, which is no `Result`, and `prepare_page_in(snapshot)`.
/// - `prepare_merge(parent, child)`, and `prepare_split(snapshot, at)`, whose `finish` returns the rest: optional. A
///   hybrid has `merge`, or `split`, if all of its members have it.
// clang-format off
template <class M>
concept TwoPhaseSnapshots =
    TwoPhaseMemory<M>
    && detail::prepares_snapshot<M> && detail::finishes_snapshot<M>
    && detail::prepares_restore<M> && detail::finishes_restore<M> && detail::rewinds<M>
    && detail::pages_out<M> && detail::pages_in<M>;
// clang-format on

} // namespace cellar
