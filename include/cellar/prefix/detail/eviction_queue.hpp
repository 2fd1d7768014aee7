// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/trivial_list.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace cellar::detail {

class EvictionQueue;
class Pin;

/// What the order of eviction needs of a node. The node is in its queue while it is free.
struct Evictable {
    static constexpr std::size_t nowhere = SIZE_MAX;

    double usefulness = 0;
    double floor = 0; ///< usefulness of the node that had been evicted last when this one was used
    std::uint64_t last_used = 0;
    /// Reasons to stay where it is: one for each pin, one for each snapshot in place that begins where this node's
    /// ends, and one while it has no snapshot.
    std::int32_t holds = 1;
    /// Snapshots that begin where this node's ends and are paged out. They do not keep it from being paged out, too.
    std::int32_t paged_dependents = 0;
    bool is_paged_out = false;
    std::size_t place = nowhere; ///< in the queue
    EvictionQueue* queue = nullptr;
    Evictable* skipped = nullptr; ///< the next one in a list of nodes that do not help
    Pin* pins = nullptr;          ///< the first one of a list

    bool is_free() const { return holds == 0 && (!is_paged_out || paged_dependents == 0); }
};

/// The nodes that can be evicted, as a binary heap: the least useful one on top, among equals the one that was used
/// earlier. Changes are O(log n). Only `reserve` allocates.
class EvictionQueue {
public:
    /// Room for `nodes` nodes, in all. O(1) amortised.
    void reserve(std::size_t nodes) {
        if (nodes > heap_.capacity()) heap_.reserve(2 * nodes);
    }

    std::size_t size() const { return heap_.size(); }
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
    /// After the usefulness of a node has changed. Does nothing if the node is not in the queue.
    void update(Evictable& node) noexcept {
        if (node.place == Evictable::nowhere) return;
        rise(node);
        sink(node);
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
        change(node, [&] { ++(dependent.is_paged_out ? node.paged_dependents : node.holds); });
    }
    static void release_for(const Evictable& dependent, Evictable& node) noexcept {
        change(node, [&] { --(dependent.is_paged_out ? node.paged_dependents : node.holds); });
    }
    /// The data of the node moved to where the nodes of `queue` have it.
    static void move(Evictable& node, bool is_paged_out, EvictionQueue& queue) noexcept {
        if (node.is_free()) node.queue->remove(node);
        node.is_paged_out = is_paged_out;
        node.queue = &queue;
        if (node.is_free()) node.queue->add(node);
    }

private:
    template <class Change>
    static void change(Evictable& node, Change change_holds) noexcept {
        const bool was_free = node.is_free();
        change_holds();
        if (was_free && !node.is_free()) node.queue->remove(node);
        if (!was_free && node.is_free()) node.queue->add(node);
    }

    static bool is_before(const Evictable& a, const Evictable& b) {
        if (a.usefulness != b.usefulness) return a.usefulness < b.usefulness;
        return a.last_used < b.last_used;
    }

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

} // namespace cellar::detail
