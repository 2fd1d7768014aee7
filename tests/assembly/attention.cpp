// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compiled to assembly with one KERNEL, in which check.cmake looks for instructions. If a compiler drops prefetches,
// results are right all the same.
#include <cellar/attention/detail/code_kernels.hpp>

extern const auto kernel = &cellar::detail::KERNEL;
