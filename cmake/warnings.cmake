# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

# The warnings under which our own tests, examples and benchmarks compile; users get none of it.
add_library(cellar_warnings INTERFACE)
target_compile_options(cellar_warnings INTERFACE -Wall -Wextra -Wpedantic -Wconversion -Wshadow)
