// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/crc/crc32_product.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

/// CRC-32 by multiplication without carry: V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using
/// PCLMULQDQ Instruction", Intel 2009. The remainder of A x^n + B is the one of A (x^n mod P) + B. So a block is
/// multiplied, and added to the block that follows n bits later. The last blocks are left to the table.
namespace cellar::detail {

/// x^n mod P as a factor, shifted up by one bit because the product of reflected numbers comes out one bit too low.
constexpr std::uint64_t crc32_factor(int n) {
    return std::uint64_t{crc32_power(static_cast<std::uint64_t>(n))} << 1;
}

/// At least as many bytes are folded: two strides of every vector.
inline constexpr std::size_t smallest_crc32_fold = 512;

/// What a fold writes besides.
enum class Crc32Copy { none, cached, past_caches };

#if defined(__x86_64__) && defined(__GNUC__)

/// Vectors of one, two or four blocks of 128 bits. The factors lie in the same places of every block: the product of a
/// block's low half (`Halves` 0x00) and that of its high half (0x11) are added up. `side_by_side`: how many vectors are
/// folded at a time, so that no product waits for the one before.
struct ClmulVector {
    using Blocks = long long __attribute__((vector_size(16)));
    static constexpr int side_by_side = 8;

    static bool is_available() { return static_cast<bool>(__builtin_cpu_supports("pclmul")); }

    template <int Halves>
    [[gnu::target("pclmul,sse2"), gnu::always_inline]] static inline Blocks multiply(Blocks a, Blocks b) {
        return __builtin_ia32_pclmulqdq128(a, b, Halves);
    }
    [[gnu::target("pclmul,sse2"), gnu::always_inline]] static inline void stream(Blocks* to, Blocks blocks) {
#if defined(__clang__)
        __builtin_nontemporal_store(blocks, to);
#else
        __builtin_ia32_movntdq(to, blocks);
#endif
    }
};

struct Avx2ClmulVector {
    using Blocks = long long __attribute__((vector_size(32)));
    static constexpr int side_by_side = 8;

    static bool is_available() {
#if defined(_WIN32)
        return false; // g++ for Windows does not align vectors of more than 128 bits on the stack
#else
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq");
#endif
    }

    template <int Halves>
    [[gnu::target("avx2,vpclmulqdq"), gnu::always_inline]] static inline Blocks multiply(Blocks a, Blocks b) {
#if defined(__clang__)
        return __builtin_ia32_pclmulqdq256(a, b, Halves);
#else
        return __builtin_ia32_vpclmulqdq_v4di(a, b, Halves);
#endif
    }
    [[gnu::target("avx2,vpclmulqdq"), gnu::always_inline]] static inline void stream(Blocks* to, Blocks blocks) {
#if defined(__clang__)
        __builtin_nontemporal_store(blocks, to);
#else
        __builtin_ia32_movntdq256(to, blocks);
#endif
    }
};

struct Avx512ClmulVector {
    using Blocks = long long __attribute__((vector_size(64)));
    static constexpr int side_by_side = 4;

    static bool is_available() { return Avx2ClmulVector::is_available() && __builtin_cpu_supports("avx512f"); }

    template <int Halves>
    [[gnu::target("avx512f,vpclmulqdq"), gnu::always_inline]] static inline Blocks multiply(Blocks a, Blocks b) {
#if defined(__clang__)
        return __builtin_ia32_pclmulqdq512(a, b, Halves);
#else
        return __builtin_ia32_vpclmulqdq_v8di(a, b, Halves);
#endif
    }
    [[gnu::target("avx512f,vpclmulqdq"), gnu::always_inline]] static inline void stream(Blocks* to, Blocks blocks) {
#if defined(__clang__)
        __builtin_nontemporal_store(blocks, to);
#else
        __builtin_ia32_movntdq512(to, blocks);
#endif
    }
};

#endif

} // namespace cellar::detail

#if defined(__x86_64__) && defined(__GNUC__)

#define CELLAR_FOLD fold_clmul
#define CELLAR_VECTOR ClmulVector
#define CELLAR_TARGET "pclmul,sse2"
#include <cellar/crc/crc32_fold_kernel.hpp>

#define CELLAR_FOLD fold_avx2
#define CELLAR_VECTOR Avx2ClmulVector
#define CELLAR_TARGET "avx2,vpclmulqdq"
#include <cellar/crc/crc32_fold_kernel.hpp>

#define CELLAR_FOLD fold_avx512
#define CELLAR_VECTOR Avx512ClmulVector
#define CELLAR_TARGET "avx512f,vpclmulqdq"
#include <cellar/crc/crc32_fold_kernel.hpp>

#endif

namespace cellar::detail {

/// Advances the state by whole strides at the front of `bytes`, which are removed from it. `copy` also writes them to
/// an address, `copy_past_caches` to one that is aligned to 64 bytes. All need `smallest_crc32_fold` bytes.
struct Crc32Fold {
    using Function = std::uint32_t (*)(std::uint32_t state, std::span<const std::byte>& bytes, std::byte* to);

    bool is_available;
    Function add;
    Function copy;
    Function copy_past_caches;
};

/// One for each set of instructions, the fastest first. The last one, which is always available, leaves all bytes.
inline std::span<const Crc32Fold> crc32_folds() {
    constexpr auto none = [](std::uint32_t state, std::span<const std::byte>&, std::byte*) { return state; };
    static const Crc32Fold folds[] = {
#if defined(__x86_64__) && defined(__GNUC__)
        {Avx512ClmulVector::is_available(), fold_avx512<Crc32Copy::none>, fold_avx512<Crc32Copy::cached>,
         fold_avx512<Crc32Copy::past_caches>},
        {Avx2ClmulVector::is_available(), fold_avx2<Crc32Copy::none>, fold_avx2<Crc32Copy::cached>,
         fold_avx2<Crc32Copy::past_caches>},
        {ClmulVector::is_available(), fold_clmul<Crc32Copy::none>, fold_clmul<Crc32Copy::cached>,
         fold_clmul<Crc32Copy::past_caches>},
#endif
        {true, none, none, none},
    };
    return folds;
}

/// The fastest that is available.
inline const Crc32Fold& fastest_crc32_fold() {
    static const Crc32Fold& fastest = *std::ranges::find_if(crc32_folds(), &Crc32Fold::is_available);
    return fastest;
}

} // namespace cellar::detail
