// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/element/element.hpp>

#include <cstdint>

/// The loops of a program that is compiled for a processor with F16C and AVX2. Without such a compiler or processor,
/// there are none.
namespace cellar::bench {

#if defined(CELLAR_BENCH_BY_HAND)
inline constexpr bool has_conversions_by_hand = true;
#else
inline constexpr bool has_conversions_by_hand = false;
#endif

void convert_by_hand(const half* from, float* to, std::int64_t n);
void convert_by_hand(const float* from, half* to, std::int64_t n);
void convert_by_hand(const bfloat16* from, float* to, std::int64_t n);
void convert_by_hand(const float* from, bfloat16* to, std::int64_t n);

} // namespace cellar::bench
