// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/memory_bytes.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

namespace cellar::detail {

/// A list in an array that can shrink at both ends without moving the rest. Only `reserve` allocates; members that make
/// the list longer need room that was reserved.
template <class T>
class SlidingList {
    static_assert(std::is_trivially_copyable_v<T>);

public:
    SlidingList() = default;
    /// Room for `planned` elements, appended and removed any number of times without allocating.
    explicit SlidingList(std::int64_t planned) { reallocate(room_for(planned)); }
    static constexpr std::int64_t bytes_for(std::int64_t planned) { return bytes_of<T>(room_for(planned)); }

    bool empty() const { return begin_ == end_; }
    std::int64_t size() const { return end_ - begin_; }
    T* begin() { return begin_; }
    const T* begin() const { return begin_; }
    T* end() { return end_; }
    const T* end() const { return end_; }
    T& operator[](std::int64_t i) { return begin_[i]; }
    const T& operator[](std::int64_t i) const { return begin_[i]; }
    T& back() { return end_[-1]; }
    const T& back() const { return end_[-1]; }

    void push_back(const T& element) { *end_++ = element; }

    /// True if `more` elements can be added.
    bool has_room(std::int64_t more) const { return more <= limit_ - end_; }

    /// Makes room for `more` elements. Returns true if it allocated. Amortised O(more): n elements move only if n / 2
    /// were removed at the front or are new.
    bool reserve(std::int64_t more) {
        if (has_room(more)) return false;
        const bool allocates = size() + std::max(size() / 2, more) > limit_ - storage_.get();
        if (allocates) {
            reallocate(room_for(size() + more));
        } else {
            std::copy(begin_, end_, storage_.get());
            stand_at(storage_.get(), size());
        }
        return allocates;
    }

    /// The first element for which `before` is false. Most searches end near an end of the list: there they touch one
    /// cache line, where a binary search would touch one per step.
    template <class Before>
    [[gnu::always_inline]] std::int64_t first_not(Before before) const {
        const T* const all = begin_;
        const std::int64_t n = size();
        if (n == 0 || before(all[n - 1])) return n;
        if (n == 1 || before(all[n - 2])) return n - 1;
        if (!before(all[0])) return 0;
        if (!before(all[1])) return 1;
        return search(before);
    }

    /// Inserts n elements of unspecified value before element `at`.
    void open(std::int64_t at, std::int64_t n) {
        std::copy_backward(begin_ + at, end_, end_ + n);
        end_ += n;
    }

    /// Removes elements [from, to), moving the shorter side.
    [[gnu::noinline]] void close(std::int64_t from, std::int64_t to) {
        if (from < size() - to) {
            std::copy_backward(begin_, begin_ + from, begin_ + to);
            begin_ += to - from;
        } else {
            end_ = std::copy(begin_ + to, end_, begin_ + from);
        }
        if (empty()) stand_at(storage_.get(), 0);
    }

    /// Becomes a copy of the first n elements of `other`. Needs room for them.
    void assign(const SlidingList& other, std::int64_t n) {
        std::copy(other.begin_, other.begin_ + n, storage_.get());
        stand_at(storage_.get(), n);
    }

private:
    static constexpr std::int64_t room_for(std::int64_t elements) { return 2 * elements; }

    template <class Before>
    [[gnu::noinline]] std::int64_t search(Before before) const {
        return std::partition_point(begin_ + 2, end_ - 2, before) - begin_;
    }

    [[gnu::noinline]] void reallocate(std::int64_t room) {
        // Not initialised, so that memory is committed only as it is used.
        std::unique_ptr<T[]> larger{new T[static_cast<std::size_t>(room)]};
        if (!empty()) std::copy(begin_, end_, larger.get());
        stand_at(larger.get(), size());
        limit_ = larger.get() + room;
        storage_ = std::move(larger);
    }

    void stand_at(T* begin, std::int64_t size) {
        begin_ = begin;
        end_ = begin + size;
    }

    std::unique_ptr<T[]> storage_;
    T* limit_ = nullptr; // the end of storage_
    T* begin_ = nullptr;
    T* end_ = nullptr;
};

} // namespace cellar::detail
