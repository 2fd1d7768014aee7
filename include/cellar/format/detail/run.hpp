// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/simd/vector.hpp>

#include <cstddef>

namespace cellar::detail {

/// Attributes of a lambda that such loops call: without them it would be compiled for every processor.
#define CELLAR_ALWAYS_INLINE __attribute__((always_inline))

template <class Loops, class... Arguments>
CELLAR_SIMD_FUNCTION void run_with_vectors(Arguments... arguments) {
    Loops::run(arguments...);
}

#ifdef CELLAR_HAS_X86_VECTORS
template <class Loops, class... Arguments>
[[CELLAR_AVX512]] void run_with_wide_vectors(Arguments... arguments) {
    Loops::run(arguments...);
}
#endif

/// Calls Loops::run, which is always inlined: compiled for the vector instructions of the processor if it has them,
/// else for those that every processor has. The loops in it must be of constant length, so that compilers vectorise
/// them at -O2, too, and must not write where they read.
template <class Loops, class... Arguments>
void run(Arguments... arguments) {
#ifdef CELLAR_HAS_X86_VECTORS
    if (Avx512Vector::is_available()) return run_with_wide_vectors<Loops>(arguments...);
#endif
    if constexpr (simd::computes) {
        if (simd::is_available()) return run_with_vectors<Loops>(arguments...);
    }
    Loops::run(arguments...);
}

/// Calls chunk<N>(i), which must be always inlined, for elements [i, i + N) of n: 32 of them, or one.
template <class Chunk>
[[gnu::always_inline]] inline void for_each_chunk(std::ptrdiff_t n, const Chunk& chunk) {
    const std::ptrdiff_t whole = n - n % 32;
    for (std::ptrdiff_t i = 0; i < whole; i += 32) chunk.template operator()<32>(i);
    for (std::ptrdiff_t i = whole; i < n; ++i) chunk.template operator()<1>(i);
}

} // namespace cellar::detail
