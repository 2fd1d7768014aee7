// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cstdio>
#include <cstdlib>
#include <source_location>

/// Ends the program with an error if the condition does not hold.
inline void expect(bool holds, std::source_location where = std::source_location::current()) {
    if (holds) return;
    std::fprintf(stderr, "%s:%u: the condition does not hold\n", where.file_name(),
                 static_cast<unsigned>(where.line()));
    std::exit(1);
}
