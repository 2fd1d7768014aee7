// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace cellar::detail {

/// The polynomial of CRC-32 without its highest bit, lowest power in the highest bit.
inline constexpr std::uint32_t crc32_polynomial = 0xedb88320;

/// `[k][b]`: the CRC of the byte b followed by k zero bytes.
using Crc32Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Crc32Tables make_crc32_tables() {
    Crc32Tables tables{};
    for (std::uint32_t b = 0; b < 256; ++b) {
        std::uint32_t crc = b;
        for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? crc32_polynomial : 0);
        tables[0][b] = crc;
    }
    for (std::size_t k = 1; k < tables.size(); ++k) {
        for (std::size_t b = 0; b < 256; ++b) {
            const std::uint32_t crc = tables[k - 1][b];
            tables[k][b] = (crc >> 8) ^ tables[0][crc & 0xff];
        }
    }
    return tables;
}

inline constexpr Crc32Tables crc32_tables = make_crc32_tables();

/// Reads a number of four bytes, the lowest first.
inline std::uint32_t little_endian_32(const std::byte* from) {
    std::uint32_t value = 0;
    if constexpr (std::endian::native == std::endian::little) {
        std::memcpy(&value, from, sizeof(value));
    } else {
        for (unsigned k = 0; k < 4; ++k) value |= std::to_integer<std::uint32_t>(from[k]) << (8 * k);
    }
    return value;
}

/// Advances the state of a CRC-32, eight bytes at a time.
inline std::uint32_t add_by_table(std::uint32_t state, std::span<const std::byte> bytes) {
    const auto& t = crc32_tables;
    while (bytes.size() >= 8) {
        const std::uint32_t low = little_endian_32(bytes.data()) ^ state;
        const std::uint32_t high = little_endian_32(bytes.data() + 4);
        state = t[7][low & 0xff] ^ t[6][(low >> 8) & 0xff] ^ t[5][(low >> 16) & 0xff] ^ t[4][low >> 24]
                ^ t[3][high & 0xff] ^ t[2][(high >> 8) & 0xff] ^ t[1][(high >> 16) & 0xff] ^ t[0][high >> 24];
        bytes = bytes.subspan(8);
    }
    for (const std::byte b : bytes) state = (state >> 8) ^ t[0][(state ^ std::to_integer<std::uint32_t>(b)) & 0xff];
    return state;
}

} // namespace cellar::detail
