// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/memory/stored_snapshot.hpp>
#include <cellar/memory/two_phase.hpp>

#include <concepts>
#include <string>
#include <utility>
#include <vector>

namespace cellar::detail {

/// The operation that makes a snapshot from a file or a transfer.
struct Load {};

template <class M>
using PreparedLoad = ValueOf<decltype(MemoryAccess::prepare_load(
    std::declval<M&>(), std::declval<StoredSource&>(), std::string{}, std::declval<std::vector<StoredArray>&>()))>;

template <class M>
concept saves = requires(M& m, const SnapshotOf<M>& snapshot, const std::string& prefix, StoredSnapshot& stored) {
    MemoryAccess::save(m, snapshot, prefix, stored);
};
template <class M>
concept saves_ahead = requires(M& m, Sequence s, Position to, const std::string& prefix, StoredSnapshot& stored) {
    MemoryAccess::save_ahead(m, s, to, prefix, stored);
};
template <class M>
concept loads = requires(M& m, StoredSource& source, const std::string& prefix, std::vector<StoredArray>& arrays,
                         PreparedLoad<M> prepared) {
    MemoryAccess::prepare_load(m, source, prefix, arrays);
    { MemoryAccess::finish(m, std::move(prepared)) } -> std::same_as<SnapshotOf<M>>;
};

/// A memory that files and transfers take: one of cellar's own with snapshots, or a hybrid of these.
template <class M>
concept SavesSnapshots = HasSnapshots<M> && saves<M> && saves_ahead<M> && loads<M>;

} // namespace cellar::detail
