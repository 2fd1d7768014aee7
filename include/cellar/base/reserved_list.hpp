// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

namespace cellar::detail {

/// A list with room for a number of elements that is given once: adding one never allocates, and there must be room.
/// A `std::vector` compiles code to grow at every place that adds an element.
template <class T>
class ReservedList {
public:
    explicit ReservedList(std::size_t room) : first_{std::allocator<T>{}.allocate(room)}, room_{room} {}
    ReservedList(const ReservedList&) = delete;
    ReservedList& operator=(const ReservedList&) = delete;
    ~ReservedList() {
        clear();
        std::allocator<T>{}.deallocate(first_, room_);
    }

    template <class... Parts>
    void emplace_back(Parts&&... parts) {
        std::construct_at(first_ + size_, std::forward<Parts>(parts)...);
        ++size_;
    }
    void push_back(const T& element) { emplace_back(element); }

    /// Replaces all elements.
    template <class Range>
    void assign(const Range& range) {
        clear();
        std::uninitialized_copy(range.begin(), range.end(), first_);
        size_ = range.size();
    }

    /// New elements are zeros.
    void resize(std::size_t size) {
        T* const end = first_ + size;
        for (T* at = first_ + size_; at < end; ++at) std::construct_at(at);
        if (size < size_) std::destroy(end, first_ + size_);
        size_ = size;
    }
    void pop_back() { std::destroy_at(first_ + --size_); }

    void clear() {
        std::destroy_n(first_, size_);
        size_ = 0;
    }

    std::size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    T* data() { return first_; }
    const T* data() const { return first_; }
    T* begin() { return first_; }
    const T* begin() const { return first_; }
    T* end() { return first_ + size_; }
    const T* end() const { return first_ + size_; }
    T& back() { return first_[size_ - 1]; }
    const T& back() const { return first_[size_ - 1]; }
    T& operator[](std::size_t i) { return first_[i]; }
    const T& operator[](std::size_t i) const { return first_[i]; }

private:
    T* first_;
    std::size_t room_;
    std::size_t size_ = 0;
};

} // namespace cellar::detail
