// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/element/bfloat16.hpp>
#include <cellar/element/half.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

/// Conversions of 16 elements by the processor's vector instructions, with the compilers' builtins or in assembly:
/// <immintrin.h> and <arm_neon.h> cost every translation unit up to half a second.
namespace cellar::detail {

#if defined(__x86_64__) && defined(__GNUC__)

// Compiled for these instructions whatever the flags of the translation unit, and called only where the processor has
// them.
#define CELLAR_VECTOR_FUNCTION [[gnu::target("avx2,f16c")]]

struct VectorConversion {
    static constexpr bool exists = true;

    /// Every processor with AVX2 has F16C, which not all compilers can query.
    static bool is_available() { return static_cast<bool>(__builtin_cpu_supports("avx2")); }

    CELLAR_VECTOR_FUNCTION static void run8(const half* from, float* to) {
        Shorts halves;
        std::memcpy(&halves, from, sizeof(halves));
        const Floats floats = __builtin_ia32_vcvtph2ps256(halves);
        std::memcpy(to, &floats, sizeof(floats));
    }

    CELLAR_VECTOR_FUNCTION static void run8(const float* from, half* to) {
        constexpr int to_nearest_even = 0;
        Floats floats;
        std::memcpy(&floats, from, sizeof(floats));
        // As words of 64 bits, because g++ would convert halves straight to memory, which takes longer.
        reinterpret_cast<UnalignedLanes*>(to)->lanes =
            reinterpret_cast<HalfLanes>(__builtin_ia32_vcvtps2ph256(floats, to_nearest_even));
    }

    CELLAR_VECTOR_FUNCTION static void run8(const bfloat16* from, float* to) {
        Shorts shorts;
        std::memcpy(&shorts, from, sizeof(shorts));
#if defined(__clang__)
        const Words words = __builtin_convertvector(shorts, Words) << 16;
#else
        const Words words = reinterpret_cast<Words>(__builtin_ia32_pmovzxwd256(shorts)) << 16;
#endif
        std::memcpy(to, &words, sizeof(words));
    }

    template <class From, class To>
    CELLAR_VECTOR_FUNCTION static void run16(const From* from, To* to) {
        run8(from, to);
        run8(from + 8, to + 8);
    }
    CELLAR_VECTOR_FUNCTION static void run16(const float* from, bfloat16* to) {
        Signed rounded[2];
        for (std::ptrdiff_t k = 0; k < 2; ++k) {
            Words word;
            std::memcpy(&word, from + 8 * k, sizeof(word));
            const Words upper = word >> 16;
            const Words nearest = (word + (upper & 1) + 0x7fff) >> 16;
            const Signed is_nan = reinterpret_cast<Signed>(word & 0x7fffffff) > 0x7f800000;
            rounded[k] = reinterpret_cast<Signed>(is_nan ? upper | 0x40 : nearest);
        }
        const auto packed = reinterpret_cast<Lanes>(__builtin_ia32_packusdw256(rounded[0], rounded[1]));
        const Lanes ordered = __builtin_ia32_permdi256(packed, 0b11'01'10'00);
        std::memcpy(to, &ordered, sizeof(ordered));
    }

private:
    using Shorts = short __attribute__((vector_size(16)));
    using HalfLanes = long long __attribute__((vector_size(16)));
    struct [[gnu::packed, gnu::may_alias]] UnalignedLanes {
        HalfLanes lanes;
    };
    using Words = std::uint32_t __attribute__((vector_size(32)));
    using Signed = std::int32_t __attribute__((vector_size(32)));
    using Lanes = long long __attribute__((vector_size(32)));
    using Floats = float __attribute__((vector_size(32)));
};

#elif defined(__aarch64__) && defined(__ARM_NEON) && !defined(__AARCH64EB__) && defined(__GNUC__)                      \
    && !defined(__CUDACC__)

#define CELLAR_VECTOR_FUNCTION

// These instructions belong to every 64-bit ARM processor.
struct VectorConversion {
    static constexpr bool exists = true;

    static constexpr bool is_available() { return true; }

    static void run8(const half* from, float* to) {
        Shorts halves;
        Words floats[2];
        std::memcpy(&halves, from, sizeof(halves));
        asm("fcvtl %0.4s, %1.4h" : "=w"(floats[0]) : "w"(halves));
        asm("fcvtl2 %0.4s, %1.8h" : "=w"(floats[1]) : "w"(halves));
        std::memcpy(to, floats, sizeof(floats));
    }

    static void run8(const float* from, half* to) {
        Words floats[2];
        Shorts halves;
        std::memcpy(floats, from, sizeof(floats));
        asm("fcvtn %0.4h, %1.4s" : "=w"(halves) : "w"(floats[0]));
        asm("fcvtn2 %0.8h, %1.4s" : "+w"(halves) : "w"(floats[1]));
        std::memcpy(to, &halves, sizeof(halves));
    }

    static void run8(const bfloat16* from, float* to) {
        Shorts shorts;
        Words words[2];
        std::memcpy(&shorts, from, sizeof(shorts));
        asm("shll %0.4s, %1.4h, #16" : "=w"(words[0]) : "w"(shorts));
        asm("shll2 %0.4s, %1.8h, #16" : "=w"(words[1]) : "w"(shorts));
        std::memcpy(to, words, sizeof(words));
    }

    static void run8(const float* from, bfloat16* to) {
        Words words[2];
        Shorts shorts;
        std::memcpy(words, from, sizeof(words));
        for (Words& word : words) {
            const Words nearest = word + (word >> 16 & 1) + 0x7fff;
            const auto is_nan = reinterpret_cast<Words>((word & 0x7fffffff) > 0x7f800000);
            word = (nearest & ~is_nan) | ((word | 0x400000) & is_nan);
        }
        asm("shrn %0.4h, %1.4s, #16" : "=w"(shorts) : "w"(words[0]));
        asm("shrn2 %0.8h, %1.4s, #16" : "+w"(shorts) : "w"(words[1]));
        std::memcpy(to, &shorts, sizeof(shorts));
    }

    template <class From, class To>
    static void run16(const From* from, To* to) {
        run8(from, to);
        run8(from + 8, to + 8);
    }

private:
    using Shorts = std::uint16_t __attribute__((vector_size(16)));
    using Words = std::uint32_t __attribute__((vector_size(16)));
};

#else

#define CELLAR_VECTOR_FUNCTION

struct VectorConversion {
    static constexpr bool exists = false;

    static constexpr bool is_available() { return false; }
};

#endif

/// Converts [from, from + n) to [to, to + n), which must not overlap, where n is at least 16. The last elements may be
/// converted twice.
template <class From, class To, class Vector = VectorConversion>
CELLAR_VECTOR_FUNCTION void convert_vectors(const From* from, To* to, std::int64_t n) {
    for (std::int64_t i = 0; i <= n - 16; i += 16) Vector::run16(from + i, to + i);
    if (n % 16 != 0) Vector::run16(from + n - 16, to + n - 16);
}

/// The same in a plain loop, for any n.
template <class From, class To>
void convert_elements(const From* from, To* to, std::int64_t n) {
    constexpr std::int64_t chunk = 16; // a loop of constant length compiles to vector code at -O2, too
    const std::int64_t whole = n - n % chunk;
    for (std::int64_t i = 0; i < whole; i += chunk)
        for (std::int64_t k = i; k < i + chunk; ++k) to[k] = static_cast<To>(from[k]);
    for (std::int64_t i = whole; i < n; ++i) to[i] = static_cast<To>(from[i]);
}

/// Converts or copies, with vector instructions where the processor has them.
template <class From, class To>
void convert_run(const From* from, To* to, std::int64_t n) {
    if constexpr (std::is_same_v<From, To>) {
        if (n > 0) std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(To));
    } else {
        if constexpr (VectorConversion::exists) {
            if (n >= 16 && VectorConversion::is_available()) return convert_vectors(from, to, n);
        }
        convert_elements(from, to, n);
    }
}

} // namespace cellar::detail
