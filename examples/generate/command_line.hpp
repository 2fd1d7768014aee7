// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <CLI/CLI.hpp>

#include <charconv>
#include <cstdint>
#include <exception>
#include <iostream>
#include <optional>
#include <string>
#include <system_error>

namespace llama {

/// The exit status of a command. With all but `done`, it prints one line to the error stream.
enum ExitCode { done = 0, failed = 1, wrong_usage = 2 };

/// Checks that a flag is a number from 0 to 2^64 - 1, because CLI11 accepts larger ones.
inline std::string unsigned_number(const std::string& text) {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc{} && end == text.data() + text.size()) return {};
    return "'" + text + "', expected a number from 0 to 18446744073709551615";
}

/// The first argument of one dash and several letters, and how CLI11 reads it: -ngl as the flag -n with the value gl.
inline std::string several_letters(int argc, char** argv) {
    const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
    for (int i = 1; i < argc; ++i) {
        const std::string argument = argv[i];
        if (argument.size() > 2 && argument[0] == '-' && is_letter(argument[1]) && is_letter(argument[2]))
            return "; " + argument + " is read as " + argument.substr(0, 2) + ' ' + argument.substr(2);
    }
    return {};
}

/// Reads the flags. Returns the exit status if the program must not go on.
inline std::optional<int> parse(CLI::App& app, int argc, char** argv) {
    try {
        app.parse(argc, argv);
        return std::nullopt;
    } catch (const CLI::Success& success) { // --help
        return app.exit(success);
    } catch (const CLI::ParseError& error) {
        std::string line = error.what();
        for (char& c : line) c = c == '\n' ? ' ' : c;
        line += several_letters(argc, argv);
        std::cerr << app.get_name() << ": " << line << " (--help lists the flags)\n";
        return wrong_usage;
    }
}

/// A whole command. `declare(app, options)` names the flags, `run(options)` does the work. An exception or a failed
/// write to the standard output ends it with an error.
template <class Options, class Run>
int command(const char* name, const char* description, int argc, char** argv, void (*declare)(CLI::App&, Options&),
            Run run) {
    std::cout.exceptions(std::ios::badbit | std::ios::failbit);
    std::cerr.tie(nullptr); // else an error message flushes std::cout, which may throw
    CLI::App app{description, name};
    Options options;
    declare(app, options);
    try {
        const std::optional<int> parsed = parse(app, argc, argv);
        const int code = parsed ? *parsed : run(options);
        std::cout.flush();
        return code;
    } catch (const std::ios::failure&) {
        std::cerr << name << ": cannot write to the standard output\n";
    } catch (const std::exception& error) {
        std::cerr << name << ": " << error.what() << '\n';
    }
    return failed;
}

} // namespace llama
