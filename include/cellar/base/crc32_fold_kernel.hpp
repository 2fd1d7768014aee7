// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The folds of CRC-32 for one set of instructions. Included once for each, by crc32_fold.hpp, which defines
//   CELLAR_FOLD: the function's name,
//   CELLAR_VECTOR: the vector's type,
//   CELLAR_TARGET: the instructions.
// A template cannot do this: an attribute cannot depend on its arguments. Without these macros the file is empty.
#ifdef CELLAR_FOLD

namespace cellar::detail {

// Advances the state by whole strides at the front of `bytes`, at least two, which are removed from it. Copies: also
// writes them past the caches to `to`, which is aligned to 64 bytes.
template <bool Copies>
[[gnu::target(CELLAR_TARGET)]] inline std::uint32_t CELLAR_FOLD(std::uint32_t state, std::span<const std::byte>& bytes,
                                                                [[maybe_unused]] std::byte* to) {
    using Vector = CELLAR_VECTOR;
    using Blocks = Vector::Blocks;
    constexpr int n = Vector::side_by_side;
    constexpr std::size_t stride = n * sizeof(Blocks);
    constexpr int bits = static_cast<int>(stride) * 8;
    constexpr auto lanes = static_cast<int>(sizeof(Blocks) / sizeof(long long));
    constexpr auto low = static_cast<long long>(crc32_factor(bits + 32));
    constexpr auto high = static_cast<long long>(crc32_factor(bits - 32));
    Blocks factors;
    for (int lane = 0; lane < lanes; ++lane) factors[lane] = lane % 2 == 0 ? low : high;
    Blocks sums[n];
    std::memcpy(sums, bytes.data(), stride);
    if constexpr (Copies) std::memcpy(to, bytes.data(), stride);
    sums[0][0] ^= state;
    const std::byte* from = bytes.data() + stride;
    const std::byte* const end = bytes.data() + bytes.size() / stride * stride;
    for (; from != end; from += stride) {
        Blocks next[n];
        std::memcpy(next, from, stride);
        if constexpr (Copies) to += stride;
#if !defined(__NVCC__)
#pragma GCC unroll 8
#endif
        for (int k = 0; k < n; ++k) {
            if constexpr (Copies) Vector::stream(reinterpret_cast<typename Vector::Target*>(to) + k, next[k]);
            sums[k] = next[k] ^ Vector::multiply_low(sums[k], factors) ^ Vector::multiply_high(sums[k], factors);
        }
    }
    if constexpr (Copies) __builtin_ia32_sfence();
    bytes = bytes.subspan(static_cast<std::size_t>(end - bytes.data()));
    // The sums stand for all bytes before `end`: their CRC is the new state.
    std::byte last[stride];
    std::memcpy(last, sums, stride);
    return add_by_table(0, last);
}

} // namespace cellar::detail

#endif
