// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

/// Marks functions that may also run on a device. It depends on the compiler's own macros, not on a library's, so that
/// kernels compile with nvcc and hipcc without Kokkos.
#if defined(__CUDACC__) || defined(__HIPCC__)
#define CELLAR_FUNCTION __host__ __device__
#else
#define CELLAR_FUNCTION
#endif
