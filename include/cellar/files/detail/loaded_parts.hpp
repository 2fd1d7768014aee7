// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/base/result.hpp>
#include <cellar/files/detail/saved_snapshot.hpp>
#include <cellar/memory/stored_snapshot.hpp>
#include <cellar/memory/two_phase.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cellar::detail {

/// A snapshot of a file, and the part that precedes it, or -1.
template <class M>
struct LoadedPart {
    SnapshotOf<M> snapshot;
    std::int32_t before;
};

/// An index of the source that lies in [-1, end); nothing if it does not.
inline std::optional<std::int32_t> stored_index(const StoredSource& source, const std::string& name, std::size_t end) {
    const auto number = source.number(name);
    if (!number || *number < -1 || *number >= static_cast<std::int64_t>(end)) return std::nullopt;
    return static_cast<std::int32_t>(*number);
}

/// Adds a snapshot that is offloaded on the host and not filled in yet, and where its arrays go.
template <class M>
Checked<void> add_part(M& memory, StoredSource& source, std::vector<LoadedPart<M>>& parts,
                       std::vector<StoredArray>& arrays) {
    const std::string prefix = part_prefix(parts.size());
    const auto before = stored_index(source, prefix + "before", parts.size());
    if (!before) return Problem{"its part " + std::to_string(parts.size()) + " has no valid place"};
    auto loaded = memory.prepare(Load{source, prefix, arrays});
    if (!loaded) return Problem{"part " + std::to_string(parts.size()) + ": " + loaded.error().text};
    parts.push_back({memory.finish(*std::move(loaded)), *before});
    return {};
}

/// The end of the part before; 0 for one that begins there.
template <class M>
Position begin_of(const std::vector<LoadedPart<M>>& parts, const LoadedPart<M>& part) {
    return part.before == -1 ? Position{0} : parts[static_cast<std::size_t>(part.before)].snapshot.to();
}

/// The same for consecutive parts without a gap.
template <class M>
Checked<void> add_next_part(M& memory, StoredSource& source, std::vector<LoadedPart<M>>& parts,
                            std::vector<StoredArray>& arrays) {
    auto added = add_part(memory, source, parts, arrays);
    if (added && parts.back().snapshot.from() != begin_of<M>(parts, parts.back()))
        return Problem{"its part " + std::to_string(parts.size() - 1) + " does not follow the one before"};
    return added;
}

/// Sequences that get what was loaded, or nothing.
template <class M>
class RestoredSequences {
public:
    RestoredSequences(M& memory, std::vector<Sequence> sequences) : memory_{memory}, sequences_{std::move(sequences)} {}
    RestoredSequences(const RestoredSequences&) = delete;
    RestoredSequences& operator=(const RestoredSequences&) = delete;
    ~RestoredSequences() {
        for (const Sequence s : sequences_) static_cast<void>(memory_.remove(s, Position{0}, to_end)); // never refuses
    }

    /// `last`: of each sequence, its last part or -1. Snapshots are destroyed on the way. Each part is restored once,
    /// to the first sequence that has it, and each other sequence gets a copy of one that has all that it needs:
    /// O(parts + sequences) operations.
    Result<void> restore(std::vector<LoadedPart<M>> parts, std::span<const std::int32_t> last) {
        const std::vector<std::int32_t> first = first_users(parts, last);
        std::vector<std::vector<Sequence>> copies(parts.size()); // to be made when a part was restored
        for (std::size_t k = 0; k < parts.size(); ++k)
            if (const std::int32_t before = parts[k].before; before != -1 && first[k] != first[at(before)])
                if (first[k] != unused) copies[at(before)].push_back(sequences_[at(first[k])]);
        for (std::size_t i = 0; i < last.size(); ++i)
            if (last[i] != -1 && first[at(last[i])] != static_cast<std::int32_t>(i))
                copies[at(last[i])].push_back(sequences_[i]);
        for (std::size_t k = 0; k < parts.size(); ++k) {
            const LoadedPart<M> part = std::move(parts[k]);
            if (first[k] == unused) continue;
            const Sequence s = sequences_[at(first[k])];
            if (const Result<void> done = memory_.restore(s, part.snapshot); !done) return done;
            for (const Sequence to : copies[k])
                if (const Result<void> done = memory_.copy_prefix(s, to, to_end); !done) return done;
        }
        sequences_.clear(); // keep what they have
        return {};
    }

private:
    static constexpr std::int32_t unused = INT32_MAX;

    static std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

    /// The first sequence that has each part.
    static std::vector<std::int32_t> first_users(const std::vector<LoadedPart<M>>& parts,
                                                 std::span<const std::int32_t> last) {
        std::vector<std::int32_t> first(parts.size(), unused);
        for (std::size_t i = last.size(); i-- > 0;)
            if (last[i] != -1) first[at(last[i])] = static_cast<std::int32_t>(i);
        for (std::size_t k = parts.size(); k-- > 0;)
            if (const std::int32_t before = parts[k].before; before != -1)
                first[at(before)] = std::min(first[at(before)], first[k]);
        return first;
    }

    M& memory_;
    std::vector<Sequence> sequences_;
};

} // namespace cellar::detail
