// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/memory/stored_snapshot.hpp>
#include <cellar/memory/two_phase.hpp>

#include <concepts>
#include <string>
#include <utility>

namespace cellar::detail {

template <class M>
using PreparedLoad = Prepared<M, Load>;

template <class M>
concept saves = requires(M& m, const SnapshotOf<M>& snapshot, const std::string& prefix, StoredSnapshot& stored) {
    m.save(snapshot, prefix, stored);
};
template <class M>
concept saves_ahead = requires(M& m, Sequence s, Position to, const std::string& prefix, StoredSnapshot& stored) {
    m.save_ahead(s, to, prefix, stored);
};
template <class M>
concept loads = requires(M& m, const Load& load, PreparedLoad<M> prepared) {
    m.prepare(load);
    { m.finish(std::move(prepared)) } -> std::same_as<SnapshotOf<M>>;
};

/// A memory that files and transfers take: one of cellar's own with snapshots, or a hybrid of these.
template <class M>
concept SavesSnapshots = HasSnapshots<M> && saves<M> && saves_ahead<M> && loads<M>;

} // namespace cellar::detail
