// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/prefix/detail/eviction_queue.hpp>

#include <cstdint>

namespace cellar {

/// While it exists, the tree does not evict a prefix: neither for want of room, nor by `clear`. `PrefixTree::pin`
/// makes it. Move-only. It may outlive the tree, and then pins nothing. It is used by the thread that uses the tree.
class PrefixPin {
public:
    /// Pins nothing.
    PrefixPin() = default;
    PrefixPin(PrefixPin&& other) noexcept { take(other); }
    PrefixPin& operator=(PrefixPin&& other) noexcept {
        if (this == &other) return *this;
        release();
        take(other);
        return *this;
    }
    ~PrefixPin() { release(); }

    /// How many tokens the pinned prefix has; 0 if it pins nothing.
    std::int32_t length() const { return node_ == nullptr ? 0 : length_; }

    /// Pins nothing any more.
    void release() noexcept {
        if (node_ == nullptr) return;
        detail::Evictable& node = *node_;
        leave();
        detail::EvictionQueues::release(node);
    }

    /// For cellar itself, as the next two.
    PrefixPin(detail::Evictable& node, std::int32_t length) noexcept : length_{length} {
        detail::EvictionQueues::hold(node);
        enter(node);
    }
    /// The node is destroyed.
    static void forget(detail::Evictable& node) noexcept {
        while (node.pins != nullptr) node.pins->leave();
    }
    /// How many pin the node.
    static std::int64_t count(const detail::Evictable& node) {
        std::int64_t pins = 0;
        for (const PrefixPin* pin = node.pins; pin != nullptr; pin = pin->next_) ++pins;
        return pins;
    }

private:
    void enter(detail::Evictable& node) noexcept {
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
    void take(PrefixPin& other) noexcept {
        if (other.node_ == nullptr) return;
        detail::Evictable& node = *other.node_;
        length_ = other.length_;
        other.leave();
        enter(node);
    }

    detail::Evictable* node_ = nullptr; // null if it pins nothing
    std::int32_t length_ = 0;
    // Among the pins of the node, a list, so that a pin neither allocates nor outlives the tree unnoticed.
    PrefixPin* next_ = nullptr;
    PrefixPin* previous_ = nullptr;
};

} // namespace cellar
