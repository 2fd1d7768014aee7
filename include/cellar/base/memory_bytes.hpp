// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/named_only.hpp>

#include <cstdint>

namespace cellar {

/// How many bytes a memory takes. What else grows is asked for elsewhere: the memory of `attend` (`attend_bytes`),
/// prefix trees (`PrefixTree::bytes_for`), and snapshots that are offloaded (their `bytes()`).
struct MemoryBytes {
    std::int64_t data = 0;        ///< keys, values and states
    std::int64_t bookkeeping = 0; ///< allocated by the constructor, too
    std::int64_t masks = 0;       ///< the other parts are allocated when they are first used: at most this much
    std::int64_t lists = 0;       ///< index lists and page tables

    /// Of all four parts.
    constexpr std::int64_t total() const { return data + bookkeeping + masks + lists; }

    constexpr MemoryBytes& operator+=(const MemoryBytes& other) {
        data += other.data;
        bookkeeping += other.bookkeeping;
        masks += other.masks;
        lists += other.lists;
        return *this;
    }
    friend constexpr MemoryBytes operator+(MemoryBytes a, const MemoryBytes& b) { return a += b; }
    bool operator==(const MemoryBytes&) const = default;
};

/// What a program asks passes for, in addition to their cells.
struct PassUses {
    NamedOnly named_only{};
    bool masks = false;         ///< `mask<float>()`; of half, it takes half as much, of bool a quarter
    bool lists = false;         ///< `lists()`, with rows of all cells that a sequence can see
    std::int32_t page_size = 0; ///< `pages(page_size)`, which need the lists, too; 0: no pages
};

namespace detail {

/// Of n elements.
template <class T>
constexpr std::int64_t bytes_of(std::int64_t n) {
    return n * static_cast<std::int64_t>(sizeof(T)); // NOLINT(bugprone-sizeof-expression): T may be a pointer
}

} // namespace detail

} // namespace cellar
