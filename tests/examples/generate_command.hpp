// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "commands.hpp"

#include <string>

inline Outcome generate(const std::string& flags) {
    return run(CELLAR_GENERATE " " + flags);
}
