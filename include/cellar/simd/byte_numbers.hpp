// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/simd/byte_products.hpp>
#include <cellar/simd/vector.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>

/// Numbers of 8 bits: a sign, and 7 bits that stand for one of 128 magnitudes, each of which a bfloat16 holds.
namespace cellar::detail {

/// The bits of a magnitude as a bfloat16, byte by byte.
struct ByteNumbers {
    alignas(64) std::uint8_t lower[128];
    alignas(64) std::uint8_t upper[128];

    /// `magnitude(bits)`, which is a constant expression, as a float.
    template <class Magnitude>
    static constexpr ByteNumbers of(Magnitude magnitude) {
        ByteNumbers numbers{};
        for (int bits = 0; bits < 128; ++bits) {
            const std::uint32_t word = __builtin_bit_cast(std::uint32_t, static_cast<float>(magnitude(bits)));
            numbers.lower[bits] = static_cast<std::uint8_t>(word >> 16);
            numbers.upper[bits] = static_cast<std::uint8_t>(word >> 24);
        }
        return numbers;
    }
};

#ifdef CELLAR_HAS_X86_VECTORS

#define CELLAR_INLINE [[CELLAR_AVX512_VNNI, gnu::always_inline]] static inline

/// Products of such numbers as bfloat16, two in each of 16 lanes.
struct Bfloat16Products {
    using Lanes = Avx512Vector::Ints;
    using Sums = Avx512Vector::Floats;

    static bool is_available() {
        return VnniProducts::is_available() && static_cast<bool>(__builtin_cpu_supports("avx512bf16"))
               && static_cast<bool>(__builtin_cpu_supports("avx512vbmi"));
    }

    /// What four numbers in each lane are: the first and the third one, and the others.
    template <const ByteNumbers& Table>
    CELLAR_INLINE void look_up(Lanes numbers, Lanes& even, Lanes& odd) {
        constexpr std::int32_t first = 0x00ff00ff; // bytes of words
        const Lanes lower = look_up(Table.lower, numbers);
        const Lanes upper = upper_bytes<Table>(numbers);
        even = (lower & first) | (upper & first) << 8;
        odd = (lower >> 8 & first) | (upper & ~first);
    }

    /// Numbers of two rows side by side, that of `row` in the lower half of a lane: 0 to 3, 16 to 19, 8 to 11 and 24 to
    /// 27 in `first`, the others of 32 in `second`.
    struct Pairs {
        Lanes first, second;
    };
    template <const ByteNumbers& Table>
    CELLAR_INLINE Pairs zip(const std::int8_t* row, const std::int8_t* next) {
        using Bytes = std::int8_t __attribute__((vector_size(32)));
        using Ints = Avx2Vector::Ints;
        Bytes a;
        Bytes b;
        std::memcpy(&a, row, sizeof(a));
        std::memcpy(&b, next, sizeof(b));
        Ints low;
        Ints high;
        asm("vpunpcklbw %2, %1, %0" : "=v"(low) : "v"(a), "v"(b));
        asm("vpunpckhbw %2, %1, %0" : "=v"(high) : "v"(a), "v"(b));
        const Lanes both = __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        const Lanes lower = look_up(Table.lower, both);
        const Lanes upper = upper_bytes<Table>(both);
        Lanes first;
        Lanes second;
        asm("vpunpcklbw %2, %1, %0" : "=v"(first) : "v"(lower), "v"(upper));
        asm("vpunpckhbw %2, %1, %0" : "=v"(second) : "v"(lower), "v"(upper));
        return {first, second};
    }
    /// Numbers 0 to 15 and 16 to 31, from sums in the order of `zip`.
    CELLAR_INLINE void in_order(Sums first, Sums second, Sums* to) {
        to[0] = __builtin_shufflevector(first, second, 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27);
        to[1] = __builtin_shufflevector(first, second, 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31);
    }

    /// Adds the products with the same two numbers, as bfloat16, in each lane.
    CELLAR_INLINE Sums add(Sums sum, Lanes numbers, const void* pair) {
        asm("vdpbf16ps %2%{1to16%}, %1, %0"
            : "+v"(sum)
            : "v"(numbers), "m"(*static_cast<const std::int8_t(*)[4]>(pair)));
        return sum;
    }
    /// 16 floats as bfloat16, rounded to nearest.
    CELLAR_INLINE void store(void* to, Sums floats) {
        using Half = std::int16_t __attribute__((vector_size(32)));
        Half rounded;
        asm("vcvtneps2bf16 %1, %0" : "=v"(rounded) : "v"(floats));
        std::memcpy(to, &rounded, sizeof(rounded));
    }

private:
    template <const ByteNumbers& Table>
    CELLAR_INLINE Lanes upper_bytes(Lanes numbers) {
        constexpr auto signs = static_cast<std::int32_t>(0x80808080);
        return look_up(Table.upper, numbers) | (numbers & signs);
    }
    CELLAR_INLINE Lanes look_up(const std::uint8_t* table, Lanes numbers) {
        Lanes first;
        Lanes second;
        std::memcpy(&first, table, sizeof(first));
        std::memcpy(&second, table + sizeof(first), sizeof(second));
        asm("vpermi2b %2, %1, %0" : "+v"(numbers) : "v"(first), "v"(second));
        return numbers;
    }
};

#undef CELLAR_INLINE

#endif

} // namespace cellar::detail
