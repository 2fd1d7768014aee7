// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

namespace folder {

struct Request {
    std::string folder;
    std::string prompt;
    int tokens = 0;  ///< to generate at most
    int context = 0; ///< tokens in memory; 0: prompt and tokens
    std::uint64_t seed = 1;
    double temperature = 0;
};

/// Continues a text with the model of a folder, and writes each token's text at once. Throws `std::runtime_error`.
void generate(const Request& request, std::ostream& out);

} // namespace folder
