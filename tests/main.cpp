// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The precompiled header includes doctest without its implementation, so WITH_MAIN alone would have no effect.
#define DOCTEST_CONFIG_IMPLEMENT
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
