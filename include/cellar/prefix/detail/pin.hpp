// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/prefix/detail/eviction_queue.hpp>

#include <cstdint>

namespace cellar::detail {

/// Holds a node of a tree, or none. It is in a list that begins at the node, so that it neither allocates nor outlives
/// the tree unnoticed.
class Pin {
public:
    Pin() = default;
    explicit Pin(Evictable& node) noexcept {
        EvictionQueues::hold(node);
        enter(node);
    }
    Pin(Pin&& other) noexcept { take(other); }
    Pin& operator=(Pin&& other) noexcept {
        if (this == &other) return *this;
        release();
        take(other);
        return *this;
    }
    ~Pin() { release(); }

    bool empty() const { return node_ == nullptr; }

    void release() noexcept {
        if (node_ == nullptr) return;
        Evictable& node = *node_;
        leave();
        EvictionQueues::release(node);
    }

    /// The node is destroyed.
    static void forget(Evictable& node) noexcept {
        while (node.pins != nullptr) node.pins->leave();
    }

    static std::int64_t count(const Evictable& node) {
        std::int64_t pins = 0;
        for (const Pin* pin = node.pins; pin != nullptr; pin = pin->next_) ++pins;
        return pins;
    }

private:
    void enter(Evictable& node) noexcept {
        ++node.queues->pins;
        node_ = &node;
        next_ = node.pins;
        if (next_ != nullptr) next_->previous_ = this;
        node.pins = this;
    }
    void leave() noexcept {
        --node_->queues->pins;
        (previous_ != nullptr ? previous_->next_ : node_->pins) = next_;
        if (next_ != nullptr) next_->previous_ = previous_;
        node_ = nullptr;
        next_ = nullptr;
        previous_ = nullptr;
    }
    void take(Pin& other) noexcept {
        if (other.node_ == nullptr) return;
        Evictable& node = *other.node_;
        other.leave();
        enter(node);
    }

    Evictable* node_ = nullptr;
    Pin* next_ = nullptr; // among those of the node
    Pin* previous_ = nullptr;
};

} // namespace cellar::detail
