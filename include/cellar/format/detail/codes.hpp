// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>

/// Codes of a few bits, which are packed into bytes.
namespace cellar::detail {

[[gnu::always_inline]] CELLAR_FUNCTION inline std::uint64_t little_endian(std::uint64_t word) {
    return std::endian::native == std::endian::little ? word : __builtin_bswap64(word);
}
/// 8 bytes, the first one lowest.
[[gnu::always_inline]] CELLAR_FUNCTION inline std::uint64_t load_eight(const std::uint8_t* from) {
    std::uint64_t word = 0;
    __builtin_memcpy(&word, from, sizeof(word));
    return little_endian(word);
}
[[gnu::always_inline]] CELLAR_FUNCTION inline void store_eight(std::uint64_t word, std::uint8_t* to) {
    word = little_endian(word);
    __builtin_memcpy(to, &word, sizeof(word));
}

/// The lowest `bits` of each field of so many bits.
CELLAR_FUNCTION constexpr std::uint64_t low_bits(int bits, int field) {
    std::uint64_t mask = 0;
    for (int at = 0; at < 64; at += field) mask |= ((std::uint64_t{1} << bits) - 1) << at;
    return mask;
}

/// Moves the upper one of each two numbers of `bits` bits down, or up again, by a gap between them. `field`: the bits
/// that both have with the gaps above them.
template <int Bits, int Field>
[[gnu::always_inline]] CELLAR_FUNCTION inline std::uint64_t closed_gaps(std::uint64_t word) {
    constexpr std::uint64_t lower = low_bits(Bits, Field);
    return (word & lower) | (word >> (Field / 2 - Bits) & lower << Bits);
}
template <int Bits, int Field>
[[gnu::always_inline]] CELLAR_FUNCTION inline std::uint64_t opened_gaps(std::uint64_t word) {
    constexpr std::uint64_t lower = low_bits(Bits, Field);
    return (word & lower) | (word & lower << Bits) << (Field / 2 - Bits);
}

/// The lowest bits of 8 bytes, one number behind the other from the lowest bit on.
template <int Bits>
[[gnu::always_inline]] CELLAR_FUNCTION inline std::uint64_t joined(std::uint64_t bytes) {
    return closed_gaps<4 * Bits, 64>(closed_gaps<2 * Bits, 32>(closed_gaps<Bits, 16>(bytes)));
}
/// The inverse. Bits above 8 * Bits are ignored.
template <int Bits>
[[gnu::always_inline]] CELLAR_FUNCTION inline std::uint64_t separated(std::uint64_t bits) {
    return opened_gaps<Bits, 16>(opened_gaps<2 * Bits, 32>(opened_gaps<4 * Bits, 64>(bits)));
}

/// 32 numbers of a few bits, one behind the other from the lowest bit of the first byte on.
template <int Bits>
struct PackedNumbers {
    alignas(4) std::uint8_t bytes[std::size_t{4} * Bits];
};
/// Byte i of N / 2: the lower 4 bits of codes[i], and above them those of codes[i + N / 2].
template <int N>
[[gnu::always_inline]] CELLAR_FUNCTION inline void pack_halves(const std::uint8_t* codes, std::uint8_t* to) {
    constexpr std::uint64_t lower = low_bits(4, 8);
    for (int i = 0; i < N / 2; i += 8)
        store_eight((load_eight(codes + i) & lower) | (load_eight(codes + i + N / 2) & lower) << 4, to + i);
}
} // namespace cellar::detail
