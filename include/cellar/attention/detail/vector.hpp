// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/element/bfloat16.hpp>
#include <cellar/element/half.hpp>

#include <cstdint>
#include <cstring>
#include <type_traits>

/// Vectors of floats for the kernels of attention, for each set of instructions. Nothing but the compilers' builtins:
/// <immintrin.h> costs every translation unit up to half a second.
namespace cellar::detail {

/// Four floats, which every processor that a compiler vectorizes for has.
struct PortableVector {
    static constexpr int lanes = 4;
    using Floats = float __attribute__((vector_size(16)));
    using Ints = std::int32_t __attribute__((vector_size(16)));

    /// True if elements of this type can be loaded as floats.
    template <class E>
    static constexpr bool loads = std::is_same_v<E, float>;

    static Floats load(const float* from) {
        Floats floats;
        std::memcpy(&floats, from, sizeof(floats));
        return floats;
    }
    static Floats in_register(Floats floats) { return floats; }
};

// nvcc does not know the builtins, and g++ for Windows does not align vectors of more than 128 bits on the stack.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__CUDACC__) && !defined(_WIN32)

#define CELLAR_HAS_X86_VECTORS 1

struct Avx2Vector {
    static constexpr int lanes = 8;
    using Floats = float __attribute__((vector_size(32)));
    using Ints = std::int32_t __attribute__((vector_size(32)));

    template <class E>
    static constexpr bool loads = true;

    static bool is_available() {
        return static_cast<bool>(__builtin_cpu_supports("avx2")) && static_cast<bool>(__builtin_cpu_supports("fma"));
    }

    /// Stops the compiler from loading what is multiplied several times anew for each product: loads are the limit.
    [[gnu::target("avx2,fma,f16c"), gnu::always_inline]] static inline Floats in_register(Floats floats) {
        asm("" : "+x"(floats));
        return floats;
    }

    [[gnu::target("avx2,fma,f16c"), gnu::always_inline]] static inline Floats load(const float* from) {
        Floats floats;
        std::memcpy(&floats, from, sizeof(floats));
        return floats;
    }
    [[gnu::target("avx2,fma,f16c"), gnu::always_inline]] static inline Floats load(const half* from) {
        Shorts halves;
        std::memcpy(&halves, from, sizeof(halves));
        return __builtin_ia32_vcvtph2ps256(halves);
    }
    [[gnu::target("avx2,fma,f16c"), gnu::always_inline]] static inline Floats load(const bfloat16* from) {
        Shorts shorts;
        std::memcpy(&shorts, from, sizeof(shorts));
        // A shuffle moves elements to the upper halves of floats: one operation, where widening and a shift are two.
        constexpr char zero = -1;
        constexpr Bytes upper = {zero, zero, 0, 1, zero, zero, 2,  3,  zero, zero, 4,  5,  zero, zero, 6,  7,
                                 zero, zero, 8, 9, zero, zero, 10, 11, zero, zero, 12, 13, zero, zero, 14, 15};
#if defined(__clang__)
        const auto twice = __builtin_shufflevector(shorts, shorts, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7);
#else
        using Words = long long __attribute__((vector_size(16)));
        const auto twice = __builtin_ia32_vbroadcastsi256(reinterpret_cast<Words>(shorts));
#endif
        return reinterpret_cast<Floats>(__builtin_ia32_pshufb256(reinterpret_cast<Bytes>(twice), upper));
    }

private:
    using Shorts = short __attribute__((vector_size(16)));
    using Bytes = char __attribute__((vector_size(32)));
};

struct Avx512Vector {
    static constexpr int lanes = 16;
    using Floats = float __attribute__((vector_size(64)));
    using Ints = std::int32_t __attribute__((vector_size(64)));

    template <class E>
    static constexpr bool loads = true;

    static bool is_available() {
        return Avx2Vector::is_available() && static_cast<bool>(__builtin_cpu_supports("avx512f"))
               && static_cast<bool>(__builtin_cpu_supports("avx512bw"))
               && static_cast<bool>(__builtin_cpu_supports("avx512dq"))
               && static_cast<bool>(__builtin_cpu_supports("avx512vl"));
    }

    [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"), gnu::always_inline]] static inline Floats
    in_register(Floats floats) {
        asm("" : "+v"(floats));
        return floats;
    }

    [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"), gnu::always_inline]] static inline Floats
    load(const float* from) {
        Floats floats;
        std::memcpy(&floats, from, sizeof(floats));
        return floats;
    }
    [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"), gnu::always_inline]] static inline Floats
    load(const half* from) {
        constexpr int as_the_processor_is_set = 4; // of rounding, which does not happen
        Shorts halves;
        std::memcpy(&halves, from, sizeof(halves));
        return __builtin_ia32_vcvtph2ps512_mask(halves, Floats{}, all, as_the_processor_is_set);
    }
    [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"), gnu::always_inline]] static inline Floats
    load(const bfloat16* from) {
        Shorts shorts;
        std::memcpy(&shorts, from, sizeof(shorts));
#if defined(__clang__)
        return reinterpret_cast<Floats>(__builtin_convertvector(reinterpret_cast<UnsignedShorts>(shorts), Ints) << 16);
#else
        return reinterpret_cast<Floats>(reinterpret_cast<Ints>(__builtin_ia32_pmovzxwd512_mask(shorts, Words{}, 0xffff))
                                        << 16);
#endif
    }

    /// Eight elements, and zeros behind them.
    template <class E>
    [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"), gnu::always_inline]] static inline Floats
    load_half(const E* from) {
        return __builtin_shufflevector(Avx2Vector::load(from), Avx2Vector::Floats{}, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10,
                                       11, 12, 13, 14, 15);
    }

private:
    using Shorts = short __attribute__((vector_size(32)));
    using UnsignedShorts = unsigned short __attribute__((vector_size(32)));
    using Words = int __attribute__((vector_size(64)));

#if defined(__clang__)
    static constexpr unsigned short all = 0xffff;
#else
    static constexpr short all = -1;
#endif
};

#endif

} // namespace cellar::detail
