// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compiled with -mf16c and -mavx2.
#include "conversions.hpp"

#include <immintrin.h>

namespace cellar::bench {
namespace {

__m256i load(const float* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

/// The upper halves of eight words, rounded to nearest even; a NaN stays one.
__m256i rounded(__m256i word) {
    const __m256i upper = _mm256_srli_epi32(word, 16);
    const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(word, odd), _mm256_set1_epi32(0x7fff));
    const __m256i magnitude = _mm256_and_si256(word, _mm256_set1_epi32(0x7fffffff));
    const __m256i is_nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7f800000));
    return _mm256_blendv_epi8(_mm256_srli_epi32(sum, 16), _mm256_or_si256(upper, _mm256_set1_epi32(0x40)), is_nan);
}

} // namespace

void convert_by_hand(const half* from, float* to, std::int64_t n) {
    std::int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
    for (; i < n; ++i) to[i] = _cvtsh_ss(from[i].bits);
}

void convert_by_hand(const float* from, half* to, std::int64_t n) {
    std::int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
    for (; i < n; ++i) to[i].bits = _cvtss_sh(from[i], _MM_FROUND_TO_NEAREST_INT);
}

void convert_by_hand(const bfloat16* from, float* to, std::int64_t n) {
    std::int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m128i shorts = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), _mm256_slli_epi32(_mm256_cvtepu16_epi32(shorts), 16));
    }
    for (; i < n; ++i) to[i] = static_cast<float>(from[i]);
}

void convert_by_hand(const float* from, bfloat16* to, std::int64_t n) {
    std::int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m256i packed = _mm256_packus_epi32(rounded(load(from + i)), rounded(load(from + i + 8)));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), _mm256_permute4x64_epi64(packed, 0b11'01'10'00));
    }
    for (; i < n; ++i) to[i] = static_cast<bfloat16>(from[i]);
}

} // namespace cellar::bench
