# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

# Warnings for cellar's own tests, examples and benchmarks. Users do not get them.
add_library(cellar_warnings INTERFACE)
target_compile_options(cellar_warnings INTERFACE -Wall -Wextra -Wpedantic -Wconversion -Wshadow)
# Names of files in messages do not begin with the folder of the checkout: ccache finds objects from another one.
if(CMAKE_CXX_COMPILER_LAUNCHER MATCHES "ccache")
    target_compile_options(cellar_warnings INTERFACE "-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=")
endif()
