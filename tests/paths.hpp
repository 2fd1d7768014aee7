// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <string>

namespace cellar_test {

// Functions and not macros, so that only paths.cpp depends on where the checkout is: ccache finds the other sources
// again in another one.
std::string source_dir();
/// Models and data next to the checkout. Tests that need them are skipped if they are missing.
std::string shared_dir();

} // namespace cellar_test
