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

    struct Pairs {
        Lanes first, second;
    };

    /// 32 bytes of each of two rows.
    CELLAR_INLINE Lanes load_two(const std::int8_t* row, const std::int8_t* next) {
        Avx2Vector::Ints a;
        Avx2Vector::Ints b;
        std::memcpy(&a, row, sizeof(a));
        std::memcpy(&b, next, sizeof(b));
        Lanes both = // NOLINT(misc-const-correctness): the next line may write to it
            __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        asm("" : "+v"(both)); // so that it stays in a register
        return both;
    }
    /// 32 bytes twice in `first`, and the next 32 in `second`.
    CELLAR_INLINE Pairs load_twice(const std::int8_t* from) {
        Lanes first;
        Lanes second;
        asm("vbroadcasti64x4 %1, %0" : "=v"(first) : "m"(*reinterpret_cast<const std::int8_t(*)[32]>(from)));
        asm("vbroadcasti64x4 %1, %0" : "=v"(second) : "m"(*reinterpret_cast<const std::int8_t(*)[32]>(from + 32)));
        return {first, second};
    }
    /// As bfloat16. Of each 16 numbers, the first half is in `first`.
    template <const ByteNumbers& Table>
    CELLAR_INLINE Pairs widen(Lanes numbers) {
        constexpr auto signs = static_cast<std::int32_t>(0x80808080);
        const Lanes lower = look_up(Table.lower, numbers);
        const Lanes upper = look_up(Table.upper, numbers) | (numbers & signs);
        Lanes first;
        Lanes second;
        asm("vpunpcklbw %2, %1, %0" : "=v"(first) : "v"(lower), "v"(upper));
        asm("vpunpckhbw %2, %1, %0" : "=v"(second) : "v"(lower), "v"(upper));
        return {first, second};
    }

    /// N numbers of two rows side by side, 64 or 32, that of `row` in the lower half of a lane. Each four lanes of
    /// vector i are of numbers 4 i to 4 i + 3 of 16.
    struct Zipped {
        Lanes of[4];
    };
    template <const ByteNumbers& Table, std::size_t N>
    CELLAR_INLINE Zipped zip(const std::int8_t* row, const std::int8_t* next) {
        const Lanes a = load<N>(row);
        const Lanes b = load<N>(next);
        Lanes low;
        Lanes high;
        asm("vpunpcklbw %2, %1, %0" : "=v"(low) : "v"(a), "v"(b));
        asm("vpunpckhbw %2, %1, %0" : "=v"(high) : "v"(a), "v"(b));
        const Pairs first = widen<Table>(low);
        const Pairs second = widen<Table>(high);
        return {{first.first, first.second, second.first, second.second}};
    }
    /// Numbers 0 to 15, 16 to 31, ... from sums in the order of `zip`.
    CELLAR_INLINE void in_order(const Sums* sums, Sums* to) {
        const Sums low[] = {fours<0, 1>(sums[0], sums[1]), fours<0, 1>(sums[2], sums[3])};
        const Sums high[] = {fours<2, 3>(sums[0], sums[1]), fours<2, 3>(sums[2], sums[3])};
        to[0] = fours<0, 2>(low[0], low[1]);
        to[1] = fours<1, 3>(low[0], low[1]);
        to[2] = fours<0, 2>(high[0], high[1]);
        to[3] = fours<1, 3>(high[0], high[1]);
    }

    /// Adds the products of two numbers in each lane.
    CELLAR_INLINE Sums add(Sums sum, Lanes numbers, Lanes pairs) {
        asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(numbers), "v"(pairs));
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
    template <std::size_t N>
    CELLAR_INLINE Lanes load(const std::int8_t* from) {
        if constexpr (N == 32) {
            Avx2Vector::Ints half;
            std::memcpy(&half, from, sizeof(half));
            return __builtin_shufflevector(half, Avx2Vector::Ints{}, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14,
                                           15);
        } else {
            Lanes all;
            std::memcpy(&all, from, sizeof(all));
            return all;
        }
    }
    // Lanes 4 A to 4 A + 3 and 4 B to 4 B + 3 of both.
    template <int A, int B>
    CELLAR_INLINE Sums fours(Sums first, Sums second) {
        constexpr int a = 4 * A;
        constexpr int b = 4 * B;
        return __builtin_shufflevector(first, second, a, a + 1, a + 2, a + 3, b, b + 1, b + 2, b + 3, a + 16, a + 17,
                                       a + 18, a + 19, b + 16, b + 17, b + 18, b + 19);
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
