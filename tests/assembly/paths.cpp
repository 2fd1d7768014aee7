// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compiled to assembly, in which check.cmake looks for instructions. Each occurs in one function alone.
#include <cellar/backend/host/transpose.hpp>
#include <cellar/element/convert.hpp>
#include <cellar/simd/lines.hpp>

#include <cstdint>
#include <utility>

using cellar::bfloat16;
using cellar::half;

extern "C" {

void half_to_float(const half* from, float* to, std::int64_t n) {
    cellar::detail::convert_run(from, to, n);
}
void float_to_half(const float* from, half* to, std::int64_t n) {
    cellar::detail::convert_run(from, to, n);
}
void bfloat16_to_float(const bfloat16* from, float* to, std::int64_t n) {
    cellar::detail::convert_run(from, to, n);
}
void float_to_bfloat16(const float* from, bfloat16* to, std::int64_t n) {
    cellar::detail::convert_run(from, to, n);
}
float single_half(half value) {
    return static_cast<float>(value);
}
void stream(const float* from, float* to, std::int64_t n) {
    cellar::detail::stream_run(from, to, n);
    cellar::detail::streamed();
}
void prefetch_second(const float* first) {
    cellar::detail::prefetch<cellar::detail::CacheLevel::second>(first, 1);
}
void prefetch_first(const float* first) {
    cellar::detail::prefetch<cellar::detail::CacheLevel::first>(first, 1);
}
void transpose(const half* from, half* to) {
    cellar::detail::transpose_tile(from, 8, to, 8, std::make_index_sequence<8>{});
}

} // extern "C"
