# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

# Warnings for cellar's own tests, examples and benchmarks. Users do not get them.
add_library(cellar_warnings INTERFACE)
target_compile_options(cellar_warnings INTERFACE -Wall -Wextra -Wpedantic -Wconversion -Wshadow)
