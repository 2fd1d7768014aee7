// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/zeroed.hpp>

#include <cstddef>
#include <cstdint>

namespace cellar::detail {

/// Memory for one operation at a time, kept for the next one. It grows to the largest size that was asked for.
class Scratch {
public:
    /// At least that many bytes, aligned to 64; what they hold is not specified. Allocates if that is more than ever
    /// before.
    std::byte* reserve(std::int64_t bytes) {
        if (bytes > memory_.size()) memory_ = ZeroedArray<std::byte>{bytes};
        return memory_.data();
    }

    std::int64_t bytes() const { return memory_.size(); }

private:
    ZeroedArray<std::byte> memory_;
};

/// Divides memory into arrays, each aligned to 64 bytes. Without memory, it counts the bytes that they need.
class ScratchArrays {
public:
    explicit ScratchArrays(std::byte* memory = nullptr) : memory_{memory} {}

    template <class T>
    T* take(std::int64_t n) {
        std::byte* const first = memory_ == nullptr ? nullptr : memory_ + bytes_;
        bytes_ += (n * std::int64_t{sizeof(T)} + 63) / 64 * 64;
        return reinterpret_cast<T*>(first);
    }

    std::int64_t bytes() const { return bytes_; }

private:
    std::byte* memory_;
    std::int64_t bytes_ = 0;
};

/// Arrays in memory that grows if they need more. Calls take(arrays) twice: to count the bytes, and to take them;
/// returns what the second call returns.
template <class Take>
auto take_arrays(Scratch& memory, Take take) {
    ScratchArrays counted;
    static_cast<void>(take(counted));
    ScratchArrays arrays{memory.reserve(counted.bytes())};
    return take(arrays);
}

} // namespace cellar::detail
