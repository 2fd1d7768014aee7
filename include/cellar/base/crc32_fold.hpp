// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/crc32_table.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

/// CRC-32 by multiplication without carry: V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using
/// PCLMULQDQ Instruction", Intel 2009. The remainder of A x^n + B is the one of A (x^n mod P) + B. So a block is
/// multiplied, and added to the block that follows n bits later. The last blocks are left to the table.
namespace cellar::detail {

/// x^n mod P as a factor for reflected operands: the lowest power in the highest bit, shifted up by one bit because the
/// product of two reflected numbers comes out one bit too low.
constexpr std::uint64_t crc32_factor(int n) {
    std::uint32_t remainder = 0x80000000; // x^0
    for (; n > 0; --n) remainder = (remainder >> 1) ^ ((remainder & 1) != 0 ? crc32_polynomial : 0);
    return std::uint64_t{remainder} << 1;
}

#if defined(__x86_64__) && defined(__GNUC__)

/// The folds of one processor. `lanes` blocks of 128 bits lie in a vector, and four vectors are folded side by side.
class Crc32Fold {
public:
    /// Advances the state by whole strides at the front of `bytes`, which are removed from it.
    static std::uint32_t add(std::uint32_t state, std::span<const std::byte>& bytes) {
        if (bytes.size() < 2 * wide_stride) return state;
        static const Function fastest = choose();
        return fastest(state, bytes);
    }

    static bool has_narrow() { return static_cast<bool>(__builtin_cpu_supports("pclmul")); }
    static bool has_wide() {
#if defined(_WIN32)
        return false; // g++ for Windows does not align vectors of more than 128 bits on the stack
#else
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq");
#endif
    }

    static std::uint32_t add_none(std::uint32_t state, std::span<const std::byte>&) {
        return state;
    }

    /// With vectors of 128 bits. At least two strides of 64 bytes.
    [[gnu::target("pclmul,sse2")]] static std::uint32_t add_narrow(std::uint32_t state,
                                                                   std::span<const std::byte>& bytes) {
        constexpr long long low = crc32_factor(512 + 32);
        constexpr long long high = crc32_factor(512 - 32);
        const Block factors = {low, high};
        Block sums[4];
        std::memcpy(sums, bytes.data(), sizeof(sums));
        sums[0][0] ^= state;
        const std::byte* from = bytes.data() + narrow_stride;
        const std::byte* const end = bytes.data() + bytes.size() / narrow_stride * narrow_stride;
        for (; from != end; from += narrow_stride) {
            Block next[4];
            std::memcpy(next, from, sizeof(next));
#if !defined(__NVCC__)
#pragma GCC unroll 4
#endif
            for (int k = 0; k < 4; ++k) {
                next[k] ^= __builtin_ia32_pclmulqdq128(sums[k], factors, 0x00);
                sums[k] = next[k] ^ __builtin_ia32_pclmulqdq128(sums[k], factors, 0x11);
            }
        }
        return finish(sums, bytes, end);
    }

    /// With vectors of 512 bits. At least two strides of 256 bytes.
    static std::uint32_t add_wide(std::uint32_t state, std::span<const std::byte>& bytes) {
        return fold_wide<false>(state, bytes, nullptr);
    }

    /// The same, and copies the strides past the caches to `to`, which is aligned to 64 bytes. Does nothing where
    /// `add` does not use these vectors.
    static std::uint32_t add_copy(std::uint32_t state, std::span<const std::byte>& bytes, std::byte* to) {
        static const bool is_wide = has_wide();
        if (!is_wide || bytes.size() < 2 * wide_stride) return state;
        return fold_wide<true>(state, bytes, to);
    }

private:
    using Block = long long __attribute__((vector_size(16)));
    using Blocks = long long __attribute__((vector_size(64)));
    using Target = long long __attribute__((vector_size(64), may_alias));
    using Function = std::uint32_t (*)(std::uint32_t, std::span<const std::byte>&);

    static constexpr std::size_t narrow_stride = 4 * sizeof(Block);
    static constexpr std::size_t wide_stride = 4 * sizeof(Blocks);

    static Function choose() {
        return has_wide() ? add_wide : has_narrow() ? add_narrow : add_none;
    }

    template <bool Copies>
    [[gnu::target("avx512f,vpclmulqdq")]] static std::uint32_t
    fold_wide(std::uint32_t state, std::span<const std::byte>& bytes, [[maybe_unused]] std::byte* to) {
        constexpr long long low = crc32_factor(2048 + 32);
        constexpr long long high = crc32_factor(2048 - 32);
        const Blocks factors = {low, high, low, high, low, high, low, high};
        Blocks sums[4];
        std::memcpy(sums, bytes.data(), sizeof(sums));
        if constexpr (Copies) std::memcpy(to, sums, sizeof(sums));
        sums[0][0] ^= state;
        const std::byte* from = bytes.data() + wide_stride;
        const std::byte* const end = bytes.data() + bytes.size() / wide_stride * wide_stride;
        for (; from != end; from += wide_stride) {
            Blocks next[4];
            std::memcpy(next, from, sizeof(next));
            if constexpr (Copies) to += wide_stride;
#if !defined(__NVCC__)
#pragma GCC unroll 4
#endif
            for (int k = 0; k < 4; ++k) {
#if defined(__clang__)
                if constexpr (Copies) __builtin_nontemporal_store(next[k], reinterpret_cast<Target*>(to) + k);
                next[k] ^= __builtin_ia32_pclmulqdq512(sums[k], factors, 0x00);
                sums[k] = next[k] ^ __builtin_ia32_pclmulqdq512(sums[k], factors, 0x11);
#else
                if constexpr (Copies) __builtin_ia32_movntdq512(reinterpret_cast<Target*>(to) + k, next[k]);
                next[k] ^= __builtin_ia32_vpclmulqdq_v8di(sums[k], factors, 0x00);
                sums[k] = next[k] ^ __builtin_ia32_vpclmulqdq_v8di(sums[k], factors, 0x11);
#endif
            }
        }
        if constexpr (Copies) __builtin_ia32_sfence();
        return finish(sums, bytes, end);
    }

    /// The sums stand for all bytes before `end`: their CRC is the new state.
    template <class Sums>
    static std::uint32_t finish(const Sums& sums, std::span<const std::byte>& bytes, const std::byte* end) {
        std::byte last[sizeof(sums)];
        std::memcpy(last, sums, sizeof(sums));
        bytes = bytes.subspan(static_cast<std::size_t>(end - bytes.data()));
        return add_by_table(0, last);
    }
};

#else

struct Crc32Fold {
    static std::uint32_t add(std::uint32_t state, std::span<const std::byte>&) { return state; }
    static std::uint32_t add_copy(std::uint32_t state, std::span<const std::byte>&, std::byte*) { return state; }
};

#endif

} // namespace cellar::detail
