// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/files/detail/crc32_fold.hpp>
#include <cellar/files/detail/crc32_table.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace cellar::detail {

/// CRC-32 of zlib, PNG and Ethernet (polynomial 0x04c11db7, bits reflected, inverted before and after), piece by piece.
/// Python computes it as `zlib.crc32`. It notices every change within 32 neighbouring bits, so every altered byte.
class Crc32 {
public:
    void add(std::span<const std::byte> bytes) {
        state_ = Crc32Fold::add(state_, bytes); // takes a multiple of its block from the front
        state_ = add_by_table(state_, bytes);
    }

    std::uint32_t value() const { return ~state_; }

private:
    std::uint32_t state_ = 0xffffffff;
};

inline std::uint32_t crc32_of(std::span<const std::byte> bytes) {
    Crc32 crc;
    crc.add(bytes);
    return crc.value();
}

} // namespace cellar::detail
