// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/memory_bytes.hpp>
#include <cellar/prefix/detail/child_table.hpp>
#include <cellar/prefix/detail/common_prefix.hpp>
#include <cellar/prefix/detail/edge_tokens.hpp>
#include <cellar/prefix/detail/eviction_queue.hpp>
#include <cellar/prefix/prefix_pin.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <utility>

namespace cellar::detail {

/// A node of a prefix tree: the tokens from the end of its parent to its own. A root has none; each salt has a root.
template <class Snapshot>
struct PrefixNode : Evictable {
    /// By which its parent finds it.
    std::uint64_t key() const { return parent == nullptr ? salt : static_cast<std::uint32_t>(tokens.front()); }
    bool has_one_child() const { return first_child != nullptr && first_child->next == nullptr; }
    std::int32_t begin() const { return end - static_cast<std::int32_t>(tokens.size()); }

    EdgeTokens tokens;
    std::uint64_t id = 0;
    std::int32_t end = 0;
    std::optional<Snapshot> snapshot; ///< ends at `end`
    std::int64_t bytes = 0;           ///< that the snapshot takes
    /// The node at whose end the snapshot begins, and whose snapshot has to be restored before; null if it begins at 0.
    PrefixNode* base = nullptr;

    std::uint64_t salt = 0; ///< of a root
    PrefixNode* parent = nullptr;
    PrefixNode* first_child = nullptr;
    PrefixNode* next = nullptr; ///< among the children of the parent
    PrefixNode* previous = nullptr;
};

/// Where a list of tokens leads to.
template <class Node>
struct PrefixWalk {
    Node* last = nullptr;     ///< the last node whose tokens are all in the list; null if the salt has no root
    Node* below = nullptr;    ///< the child of `last` of whose tokens some, not all, follow in the list; or null
    std::size_t verified = 0; ///< how many tokens of the list are in the tree
};

/// The radix tree: nodes, their tokens and their order. It knows nothing of memories. Only `reserve`, `make` and
/// `division` allocate; what changes the tree cannot fail.
template <class Snapshot>
class PrefixNodes {
public:
    using Node = PrefixNode<Snapshot>;
    using Walk = PrefixWalk<Node>;

    PrefixNodes() = default;
    PrefixNodes(const PrefixNodes&) = delete; // nodes point to the queues
    PrefixNodes& operator=(const PrefixNodes&) = delete;
    ~PrefixNodes() {
        children_.for_each([](Node& node) {
            PrefixPin::forget(node);
            delete &node;
        });
    }

    /// Roots count as well.
    std::size_t size() const { return children_.size(); }
    std::int64_t roots() const { return roots_; }
    std::int64_t tokens() const { return tokens_; }
    /// What nodes, tokens and tables take at most, if there were never more than `nodes`, 1 or more.
    static constexpr std::int64_t bytes_for(std::int64_t nodes, std::int64_t tokens) {
        const auto n = static_cast<std::size_t>(nodes);
        return ChildTable<Node>::bytes_for(n) + EvictionQueues::bytes_for(n) + bytes_of<Node>(nodes)
               + EdgeTokens::most_bytes_for(tokens);
    }
    /// What they take. O(nodes).
    std::int64_t bytes() const {
        std::int64_t bytes = children_.bytes() + queues_.bytes();
        children_.for_each([&](const Node& node) { bytes += bytes_of<Node>(1) + node.tokens.bytes(); });
        return bytes;
    }

    EvictionQueues& queues() { return queues_; }
    const EvictionQueues& queues() const { return queues_; }

    /// Compares the tokens with those in the tree. O(tokens compared + nodes passed).
    Walk walk(std::span<const std::int32_t> tokens, std::uint64_t salt) const {
        Walk walk{.last = children_.find(no_parent, salt)};
        while (walk.last != nullptr && walk.verified < tokens.size()) {
            Node* const child = child_with(*walk.last, tokens[walk.verified]);
            if (child == nullptr) break;
            const std::size_t equal = common_prefix(child->tokens, tokens.subspan(walk.verified));
            walk.verified += equal;
            if (equal < child->tokens.size()) {
                walk.below = child;
                break;
            }
            walk.last = child;
        }
        return walk;
    }

    /// Calls f(root, node, depth) for all but the roots, parents first. O(nodes).
    template <class F>
    void for_each_in_order(F f) const {
        children_.for_each([&](const Node& root) {
            if (root.parent != nullptr) return;
            int depth = 0;
            for (const Node* node = root.first_child; node != nullptr;) {
                f(root, *node, depth);
                if (node->first_child != nullptr) {
                    node = node->first_child;
                    ++depth;
                    continue;
                }
                while (node != &root && node->next == nullptr) {
                    node = node->parent;
                    --depth;
                }
                node = node == &root ? nullptr : node->next;
            }
        });
    }

    /// Calls f(node) for the first nodes below `top` that have a snapshot. O(nodes passed).
    template <class F>
    static void for_each_kept_below(Node& top, F f) {
        for (Node* node = top.first_child; node != nullptr;) {
            if (!node->snapshot && node->first_child != nullptr) {
                node = node->first_child;
                continue;
            }
            if (node->snapshot) f(*node);
            while (node != &top && node->next == nullptr) node = node->parent;
            node = node == &top ? nullptr : node->next;
        }
    }

    /// Null if it has no such child. Null as a parent is that of the roots.
    const Node* child(const Node* parent, std::uint64_t key) const { return children_.find(id_of(parent), key); }

    /// Room for `more` nodes.
    void reserve(std::size_t more) {
        children_.reserve(more);
        queues_.reserve(size() + more);
    }

    /// A node that is not in the tree yet.
    std::unique_ptr<Node> make(std::span<const std::int32_t> tokens) {
        auto node = std::make_unique<Node>();
        node->tokens = EdgeTokens{{tokens.begin(), tokens.end()}};
        node->queues = &queues_;
        return node;
    }

    Node& add_root(std::unique_ptr<Node> root, std::uint64_t salt) noexcept {
        root->salt = salt;
        ++roots_;
        return enter(std::move(root), nullptr);
    }
    Node& add(std::unique_ptr<Node> node, Node& parent) noexcept {
        tokens_ += static_cast<std::int64_t>(node->tokens.size());
        return enter(std::move(node), &parent);
    }

    /// What dividing an edge needs.
    struct Division {
        std::unique_ptr<Node> upper; ///< gets the first `count` tokens
        EdgeTokens::Parts tokens;
        std::size_t count;
    };

    /// Prepares `divide` after the first `count` tokens of `lower`, not all of them. O(tokens of the shorter part),
    /// amortised.
    Division division(const Node& lower, std::size_t count) {
        return {.upper = make({}), .tokens = lower.tokens.parts(count), .count = count};
    }
    /// The new node comes between `lower` and its parent.
    Node& divide(Node& lower, Division division) noexcept {
        Node& node = *division.upper.release();
        node.id = ++last_id_;
        children_.replace(lower.parent->id, lower.key(), node);
        node.end = lower.begin() + static_cast<std::int32_t>(division.count);
        exchange(lower, node);
        node.tokens = lower.tokens.divide(std::move(division.tokens), division.count);
        children_.add(node.id, lower.key(), lower);
        attach(lower, &node);
        return node;
    }

    /// Removes a node without a snapshot if no node needs it: it has no child, or it has one, whose tokens it precedes.
    /// Then its parent may be in the same position. A node with one child stays if there is no memory for its tokens.
    void prune(Node& node) noexcept {
        for (Node* next = &node; next != nullptr && !next->snapshot;) {
            Node& unused = *next;
            next = unused.parent;
            if (unused.first_child == nullptr) {
                children_.remove(id_of(unused.parent), unused.key());
                if (unused.parent == nullptr) --roots_;
                detach(unused);
                tokens_ -= static_cast<std::int64_t>(unused.tokens.size());
                delete &unused;
            } else {
                if (unused.parent != nullptr && unused.has_one_child()) join(unused);
                return;
            }
        }
    }

    template <class Visit>
    void for_each(Visit visit) const {
        children_.for_each(visit);
    }

private:
    // Most nodes have one child, which is found faster without the table.
    Node* child_with(const Node& parent, std::int32_t token) const {
        Node* const first = parent.first_child;
        if (first == nullptr || first->tokens.front() == token) return first;
        return first->next == nullptr ? nullptr : children_.find(parent.id, key_of(token));
    }

    static constexpr std::uint64_t no_parent = 0;

    static std::uint64_t key_of(std::int32_t token) { return static_cast<std::uint32_t>(token); }
    static std::uint64_t id_of(const Node* node) { return node == nullptr ? no_parent : node->id; }

    Node& enter(std::unique_ptr<Node> made, Node* parent) noexcept {
        Node& node = *made.release();
        node.id = ++last_id_;
        attach(node, parent);
        node.end = (parent == nullptr ? 0 : parent->end) + static_cast<std::int32_t>(node.tokens.size());
        children_.add(id_of(parent), node.key(), node);
        return node;
    }

    // The lists of children.
    static void attach(Node& node, Node* parent) {
        node.parent = parent;
        node.previous = nullptr;
        node.next = parent == nullptr ? nullptr : std::exchange(parent->first_child, &node);
        if (node.next != nullptr) node.next->previous = &node;
    }
    static void detach(Node& node) {
        if (node.next != nullptr) node.next->previous = node.previous;
        if (node.previous != nullptr) {
            node.previous->next = node.next;
        } else if (node.parent != nullptr) {
            node.parent->first_child = node.next;
        }
    }
    // `by` takes the place of `node`.
    static void exchange(Node& node, Node& by) {
        detach(node);
        attach(by, node.parent);
    }

    void join(Node& unused) noexcept {
        Node& child = *unused.first_child;
        const std::uint64_t key = unused.key();
        const std::uint64_t key_below = child.key();
        try {
            child.tokens.join(unused.tokens);
        } catch (const std::bad_alloc&) {
            return;
        }
        children_.remove(unused.id, key_below);
        children_.replace(unused.parent->id, key, child);
        exchange(unused, child);
        delete &unused;
    }

    ChildTable<Node> children_;
    EvictionQueues queues_;
    std::uint64_t last_id_ = no_parent;
    std::int64_t roots_ = 0;
    std::int64_t tokens_ = 0;
};

} // namespace cellar::detail
