// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

/// Marks functions that may also run on a device. It depends on the compiler's own macros, not on a library's, so that
/// kernels compile with nvcc and hipcc without Kokkos.
#if defined(__CUDACC__) || defined(__HIPCC__)
#define CELLAR_FUNCTION __host__ __device__
#else
#define CELLAR_FUNCTION
#endif

/// Before a loop of constant length that is to become vector instructions: at -O3, g++ writes out loops of 16 rounds
/// or fewer before it looks at them as vectors, and then makes none.
#if defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC__)
#define CELLAR_VECTOR_LOOP _Pragma("GCC unroll 1")
#else
#define CELLAR_VECTOR_LOOP
#endif
