// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/digest.hpp>
#include <cellar/base/memory_bytes.hpp>
#include <cellar/base/random_seed.hpp>
#include <cellar/base/trivial_list.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace cellar::detail {

/// The children of all nodes of a tree: a hash table from a parent's number and a key to the child. Finding, adding and
/// removing one is O(1), however many children a node has. Only `reserve` allocates. Each table has a random seed, so
/// nobody can choose keys that collide.
template <class Node>
class ChildTable {
public:
    /// Once `reserve` made room for that many children in all.
    static constexpr std::int64_t bytes_for(std::size_t children) {
        return bytes_of<Slot>(static_cast<std::int64_t>(slots_for(children)));
    }

    /// Room for `more` children. O(1) amortised.
    void reserve(std::size_t more) {
        const std::size_t slots = slots_for(size_ + more);
        if (slots <= slots_.size()) return;
        TrivialList<Slot> old(slots);
        old.swap(slots_);
        for (const Slot& slot : old)
            if (slot.child != nullptr) place(slot);
    }

    std::size_t size() const { return size_; }
    std::int64_t bytes() const { return bytes_of<Slot>(static_cast<std::int64_t>(slots_.capacity())); }

    /// Null if there is no such child.
    Node* find(std::uint64_t parent, std::uint64_t key) const {
        if (slots_.empty()) return nullptr;
        return slots_[index_of(parent, key)].child;
    }

    /// Needs room.
    void add(std::uint64_t parent, std::uint64_t key, Node& child) noexcept {
        place({parent, key, &child});
        ++size_;
    }

    /// Another node takes the place of a child.
    void replace(std::uint64_t parent, std::uint64_t key, Node& child) noexcept {
        slots_[index_of(parent, key)].child = &child;
    }

    void remove(std::uint64_t parent, std::uint64_t key) noexcept {
        std::size_t hole = index_of(parent, key);
        slots_[hole].child = nullptr;
        --size_;
        // Entries behind the hole that would no longer be found move into it.
        for (std::size_t i = next(hole); slots_[i].child != nullptr; i = next(i)) {
            const std::size_t home = home_of(slots_[i].parent, slots_[i].key);
            if (((i - home) & mask()) < ((i - hole) & mask())) continue;
            slots_[hole] = std::exchange(slots_[i], Slot{});
            hole = i;
        }
    }

    template <class Visit>
    void for_each(Visit visit) const {
        for (const Slot& slot : slots_)
            if (slot.child != nullptr) visit(*slot.child);
    }

private:
    struct Slot {
        std::uint64_t parent = 0;
        std::uint64_t key = 0;
        Node* child = nullptr;
    };

    // At least half of them stay free.
    static constexpr std::size_t slots_for(std::size_t children) {
        return std::max(std::size_t{16}, std::bit_ceil(2 * children));
    }

    std::size_t mask() const { return slots_.size() - 1; }
    std::size_t next(std::size_t i) const { return (i + 1) & mask(); }

    std::size_t home_of(std::uint64_t parent, std::uint64_t key) const {
        return static_cast<std::size_t>(mixed(mixed(parent ^ seed_) + key)) & mask();
    }

    // Where the entry is, or the free place where it would be.
    std::size_t index_of(std::uint64_t parent, std::uint64_t key) const {
        std::size_t i = home_of(parent, key);
        while (slots_[i].child != nullptr && (slots_[i].parent != parent || slots_[i].key != key)) i = next(i);
        return i;
    }

    void place(const Slot& slot) { slots_[index_of(slot.parent, slot.key)] = slot; }

    std::uint64_t seed_ = random_seed();
    TrivialList<Slot> slots_; // a power of two, at most half of them in use
    std::size_t size_ = 0;
};

} // namespace cellar::detail
