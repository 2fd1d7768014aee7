// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/crc/crc32_fold.hpp>
#include <cellar/crc/crc32_table.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace cellar::detail {

/// CRC-32 of zlib, PNG and Ethernet (polynomial 0x04c11db7, bits reflected, inverted before and after), piece by piece.
/// Python computes it as `zlib.crc32`. It notices every change within 32 neighbouring bits, so every altered byte.
class Crc32 {
public:
    void add(std::span<const std::byte> bytes) {
        if (bytes.size() >= smallest_crc32_fold) state_ = fastest_crc32_fold().add(state_, bytes, nullptr);
        state_ = add_by_table(state_, bytes);
    }

    /// Adds the bytes, and copies them to `to`. `past_caches`: they are part of so many that no cache would keep them,
    /// and no cache has what is there.
    void add_copy(std::span<const std::byte> bytes, std::byte* to, bool past_caches) {
        if (!past_caches) return add_copy_with(fastest_crc32_fold().copy, bytes, to);
        const std::size_t to_line = (64 - reinterpret_cast<std::uintptr_t>(to) % 64) % 64;
        const auto head = bytes.first(std::min(to_line, bytes.size()));
        add_copy(head, to, false);
        add_copy_with(fastest_crc32_fold().copy_past_caches, bytes.subspan(head.size()), to + head.size());
    }

    std::uint32_t value() const { return ~state_; }

private:
    void add_copy_with(Crc32Fold::Function copy, std::span<const std::byte> bytes, std::byte* to) {
        const std::size_t size = bytes.size();
        if (size >= smallest_crc32_fold) state_ = copy(state_, bytes, to);
        if (bytes.empty()) return;
        add(bytes);
        std::memcpy(to + (size - bytes.size()), bytes.data(), bytes.size());
    }

    std::uint32_t state_ = 0xffffffff;
};

inline std::uint32_t crc32_of(std::span<const std::byte> bytes) {
    Crc32 crc;
    crc.add(bytes);
    return crc.value();
}

} // namespace cellar::detail
