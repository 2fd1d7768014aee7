// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/huge_pages.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace cellar {

/// An array of zeros at a fixed address: `data()` never changes, not even when the array object is moved. Aligned to 64
/// bytes. The allocator provides zeroed memory, and the operating system commits a large array page by page as it is
/// first written, so creating one costs the same whatever its size. Throws `std::bad_alloc`.
template <class T>
class ZeroedArray {
    static_assert(std::is_trivially_copyable_v<T>, "ZeroedArray holds plain data");

public:
    ZeroedArray() = default;

    explicit ZeroedArray(std::int64_t size) : size_{size} {
        if (size == 0) return;
        constexpr auto largest = (SIZE_MAX - alignment) / sizeof(T);
        if (static_cast<std::uint64_t>(size) > largest) throw std::bad_alloc{};
        const std::size_t bytes = static_cast<std::size_t>(size) * sizeof(T);
        std::size_t room = bytes + alignment;
        block_ = std::calloc(room, 1);
        if (block_ == nullptr) throw std::bad_alloc{};
        detail::prefer_huge_pages(block_, bytes);
        void* first = block_;
        data_ = static_cast<T*>(std::align(alignment, bytes, first, room));
    }

    ZeroedArray(ZeroedArray&& other) noexcept
        : block_{std::exchange(other.block_, nullptr)},
          data_{std::exchange(other.data_, nullptr)},
          size_{std::exchange(other.size_, 0)} {}

    ZeroedArray& operator=(ZeroedArray&& other) noexcept {
        std::swap(block_, other.block_);
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        return *this;
    }

    ~ZeroedArray() { std::free(block_); }

    T* data() noexcept { return data_; }
    const T* data() const noexcept { return data_; }
    std::int64_t size() const noexcept { return size_; }

    T& operator[](std::int64_t i) noexcept { return data_[i]; }
    const T& operator[](std::int64_t i) const noexcept { return data_[i]; }

private:
    static constexpr std::size_t alignment = 64;

    void* block_ = nullptr;
    T* data_ = nullptr;
    std::int64_t size_ = 0;
};

} // namespace cellar
