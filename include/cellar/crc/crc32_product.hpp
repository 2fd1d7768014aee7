// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/crc/crc32_table.hpp>

#include <cstdint>

// Polynomials modulo that of CRC-32, reflected like its states: the lowest power is the highest bit. A state times x^n
// is the state after n more bits, all zero.

namespace cellar::detail {

CELLAR_FUNCTION constexpr std::uint32_t crc32_times_x(std::uint32_t a) {
    return (a >> 1) ^ ((a & 1) != 0 ? crc32_polynomial : 0);
}

CELLAR_FUNCTION constexpr std::uint32_t crc32_product(std::uint32_t a, std::uint32_t b) {
    std::uint32_t product = 0;
    for (; b != 0; b <<= 1) {
        if ((b & 0x80000000) != 0) product ^= a;
        a = crc32_times_x(a);
    }
    return product;
}

/// x^n.
constexpr std::uint32_t crc32_power(std::uint64_t n) {
    std::uint32_t power = 0x80000000;  // x^0
    std::uint32_t square = 0x40000000; // x^1
    for (; n != 0; n >>= 1) {
        if ((n & 1) != 0) power = crc32_product(power, square);
        square = crc32_product(square, square);
    }
    return power;
}

} // namespace cellar::detail
