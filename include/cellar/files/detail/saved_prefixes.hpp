// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/element/stored_format.hpp>
#include <cellar/files/detail/saved_snapshot.hpp>
#include <cellar/memory/stored_snapshot.hpp>
#include <cellar/memory/two_phase.hpp>
#include <cellar/prefix/prefix_tree.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace cellar::detail {

/// The nodes of a prefix tree that have a snapshot: each after those above it, and otherwise the least recently used
/// first. The tree must not change meanwhile.
template <class M>
class SavedPrefixes {
    using State = std::remove_cvref_t<decltype(MemoryAccess::state(std::declval<PrefixTree<M>&>()))>;
    using Node = typename State::Node;

public:
    explicit SavedPrefixes(PrefixTree<M>& tree) : memory_{tree.memory()} {
        std::vector<const Node*> kept;
        MemoryAccess::state(tree).nodes().for_each([&](const Node& node) {
            if (node.snapshot) kept.push_back(&node);
        });
        std::sort(kept.begin(), kept.end(), [](const Node* a, const Node* b) { return a->last_used < b->last_used; });
        std::vector<const Node*> above;
        for (const Node* node : kept) {
            for (; node != nullptr && !numbers_.contains(node); node = above_of(*node)) above.push_back(node);
            for (; !above.empty(); above.pop_back()) {
                numbers_.emplace(above.back(), static_cast<std::int64_t>(nodes_.size()));
                nodes_.push_back(above.back());
            }
        }
    }

    std::size_t size() const { return nodes_.size(); }

    /// Adds node k: the number of the next one above it that has a snapshot, the salt, the tokens from there on, and
    /// the snapshot.
    void store(std::size_t k, StoredSnapshot& stored) const {
        const Node& node = *nodes_[k];
        const Node* const above = above_of(node);
        const Node* root = &node;
        while (root->parent != nullptr) root = root->parent;
        const std::string prefix = part_prefix(k);
        stored.numbers.emplace_back(prefix + "before", above == nullptr ? -1 : numbers_.at(above));
        stored.numbers.emplace_back(prefix + "salt", std::bit_cast<std::int64_t>(root->salt));
        const auto tokens = std::make_shared<std::vector<std::int32_t>>();
        for (const Node* part = &node; part != above; part = part->parent)
            tokens->insert(tokens->begin(), part->tokens.begin(), part->tokens.end());
        StoredArray list{prefix + "tokens", StoredFormat::i32(), {tokens->size()}};
        list.set_host_rows([tokens] { return tokens->data(); });
        stored.arrays.push_back(std::move(list));
        memory_.save(*node.snapshot, prefix, stored);
    }

private:
    static const Node* above_of(const Node& node) {
        const Node* above = node.parent;
        while (above != nullptr && !above->snapshot) above = above->parent;
        return above;
    }

    M& memory_;
    std::vector<const Node*> nodes_;
    std::map<const Node*, std::int64_t> numbers_;
};

} // namespace cellar::detail
