// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <CLI/CLI.hpp>

#include <exception>
#include <iostream>
#include <optional>
#include <string>

namespace llama {

/// How a command ends; anything but `done` comes with one line on the error stream.
enum ExitCode { done = 0, failed = 1, wrong_usage = 2 };

/// Reads the flags. The result is empty if the program should go on.
inline std::optional<int> parse(CLI::App& app, int argc, char** argv) {
    try {
        app.parse(argc, argv);
        return std::nullopt;
    } catch (const CLI::Success& success) { // --help
        return app.exit(success);
    } catch (const CLI::ParseError& error) {
        std::string line = error.what();
        for (char& c : line) c = c == '\n' ? ' ' : c;
        std::cerr << app.get_name() << ": " << line << " (--help lists the flags)\n";
        return wrong_usage;
    }
}

/// A whole command: `declare(app, options)` names the flags, `run(options)` does the work and may throw.
template <class Options, class Run>
int command(const char* name, const char* description, int argc, char** argv, void (*declare)(CLI::App&, Options&),
            Run run) {
    CLI::App app{description, name};
    Options options;
    declare(app, options);
    if (const auto code = parse(app, argc, argv)) return *code;
    try {
        return run(options);
    } catch (const std::exception& error) {
        std::cerr << name << ": " << error.what() << '\n';
        return failed;
    }
}

} // namespace llama
