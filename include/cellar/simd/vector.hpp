// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

namespace cellar {
struct half;
struct bfloat16;
} // namespace cellar

/// Vectors of floats, one type for each level of instructions. Nothing but the compilers' builtins and assembly:
/// <immintrin.h> and <arm_neon.h> cost every translation unit up to half a second. Each type has
///   load(from): as many floats as it has lanes, from float, half, bfloat16 or bytes with a sign,
///   store(first, second, a, b): two vectors to float, half or bfloat16, rounded as by `static_cast`,
///   in_register(v): v, which the compiler must not load anew for each use.
/// All but the baseline of x86 have more, for formats.
/// operations.hpp makes the rest of these.
namespace cellar::detail {

#if defined(__x86_64__) && defined(__GNUC__)
#define CELLAR_HAS_AVX2_CONVERSIONS 1
// nvcc does not compile all kernels, and g++ for Windows does not align vectors of more than 128 bits on the stack:
// there, vectors are loaded, converted and stored, and nothing else.
#if !defined(__CUDACC__) && !defined(_WIN32)
#define CELLAR_HAS_X86_VECTORS 1
#endif
#elif defined(__aarch64__) && defined(__ARM_NEON) && !defined(__AARCH64EB__) && defined(__GNUC__)                      \
    && !defined(__CUDACC__)
#define CELLAR_HAS_NEON 1
#endif

/// Four floats, which every processor that a compiler vectorizes for has. On 64-bit ARM they are NEON's, with its
/// conversions; compilers make one instruction of a product and a sum.
struct BaselineVector {
    static constexpr int lanes = 4;
    using Floats = float __attribute__((vector_size(16)));
    using Ints = std::int32_t __attribute__((vector_size(16)));

    static Floats in_register(Floats floats) { return floats; }

    static Floats load(const float* from) {
        Floats floats;
        std::memcpy(&floats, from, sizeof(floats));
        return floats;
    }
    static Floats load(const std::int8_t* from) {
        return Floats{static_cast<float>(from[0]), static_cast<float>(from[1]), static_cast<float>(from[2]),
                      static_cast<float>(from[3])};
    }
    static void store(float* first, float* second, Floats a, Floats b) {
        std::memcpy(first, &a, sizeof(a));
        std::memcpy(second, &b, sizeof(b));
    }

#ifndef CELLAR_HAS_NEON
    static constexpr bool converts = false;
#else
    static constexpr bool converts = true;

    static Floats load(const half* from) {
        Shorts halves;
        Floats floats;
        std::memcpy(&halves, from, sizeof(halves));
        asm("fcvtl %0.4s, %1.4h" : "=w"(floats) : "w"(halves));
        return floats;
    }
    static Floats load(const bfloat16* from) {
        Shorts shorts;
        Floats floats;
        std::memcpy(&shorts, from, sizeof(shorts));
        asm("shll %0.4s, %1.4h, #16" : "=w"(floats) : "w"(shorts));
        return floats;
    }
    static void store(half* first, half* second, Floats a, Floats b) {
        Shorts halves[2];
        asm("fcvtn %0.4h, %1.4s" : "=w"(halves[0]) : "w"(a));
        asm("fcvtn %0.4h, %1.4s" : "=w"(halves[1]) : "w"(b));
        std::memcpy(first, &halves[0], sizeof(Shorts));
        std::memcpy(second, &halves[1], sizeof(Shorts));
    }
    static void store(bfloat16* first, bfloat16* second, Floats a, Floats b) {
        const Shorts shorts[2] = {rounded(a), rounded(b)};
        std::memcpy(first, &shorts[0], sizeof(Shorts));
        std::memcpy(second, &shorts[1], sizeof(Shorts));
    }

    // For formats, as those of AVX2.
    using Bytes = char __attribute__((vector_size(16)));

    static Floats product(Floats a, Floats b) {
        Floats rounded = a * b;
        asm("" : "+w"(rounded));
        return rounded;
    }
    static Floats floor(Floats floats) {
        Floats down;
        asm("frintm %0.4s, %1.4s" : "=w"(down) : "w"(floats));
        return down;
    }
    static Bytes look_up(Bytes table, Bytes index) {
        Bytes found;
        index &= static_cast<char>(0x8f); // which finds nothing from 16 on
        asm("tbl %0.16b, {%1.16b}, %2.16b" : "=w"(found) : "w"(table), "w"(index));
        return found;
    }
    static Floats repeat(Floats floats) {
        return floats;
    }
    static auto halves_of(Floats floats) {
        Shorts halves;
        asm("fcvtn %0.4h, %1.4s" : "=w"(halves) : "w"(floats));
        return halves;
    }

private:
    using Shorts = std::uint16_t __attribute__((vector_size(8)));
    using Words = std::uint32_t __attribute__((vector_size(16)));

    static Shorts rounded(Floats floats) {
        Words word = reinterpret_cast<Words>(floats);
        const Words nearest = word + (word >> 16 & 1) + 0x7fff;
        const auto is_nan = reinterpret_cast<Words>((word & 0x7fffffff) > 0x7f800000);
        word = (nearest & ~is_nan) | ((word | 0x400000) & is_nan);
        Shorts shorts;
        asm("shrn %0.4h, %1.4s, #16" : "=w"(shorts) : "w"(word));
        return shorts;
    }
#endif
};

#ifdef CELLAR_HAS_AVX2_CONVERSIONS

// Compiled for these instructions whatever the flags of the translation unit, and called only where the processor has
// them. Without FMA, which would round products and sums together.
#define CELLAR_AVX2 gnu::target("avx2,f16c")
#define CELLAR_INLINE [[CELLAR_AVX2, gnu::always_inline]] static inline

struct Avx2Vector {
    static constexpr int lanes = 8;
    using Floats = float __attribute__((vector_size(32)));
    using Ints = std::int32_t __attribute__((vector_size(32)));
    using Bytes = char __attribute__((vector_size(32)));

    static constexpr bool converts = true;

    /// Every processor with AVX2 has F16C, which not all compilers can query.
    static bool is_available() { return static_cast<bool>(__builtin_cpu_supports("avx2")); }
    static bool is_available_with_fma() { return is_available() && static_cast<bool>(__builtin_cpu_supports("fma")); }

    /// Loads are the limit where products share what they multiply.
    CELLAR_INLINE Floats in_register(Floats floats) {
        asm("" : "+x"(floats));
        return floats;
    }

    CELLAR_INLINE Floats load(const float* from) {
        Floats floats;
        std::memcpy(&floats, from, sizeof(floats));
        return floats;
    }
    CELLAR_INLINE Floats load(const half* from) {
        Shorts halves;
        std::memcpy(&halves, from, sizeof(halves));
        return __builtin_ia32_vcvtph2ps256(halves);
    }
    CELLAR_INLINE Floats load(const bfloat16* from) {
        Shorts shorts;
        std::memcpy(&shorts, from, sizeof(shorts));
        // A shuffle moves elements to the upper halves of floats: one operation, where widening and a shift are two.
        constexpr char zero = -1;
        constexpr Bytes upper = {zero, zero, 0, 1, zero, zero, 2,  3,  zero, zero, 4,  5,  zero, zero, 6,  7,
                                 zero, zero, 8, 9, zero, zero, 10, 11, zero, zero, 12, 13, zero, zero, 14, 15};
#if defined(__clang__)
        const auto twice = __builtin_shufflevector(shorts, shorts, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7);
#else
        const auto twice = __builtin_ia32_vbroadcastsi256(reinterpret_cast<Lane>(shorts));
#endif
        return reinterpret_cast<Floats>(__builtin_ia32_pshufb256(reinterpret_cast<Bytes>(twice), upper));
    }
    CELLAR_INLINE Floats load(const std::int8_t* from) {
        Ints ints;
        asm("vpmovsxbd %1, %0" : "=x"(ints) : "m"(*reinterpret_cast<const std::int8_t(*)[lanes]>(from)));
        return __builtin_convertvector(ints, Floats);
    }

    CELLAR_INLINE void store(float* first, float* second, Floats a, Floats b) {
        std::memcpy(first, &a, sizeof(a));
        std::memcpy(second, &b, sizeof(b));
    }
    CELLAR_INLINE void store(half* first, half* second, Floats a, Floats b) {
        constexpr int to_nearest_even = 0;
        // As words of 64 bits, because g++ would convert halves straight to memory, which takes longer.
        reinterpret_cast<UnalignedLane*>(first)->lane =
            reinterpret_cast<Lane>(__builtin_ia32_vcvtps2ph256(a, to_nearest_even));
        reinterpret_cast<UnalignedLane*>(second)->lane =
            reinterpret_cast<Lane>(__builtin_ia32_vcvtps2ph256(b, to_nearest_even));
    }
    CELLAR_INLINE void store(bfloat16* first, bfloat16* second, Floats a, Floats b) {
        const auto packed = reinterpret_cast<Lanes>(__builtin_ia32_packusdw256(rounded(a), rounded(b)));
        const Lanes ordered = __builtin_ia32_permdi256(packed, 0b11'01'10'00);
        std::memcpy(first, &ordered, sizeof(Lane));
        std::memcpy(second, reinterpret_cast<const char*>(&ordered) + sizeof(Lane), sizeof(Lane));
    }

#ifdef CELLAR_HAS_X86_VECTORS
    /// Rounded, whatever it is added to.
    CELLAR_INLINE Floats product(Floats a, Floats b) {
        return in_register(a * b);
    }
    CELLAR_INLINE Floats floor(Floats floats) {
        constexpr int down = 1;
        return __builtin_ia32_roundps256(floats, down);
    }
    /// Byte i: that of a table of 16, which `table` has twice, whose index is in the lower bits of byte i of `index`; 0
    /// where its highest bit is set.
    CELLAR_INLINE Bytes look_up(Bytes table, Bytes index) {
        return __builtin_ia32_pshufb256(table, index);
    }
    /// Four lanes, again and again.
    CELLAR_INLINE Floats repeat(BaselineVector::Floats floats) {
        Floats all;
        asm("vinsertf128 $1, %1, %t1, %0" : "=x"(all) : "x"(floats));
        return all;
    }
    /// The bits of halves, in the first four lanes.
    CELLAR_INLINE auto halves_of(BaselineVector::Floats floats) {
        constexpr int to_nearest_even = 0;
        return __builtin_ia32_vcvtps2ph(floats, to_nearest_even);
    }
#endif

private:
    using Shorts = short __attribute__((vector_size(16)));
    using Words = std::uint32_t __attribute__((vector_size(32)));
    using Lane = long long __attribute__((vector_size(16)));
    using Lanes = long long __attribute__((vector_size(32)));
    struct [[gnu::packed, gnu::may_alias]] UnalignedLane {
        Lane lane;
    };

    // The upper halves of words.
    CELLAR_INLINE Ints rounded(Floats floats) {
        const Words word = reinterpret_cast<Words>(floats);
        const Words upper = word >> 16;
        const Words nearest = (word + (upper & 1) + 0x7fff) >> 16;
        const Ints is_nan = reinterpret_cast<Ints>(word & 0x7fffffff) > 0x7f800000;
        return reinterpret_cast<Ints>(is_nan ? upper | 0x40 : nearest);
    }
};

#undef CELLAR_INLINE

#endif

#ifdef CELLAR_HAS_X86_VECTORS

#define CELLAR_AVX2_FMA gnu::target("avx2,fma,f16c")
#define CELLAR_AVX512 gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")
#define CELLAR_INLINE [[CELLAR_AVX512, gnu::always_inline]] static inline

struct Avx512Vector {
    static constexpr int lanes = 16;
    using Floats = float __attribute__((vector_size(64)));
    using Ints = std::int32_t __attribute__((vector_size(64)));

    static bool is_available() {
        return Avx2Vector::is_available_with_fma() && static_cast<bool>(__builtin_cpu_supports("avx512f"))
               && static_cast<bool>(__builtin_cpu_supports("avx512bw"))
               && static_cast<bool>(__builtin_cpu_supports("avx512dq"))
               && static_cast<bool>(__builtin_cpu_supports("avx512vl"));
    }

    CELLAR_INLINE Floats in_register(Floats floats) {
        asm("" : "+v"(floats));
        return floats;
    }

    CELLAR_INLINE Floats load(const float* from) {
        Floats floats;
        std::memcpy(&floats, from, sizeof(floats));
        return floats;
    }
    CELLAR_INLINE Floats load(const half* from) {
        constexpr int as_the_processor_is_set = 4; // of rounding, which does not happen
        Shorts halves;
        std::memcpy(&halves, from, sizeof(halves));
        return __builtin_ia32_vcvtph2ps512_mask(halves, Floats{}, all, as_the_processor_is_set);
    }
    CELLAR_INLINE Floats load(const bfloat16* from) {
        Shorts shorts;
        std::memcpy(&shorts, from, sizeof(shorts));
#if defined(__clang__)
        return reinterpret_cast<Floats>(__builtin_convertvector(reinterpret_cast<UnsignedShorts>(shorts), Ints) << 16);
#else
        return reinterpret_cast<Floats>(reinterpret_cast<Ints>(__builtin_ia32_pmovzxwd512_mask(shorts, Ints{}, 0xffff))
                                        << 16);
#endif
    }
    CELLAR_INLINE Floats load(const std::int8_t* from) {
        Ints ints;
        asm("vpmovsxbd %1, %0" : "=v"(ints) : "m"(*reinterpret_cast<const std::int8_t(*)[lanes]>(from)));
        return __builtin_convertvector(ints, Floats);
    }
    /// Eight elements, and zeros after them.
    template <class E>
    CELLAR_INLINE Floats load_eight(const E* from) {
        return __builtin_shufflevector(Avx2Vector::load(from), Avx2Vector::Floats{}, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10,
                                       11, 12, 13, 14, 15);
    }

    // For formats.
    /// Four floats each, from four addresses that are `distance` floats apart.
    CELLAR_INLINE Floats load_fours(const float* from, std::size_t distance) {
        const auto lower = __builtin_shufflevector(BaselineVector::load(from), BaselineVector::load(from + distance), 0,
                                                   1, 2, 3, 4, 5, 6, 7);
        from += 2 * distance;
        const auto upper = __builtin_shufflevector(BaselineVector::load(from), BaselineVector::load(from + distance), 0,
                                                   1, 2, 3, 4, 5, 6, 7);
        return __builtin_shufflevector(lower, upper, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    }

    using Words = std::int16_t __attribute__((vector_size(64)));

    /// Rounded, whatever it is added to.
    CELLAR_INLINE Floats product(Floats a, Floats b) {
        return in_register(a * b);
    }
    /// The largest integers that are not above floats.
    CELLAR_INLINE Ints integers_below(Floats floats) {
        Ints integers;
        asm("vcvtps2dq %{rd-sae%}, %1, %0" : "=v"(integers) : "v"(floats));
        return integers;
    }
    /// Lane i: that of a table of 32 words or 16 floats whose index is in the lowest bits of lane i of `index`.
    CELLAR_INLINE Words look_up(Words table, Words index) {
        Words found;
        asm("vpermw %1, %2, %0" : "=v"(found) : "v"(table), "v"(index));
        return found;
    }
    CELLAR_INLINE Floats look_up(Floats table, Ints index) {
        Floats found;
        asm("vpermps %1, %2, %0" : "=v"(found) : "v"(table), "v"(index));
        return found;
    }

private:
    using Shorts = short __attribute__((vector_size(32)));
    using UnsignedShorts = unsigned short __attribute__((vector_size(32)));

#if defined(__clang__)
    static constexpr unsigned short all = 0xffff;
#else
    static constexpr short all = -1;
#endif
};

#undef CELLAR_INLINE

#endif

namespace simd {

/// Elements of 2 and of 4 bytes, in a register that every x86-64 and ARMv8 processor has.
using Shorts = std::int16_t __attribute__((vector_size(16)));
using Words = std::int32_t __attribute__((vector_size(16)));

} // namespace simd

} // namespace cellar::detail

#define CELLAR_KERNELS simd::baseline
#define CELLAR_VECTOR BaselineVector
#define CELLAR_TARGET
#include <cellar/simd/operations.hpp>
#undef CELLAR_KERNELS
#undef CELLAR_VECTOR
#undef CELLAR_TARGET

// What conversions, rotations and masks use. CELLAR_SIMD_FUNCTION is for a function that uses simd::native, and that is
// called only if it is available.
#ifdef CELLAR_HAS_AVX2_CONVERSIONS

#define CELLAR_KERNELS simd::native
#define CELLAR_VECTOR Avx2Vector
#define CELLAR_TARGET CELLAR_AVX2,
#include <cellar/simd/operations.hpp>
#undef CELLAR_KERNELS
#undef CELLAR_VECTOR
#undef CELLAR_TARGET

namespace cellar::detail::simd {

#define CELLAR_SIMD_FUNCTION [[CELLAR_AVX2]]
#define CELLAR_SIMD_INLINE [[CELLAR_AVX2, gnu::always_inline]] inline
inline bool is_available() {
    return Avx2Vector::is_available();
}
#ifdef CELLAR_HAS_X86_VECTORS
inline constexpr bool computes = true;
#else
inline constexpr bool computes = false;
#endif

} // namespace cellar::detail::simd

#else

namespace cellar::detail::simd {

#define CELLAR_SIMD_FUNCTION
#define CELLAR_SIMD_INLINE [[gnu::always_inline]] inline
namespace native = baseline;
constexpr bool is_available() {
    return BaselineVector::converts;
}
inline constexpr bool computes = BaselineVector::converts;

} // namespace cellar::detail::simd

#endif
