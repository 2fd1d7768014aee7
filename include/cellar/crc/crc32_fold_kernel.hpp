// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The folds of CRC-32 for one set of instructions. Included once for each, by crc32_fold.hpp, which defines
//   CELLAR_FOLD: the function's name,
//   CELLAR_VECTOR: the vector's type,
//   CELLAR_TARGET: the instructions.
// A template cannot do this: an attribute cannot depend on its arguments. Without these macros, which it undefines at
// its end, the file is empty.
#ifdef CELLAR_FOLD

namespace cellar::detail {

// Advances the state by whole strides at the front of `bytes`, at least two, and removes them from it. `Copy` says how
// they are copied to `to`. Past the caches, `to` is aligned to 64 bytes.
template <Crc32Copy Copy>
[[gnu::target(CELLAR_TARGET)]] inline std::uint32_t CELLAR_FOLD(std::uint32_t state, std::span<const std::byte>& bytes,
                                                                [[maybe_unused]] std::byte* to) {
    using Vector = CELLAR_VECTOR;
    using Blocks = Vector::Blocks;
    using Target [[gnu::may_alias]] = Blocks;
    constexpr int n = Vector::side_by_side;
    constexpr std::size_t stride = n * sizeof(Blocks);
    static_assert(2 * stride <= smallest_crc32_fold);
    constexpr int bits = static_cast<int>(stride) * 8;
    constexpr auto low = static_cast<long long>(crc32_factor(bits + 32));
    constexpr auto high = static_cast<long long>(crc32_factor(bits - 32));
    Blocks factors;
    for (std::size_t lane = 0; lane < sizeof(Blocks) / sizeof(low); ++lane) factors[lane] = lane % 2 == 0 ? low : high;
    Blocks sums[n];
    std::memcpy(sums, bytes.data(), stride);
    if constexpr (Copy != Crc32Copy::none) std::memcpy(to, bytes.data(), stride);
    sums[0][0] ^= state;
    const std::byte* const end = bytes.data() + bytes.size() / stride * stride;
    for (const std::byte* from = bytes.data() + stride; from != end; from += stride) {
        if constexpr (Copy != Crc32Copy::none) to += stride;
#if !defined(__NVCC__)
#pragma GCC unroll 8
#endif
        for (int k = 0; k < n; ++k) {
            Blocks next;
            std::memcpy(&next, from + static_cast<std::size_t>(k) * sizeof(Blocks), sizeof(Blocks));
            if constexpr (Copy == Crc32Copy::cached) {
                std::memcpy(to + static_cast<std::size_t>(k) * sizeof(Blocks), &next, sizeof(Blocks));
            } else if constexpr (Copy == Crc32Copy::past_caches) {
                Vector::stream(reinterpret_cast<Target*>(to) + k, next);
            }
            sums[k] = next ^ Vector::template multiply<0x00>(sums[k], factors)
                      ^ Vector::template multiply<0x11>(sums[k], factors);
        }
    }
    if constexpr (Copy == Crc32Copy::past_caches) __builtin_ia32_sfence();
    bytes = bytes.subspan(static_cast<std::size_t>(end - bytes.data()));
    return add_by_table(0, std::as_bytes(std::span{sums})); // the sums stand for all bytes before `end`
}

} // namespace cellar::detail

#undef CELLAR_FOLD
#undef CELLAR_VECTOR
#undef CELLAR_TARGET

#endif
