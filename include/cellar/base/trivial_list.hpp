// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

namespace cellar::detail {

/// The memory of a `TrivialList`. Its code does not depend on the type of the elements.
class TrivialListMemory {
public:
    TrivialListMemory(const TrivialListMemory&) = delete;
    TrivialListMemory& operator=(const TrivialListMemory&) = delete;

protected:
    TrivialListMemory() = default;
    TrivialListMemory(TrivialListMemory&& other) noexcept
        : first_{std::exchange(other.first_, nullptr)},
          size_{std::exchange(other.size_, 0)},
          room_{std::exchange(other.room_, 0)} {}
    ~TrivialListMemory() { ::operator delete(first_); }

    void swap_with(TrivialListMemory& other) noexcept {
        std::swap(first_, other.first_);
        std::swap(size_, other.size_);
        std::swap(room_, other.room_);
    }

    // `element`: bytes of one.
    [[gnu::noinline]] void make_room(std::size_t room, std::size_t element) {
        if (room > static_cast<std::size_t>(-1) / 2 / element) throw std::bad_alloc{};
        void* const larger = ::operator new(room* element);
        if (size_ != 0) std::memcpy(larger, first_, size_ * element);
        ::operator delete(std::exchange(first_, larger));
        room_ = room;
    }
    [[gnu::noinline]] void make_room_for(std::size_t size, std::size_t element) {
        if (size > room_) make_room(std::max(size, 2 * room_), element);
    }

    void* first_ = nullptr;
    std::size_t size_ = 0;
    std::size_t room_ = 0;
};

/// A list that grows, of elements that are copied as bytes: what the bookkeeping needs of `std::vector`. It compiles in
/// a quarter of the time, which matters because a program compiles a dozen types of it with each cache.
template <class T>
class TrivialList : private TrivialListMemory {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);

public:
    using value_type = T;
    using iterator = T*;
    using const_iterator = const T*;

    TrivialList() = default;
    explicit TrivialList(std::size_t size, const T& value = T{}) { resize(size, value); }
    TrivialList(const TrivialList& other) : TrivialListMemory{} { assign(other.begin(), other.end()); }
    TrivialList(TrivialList&&) noexcept = default;
    TrivialList& operator=(const TrivialList& other) {
        if (this != &other) assign(other.begin(), other.end());
        return *this;
    }
    TrivialList& operator=(TrivialList&& other) noexcept {
        TrivialList taken{std::move(other)};
        swap(taken);
        return *this;
    }
    ~TrivialList() = default;

    void swap(TrivialList& other) noexcept { swap_with(other); }

    std::size_t size() const { return size_; }
    std::size_t capacity() const { return room_; }
    bool empty() const { return size_ == 0; }

    T* data() { return static_cast<T*>(first_); }
    const T* data() const { return static_cast<const T*>(first_); }
    T* begin() { return data(); }
    const T* begin() const { return data(); }
    T* end() { return data() + size_; }
    const T* end() const { return data() + size_; }
    T& operator[](std::size_t i) { return data()[i]; }
    const T& operator[](std::size_t i) const { return data()[i]; }
    T& front() { return data()[0]; }
    const T& front() const { return data()[0]; }
    T& back() { return data()[size_ - 1]; }
    const T& back() const { return data()[size_ - 1]; }

    void reserve(std::size_t room) {
        if (room > room_) make_room(room, element_bytes);
    }
    /// Room for as many elements, and for more to come.
    void grow(std::size_t size) {
        if (size > room_) make_room_for(size, element_bytes);
    }
    void resize(std::size_t size, const T& value = T{}) {
        const T element = value; // it may lie in this list
        make_room_for(size, element_bytes);
        for (std::size_t i = size_; i < size; ++i) ::new (static_cast<void*>(data() + i)) T(element);
        size_ = size;
    }
    void clear() { size_ = 0; }
    void assign(std::size_t size, const T& value) {
        const T element = value;
        clear();
        resize(size, element);
    }
    /// From memory that is not this list's.
    void assign(const T* first, const T* last) {
        clear();
        append(first, last);
    }
    void append(const T* first, const T* last) {
        const auto count = static_cast<std::size_t>(last - first);
        make_room_for(size_ + count, element_bytes);
        if (count != 0) std::memcpy(static_cast<void*>(end()), first, count * element_bytes);
        size_ += count;
    }

    void push_back(const T& value) {
        const T element = value;
        if (size_ == room_) make_room_for(size_ + 1, element_bytes);
        ::new (static_cast<void*>(data() + size_)) T(element);
        ++size_;
    }
    void pop_back() { --size_; }
    /// Before `at`.
    void insert(const T* at, const T& value) {
        const std::ptrdiff_t i = at - begin();
        const T element = value;
        push_back(element);
        std::copy_backward(begin() + i, end() - 1, end());
        begin()[i] = element;
    }
    void erase(const T* at) { erase(at, at + 1); }
    void erase(const T* first, const T* last) {
        std::copy(last, std::as_const(*this).end(), begin() + (first - begin()));
        size_ -= static_cast<std::size_t>(last - first);
    }

private:
    static constexpr std::size_t element_bytes = sizeof(T); // NOLINT(bugprone-sizeof-expression): T may be a pointer
};

} // namespace cellar::detail
