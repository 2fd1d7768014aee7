// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

/// Marks what may also run on a device. It follows the compiler's own macros, not a library's, so that kernels
/// compile with nvcc and hipcc where no Kokkos is installed.
#if defined(__CUDACC__) || defined(__HIPCC__)
#define CELLAR_FUNCTION __host__ __device__
#else
#define CELLAR_FUNCTION
#endif
