// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "prompt.hpp"

#include <exception>
#include <iostream>
#include <string>
#include <unistd.h>

namespace chat {

void read_lines(Commands& commands) {
    const bool interactive = isatty(STDIN_FILENO) != 0;
    std::string line;
    while (true) {
        if (interactive) std::cout << commands.current() << "> " << std::flush;
        if (!std::getline(std::cin, line)) {
            if (interactive) std::cout << '\n';
            return;
        }
        try {
            if (!commands.run(line)) return;
        } catch (const std::ios::failure&) {
            throw;
        } catch (const std::exception& error) {
            std::cout.flush();
            std::cerr << "error: " << error.what() << '\n';
        }
    }
}

} // namespace chat
