// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/huge_pages.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

namespace cellar {

namespace detail {

/// Zeroed memory, and the first address in it that an array may use.
struct ZeroedBlock {
    static constexpr std::size_t alignment = 64;

    void* memory = nullptr;
    void* first = nullptr;

    /// True if it is memory of `map_zeros`: only then, more than the alignment is skipped.
    bool is_mapped() const noexcept {
        return static_cast<std::byte*>(first) - static_cast<std::byte*>(memory) > std::ptrdiff_t{alignment};
    }
};

[[gnu::noinline]] inline ZeroedBlock zeroed_block(std::uint64_t size, std::size_t element_size) {
    if (size > (SIZE_MAX - huge_page) / element_size) throw std::bad_alloc{};
    const std::size_t bytes = static_cast<std::size_t>(size) * element_size;
    const auto block_of = [](void* memory, std::size_t alignment) -> ZeroedBlock {
        const std::size_t skipped = alignment - reinterpret_cast<std::uintptr_t>(memory) % alignment;
        return {memory, static_cast<std::byte*>(memory) + skipped};
    };
    if (void* const mapped = map_zeros(bytes)) {
        const ZeroedBlock block = block_of(mapped, huge_page);
        prefer_huge_pages(block.first, bytes);
        return block;
    }
    void* const memory = std::calloc(bytes + ZeroedBlock::alignment, 1);
    if (memory == nullptr) throw std::bad_alloc{};
    return block_of(memory, ZeroedBlock::alignment);
}

[[gnu::noinline]] inline void free_block(const ZeroedBlock& block, std::size_t bytes) noexcept {
    if (block.is_mapped()) {
        unmap(block.memory, bytes);
    } else {
        std::free(block.memory);
    }
}

} // namespace detail

/// An array of zeros at a fixed address: `data()` never changes, not even when the array object is moved. Aligned to 64
/// bytes, and one of 2 MiB or more to a huge page, where there are any. The operating system commits a large array page
/// by page as it is first written, so creating one costs the same whatever its size. Throws `std::bad_alloc`.
template <class T>
class ZeroedArray {
    static_assert(std::is_trivially_copyable_v<T>, "ZeroedArray holds plain data");

public:
    ZeroedArray() = default;

    explicit ZeroedArray(std::int64_t size) : size_{size} {
        if (size == 0) return;
        const detail::ZeroedBlock block = detail::zeroed_block(static_cast<std::uint64_t>(size), sizeof(T));
        block_ = block.memory;
        data_ = static_cast<T*>(block.first);
    }

    /// On memory of a program's own, which is set to zeros and never freed.
    static ZeroedArray borrow(T* data, std::int64_t size) {
        ZeroedArray array;
        array.data_ = data;
        array.size_ = size;
        if (size != 0) std::memset(static_cast<void*>(data), 0, static_cast<std::size_t>(size) * sizeof(T));
        return array;
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

    ~ZeroedArray() {
        if (block_ != nullptr) detail::free_block({block_, data_}, static_cast<std::size_t>(size_) * sizeof(T));
    }

    /// Makes the operating system commit all of it now. What it holds stays.
    void populate() noexcept {
        if (size_ == 0) return;
        auto* const bytes = reinterpret_cast<volatile unsigned char*>(data_);
        const std::int64_t last = size_ * std::int64_t{sizeof(T)} - 1;
        const auto touch = [bytes](std::int64_t at) {
            const unsigned char held = bytes[at];
            bytes[at] = held;
        };
        constexpr std::int64_t page = 4096; // no system has smaller ones
        for (std::int64_t at = 0; at < last; at += page) touch(at);
        touch(last);
    }

    /// Gives the memory of elements [first, first + n) back to the operating system, as far as they fill its pages.
    /// Afterwards, these elements are zero or what they were, and have memory again once they are written. Does nothing
    /// where the system has no such call, nor to memory of a program's own.
    void uncommit(std::int64_t first, std::int64_t n) noexcept {
        if (block_ != nullptr) detail::uncommit(data_ + first, static_cast<std::size_t>(n) * sizeof(T));
    }

    T* data() noexcept { return data_; }
    const T* data() const noexcept { return data_; }
    std::int64_t size() const noexcept { return size_; }

    T& operator[](std::int64_t i) noexcept { return data_[i]; }
    const T& operator[](std::int64_t i) const noexcept { return data_[i]; }

private:
    void* block_ = nullptr;
    T* data_ = nullptr;
    std::int64_t size_ = 0;
};

} // namespace cellar
