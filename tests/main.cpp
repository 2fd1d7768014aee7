// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The precompiled header has doctest without its implementation, so WITH_MAIN alone would come too late.
#define DOCTEST_CONFIG_IMPLEMENT
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
