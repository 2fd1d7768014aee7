// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/base/result.hpp>
#include <cellar/files/detail/loaded_parts.hpp>
#include <cellar/files/detail/saved_snapshot.hpp>
#include <cellar/memory/stored_snapshot.hpp>
#include <cellar/memory/two_phase.hpp>
#include <cellar/prefix/prefix_tree.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cellar::detail {

/// Prefixes of a file that go into an empty tree, all or none.
template <class M>
class LoadedPrefixes {
public:
    /// `s` has no tokens.
    LoadedPrefixes(PrefixTree<M>& tree, Sequence s)
        : tree_{tree}, sequence_{s}, evictions_{tree.statistics().evictions} {}
    LoadedPrefixes(const LoadedPrefixes&) = delete;
    LoadedPrefixes& operator=(const LoadedPrefixes&) = delete;
    ~LoadedPrefixes() {
        leave();
        if (!is_done_) tree_.clear();
    }

    /// Adds the arrays of all prefixes.
    Checked<void> prepare(StoredSource& source, std::vector<StoredArray>& arrays) {
        const auto count = source.number("prefixes");
        if (!count || *count < 0) return Problem{"it has no prefixes"};
        while (static_cast<std::int64_t>(parts_.size()) < *count)
            if (auto added = add(source, arrays); !added) return added;
        return {};
    }

    /// After the arrays were filled. Each prefix costs an `insert` of the tree, and an `attach` unless it continues the
    /// one before it in the file.
    Result<void> insert() {
        std::vector<std::int32_t> path;
        for (std::size_t k = 0; k < parts_.size(); ++k) {
            if (follows(k)) {
                path.insert(path.end(), edges_[k].tokens.begin(), edges_[k].tokens.end());
            } else {
                leave();
                path = path_to(k);
            }
            const Result<void> inserted = insert(std::move(parts_[k].snapshot), path, edges_[k].salt);
            if (!inserted) return inserted;
            if (tree_.statistics().evictions != evictions_) return Refusal{.reason = Reason::full};
        }
        leave();
        is_done_ = true;
        return {};
    }

private:
    struct Edge {
        std::uint64_t salt;
        std::vector<std::int32_t> tokens;
    };

    Checked<void> add(StoredSource& source, std::vector<StoredArray>& arrays) {
        M& memory = tree_.memory();
        const std::string name = "its part " + std::to_string(parts_.size());
        const std::string prefix = part_prefix(parts_.size());
        const auto salt = source.number(prefix + "salt");
        const auto shape = source.shape(prefix + "tokens");
        if (!salt || !shape || shape->size() != 1 || (*shape)[0] == 0 || (*shape)[0] > INT32_MAX)
            return Problem{name + " has no valid salt and tokens"};
        Edge edge{std::bit_cast<std::uint64_t>(*salt), std::vector<std::int32_t>((*shape)[0])};
        if (!source.read(prefix + "tokens", edge.tokens)) return Problem{name + " has no valid salt and tokens"};
        if (auto added = add_part(memory, source, parts_, arrays); !added) return added;
        const LoadedPart<M>& part = parts_.back();
        const std::int64_t end = begin_of<M>(parts_, part).value + static_cast<std::int64_t>(edge.tokens.size());
        const bool fits = part.before == -1 || edges_[static_cast<std::size_t>(part.before)].salt == edge.salt;
        if (!fits || part.snapshot.to().value != end || !begins_well(part))
            return Problem{name + " does not follow the one before"};
        edges_.push_back(std::move(edge));
        return {};
    }

    /// True if the snapshot begins at 0, or where one above it ends.
    bool begins_well(const LoadedPart<M>& part) const {
        const Position from = part.snapshot.from();
        std::int32_t k = part.before;
        while (k != -1 && parts_[static_cast<std::size_t>(k)].snapshot.to() != from)
            k = parts_[static_cast<std::size_t>(k)].before;
        return k != -1 || from == Position{0};
    }

    /// True if the sequence has what lies below part k, because it was the last one that was inserted.
    bool follows(std::size_t k) const {
        const Position has = tree_.memory().next(sequence_);
        return has != Position{0} && parts_[k].before == static_cast<std::int64_t>(k) - 1
               && parts_[k].snapshot.from() == has;
    }

    std::vector<std::int32_t> path_to(std::size_t k) const {
        std::vector<std::size_t> parts{k};
        while (parts_[parts.back()].before != -1)
            parts.push_back(static_cast<std::size_t>(parts_[parts.back()].before));
        std::vector<std::int32_t> path;
        for (; !parts.empty(); parts.pop_back()) {
            const std::vector<std::int32_t>& tokens = edges_[parts.back()].tokens;
            path.insert(path.end(), tokens.begin(), tokens.end());
        }
        return path;
    }

    /// The sequence takes up what lies below the snapshot from the tree, unless it has it, and then the snapshot. The
    /// tree keeps all.
    Result<void> insert(SnapshotOf<M> snapshot, const std::vector<std::int32_t>& path, std::uint64_t salt) {
        auto& state = MemoryAccess::state(tree_);
        M& memory = tree_.memory();
        const auto below = std::span{path}.first(static_cast<std::size_t>(snapshot.from().value));
        if (memory.next(sequence_) != snapshot.from()
            && state.attach(sequence_, state.walk(below, salt)) != snapshot.from().value)
            return Refusal{.reason = Reason::full};
        while (true) {
            const Result<void> restored = memory.restore(sequence_, snapshot, snapshot.to());
            if (restored) break;
            if (!state.make_room(restored.error())) return restored;
        }
        return tree_.insert(sequence_, path, salt);
    }

    void leave() { static_cast<void>(tree_.memory().remove(sequence_, Position{0}, to_end)); } // never refuses

    PrefixTree<M>& tree_;
    Sequence sequence_;
    std::int64_t evictions_;
    std::vector<LoadedPart<M>> parts_;
    std::vector<Edge> edges_;
    bool is_done_ = false;
};

} // namespace cellar::detail
