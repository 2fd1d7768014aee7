// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>

#include <atomic>
#include <concepts>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace cellar {

/// A broken precondition: a mistake in the calling code. (A `Refusal`, in contrast, is an answer that correct programs
/// get, too.)
struct Violation {
    const char* condition; ///< the source text of the condition that did not hold
    std::string message;   ///< what was given and what was expected
    const char* file;
    int line;
};

/// Called for every violation. It may throw or end the process; if it returns, `std::abort` is called.
using ViolationHandler = void (*)(const Violation&);

namespace detail {

inline void print_violation(const Violation& v) {
    std::fprintf(stderr, "cellar: %s\n  expected %s at %s:%d\n", v.message.c_str(), v.condition, v.file, v.line);
}

inline std::atomic<ViolationHandler> violation_handler{print_violation};

inline std::string text(std::string_view part) {
    return std::string{part};
}
inline std::string text(std::integral auto part) {
    return std::to_string(part);
}
inline std::string text(Position part) {
    return std::to_string(part.value);
}
inline std::string text(Sequence part) {
    return std::to_string(part.value);
}

// The only place that composes a message, and cold: a check that holds costs only its comparison.
template <class... Parts>
[[noreturn, gnu::cold, gnu::noinline]] void violated(const char* condition, const char* file, int line,
                                                     const Parts&... parts) {
    if (const ViolationHandler handler = violation_handler.load())
        handler(Violation{condition, (std::string{} + ... + text(parts)), file, line});
    std::abort();
}

} // namespace detail

/// Replaces the handler of violations and returns the previous one. With `nullptr`, a violation only calls
/// `std::abort`.
inline ViolationHandler set_violation_handler(ViolationHandler handler) {
    return detail::violation_handler.exchange(handler);
}

} // namespace cellar

/// Calls the violation handler unless `condition` holds. The other arguments (text, integers, ids) make up the message;
/// they are evaluated only if it does not hold.
#define CELLAR_EXPECTS(condition, ...)                                                                                 \
    ((condition) ? void() : ::cellar::detail::violated(#condition, __FILE__, __LINE__, __VA_ARGS__))
