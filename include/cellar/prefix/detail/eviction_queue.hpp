// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/memory_bytes.hpp>
#include <cellar/base/trivial_list.hpp>
#include <cellar/prefix/fwd.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace cellar::detail {

struct EvictionQueues;

/// What the order of eviction needs of a node. The node is in one of the queues while it is free.
struct Evictable {
    static constexpr std::size_t nowhere = SIZE_MAX;

    double usefulness = 0;
    double floor = 0; ///< usefulness of the node that had been evicted last when this one was used
    std::uint64_t last_used = 0;
    /// A reference count, which keeps the node where it is: one for each pin, one for each snapshot in place that
    /// continues this node's, and one while it has no snapshot.
    std::int32_t holds = 1;
    /// Snapshots that begin where this node's ends and are offloaded. They do not keep it from being offloaded, too.
    std::int32_t offloaded_dependents = 0;
    bool is_offloaded = false;
    std::size_t place = nowhere; ///< in the queue
    EvictionQueues* queues = nullptr;
    Evictable* skipped = nullptr; ///< the next one in a list of nodes that do not help
    PrefixPin* pins = nullptr;    ///< the first one of a list

    bool is_free() const { return holds == 0 && (!is_offloaded || offloaded_dependents == 0); }
};

/// Room for `nodes` nodes in all, in a list of pointers to them. O(1) amortised.
template <class Node>
void reserve_node_list(TrivialList<Node*>& list, std::size_t nodes) {
    list.reserve(std::bit_ceil(nodes));
}
constexpr std::int64_t bytes_of_node_list(std::size_t nodes) {
    return bytes_of<Evictable*>(static_cast<std::int64_t>(std::bit_ceil(nodes)));
}

/// Nodes as a binary heap: the least useful one on top, among equals the one that was used earlier. Changes are
/// O(log n). Only `reserve` allocates.
class EvictionQueue {
public:
    /// Once `reserve(nodes)` was called.
    static constexpr std::int64_t bytes_for(std::size_t nodes) { return bytes_of_node_list(nodes); }

    /// Room for `nodes` nodes, in all. O(1) amortised.
    void reserve(std::size_t nodes) { reserve_node_list(heap_, nodes); }

    std::size_t size() const { return heap_.size(); }
    std::int64_t bytes() const { return bytes_of<Evictable*>(static_cast<std::int64_t>(heap_.capacity())); }
    bool contains(const Evictable& node) const { return node.place < heap_.size() && heap_[node.place] == &node; }

    /// For the audit.
    bool is_ordered() const {
        for (std::size_t i = 1; i < heap_.size(); ++i)
            if (is_before(*heap_[i], *heap_[(i - 1) / 2])) return false;
        return true;
    }

    /// Null if it is empty.
    Evictable* least() const { return heap_.empty() ? nullptr : heap_.front(); }

    void add(Evictable& node) noexcept {
        node.place = heap_.size();
        heap_.push_back(&node);
        rise(node);
    }
    void remove(Evictable& node) noexcept {
        Evictable& last = *heap_.back();
        heap_.pop_back();
        if (&last != &node) {
            put(last, node.place);
            rise(last);
            sink(last);
        }
        node.place = Evictable::nowhere;
    }
    /// After the usefulness of a node has changed.
    void update(Evictable& node) noexcept {
        rise(node);
        sink(node);
    }

    static bool is_before(const Evictable& a, const Evictable& b) {
        if (a.usefulness != b.usefulness) return a.usefulness < b.usefulness;
        return a.last_used < b.last_used;
    }

private:
    void put(Evictable& node, std::size_t place) {
        heap_[place] = &node;
        node.place = place;
    }

    void rise(Evictable& node) {
        std::size_t i = node.place;
        for (; i > 0 && is_before(node, *heap_[(i - 1) / 2]); i = (i - 1) / 2) put(*heap_[(i - 1) / 2], i);
        put(node, i);
    }

    void sink(Evictable& node) {
        std::size_t i = node.place;
        for (std::size_t child = 2 * i + 1; child < heap_.size(); child = 2 * i + 1) {
            if (child + 1 < heap_.size() && is_before(*heap_[child + 1], *heap_[child])) ++child;
            if (!is_before(*heap_[child], node)) break;
            put(*heap_[child], i);
            i = child;
        }
        put(node, i);
    }

    TrivialList<Evictable*> heap_;
};

/// The nodes that are free, by what can be done with them.
struct EvictionQueues {
    EvictionQueue in_place; ///< can be offloaded or evicted
    EvictionQueue needed;   ///< in place, can be offloaded: snapshots that are offloaded begin where these end
    EvictionQueue offloaded;
    std::int64_t pins = 0; ///< of all nodes

    /// Room for `nodes` nodes, in all. O(1) amortised.
    void reserve(std::size_t nodes) {
        for (EvictionQueue* queue : {&in_place, &needed, &offloaded}) queue->reserve(nodes);
    }

    static constexpr std::int64_t bytes_for(std::size_t nodes) { return 3 * EvictionQueue::bytes_for(nodes); }
    std::int64_t bytes() const { return in_place.bytes() + needed.bytes() + offloaded.bytes(); }

    /// That of a node; null if the node is not free.
    EvictionQueue* of(const Evictable& node) {
        if (!node.is_free()) return nullptr;
        return node.is_offloaded ? &offloaded : node.offloaded_dependents > 0 ? &needed : &in_place;
    }

    /// Of all in place. Null if there is none.
    Evictable* least_in_place() const {
        Evictable* const other = needed.least();
        Evictable* const least = in_place.least();
        return other == nullptr || (least != nullptr && EvictionQueue::is_before(*least, *other)) ? least : other;
    }

    /// After the usefulness of a node has changed.
    static void update(Evictable& node) noexcept {
        if (node.place != Evictable::nowhere) node.queues->of(node)->update(node);
    }

    /// Adds or takes away a reason for the node to stay.
    static void hold(Evictable& node) noexcept {
        change(node, [&] { ++node.holds; });
    }
    static void release(Evictable& node) noexcept {
        change(node, [&] { --node.holds; });
    }
    /// The same for a reason that `dependent` gives.
    static void hold_for(const Evictable& dependent, Evictable& node) noexcept {
        change(node, [&] { ++(dependent.is_offloaded ? node.offloaded_dependents : node.holds); });
    }
    static void release_for(const Evictable& dependent, Evictable& node) noexcept {
        change(node, [&] { --(dependent.is_offloaded ? node.offloaded_dependents : node.holds); });
    }
    /// The data of the node moved.
    static void move(Evictable& node, bool is_offloaded) noexcept {
        change(node, [&] { node.is_offloaded = is_offloaded; });
    }

private:
    template <class Change>
    static void change(Evictable& node, Change make_change) noexcept {
        EvictionQueue* const before = node.queues->of(node);
        const bool is_skipped = before != nullptr && node.place == Evictable::nowhere;
        make_change();
        EvictionQueue* const after = node.queues->of(node);
        if (before == after || is_skipped) return;
        if (before != nullptr) before->remove(node);
        if (after != nullptr) after->add(node);
    }
};

/// Nodes that are free, and not in their queue for the time being.
class SkippedNodes {
public:
    SkippedNodes() = default;
    ~SkippedNodes() {
        while (first_ != nullptr) {
            Evictable& node = *std::exchange(first_, first_->skipped);
            node.queues->of(node)->add(node);
        }
    }
    SkippedNodes(const SkippedNodes&) = delete;
    SkippedNodes& operator=(const SkippedNodes&) = delete;

    void add(Evictable& node) noexcept {
        node.queues->of(node)->remove(node);
        node.skipped = std::exchange(first_, &node);
    }

private:
    Evictable* first_ = nullptr;
};

} // namespace cellar::detail
