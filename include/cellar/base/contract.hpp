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

/// A broken precondition: a mistake in the calling code, unlike a `Refusal`, which is an answer.
struct Violation {
    const char* condition; ///< the source text of what should have held
    std::string message;   ///< what was given and what was expected
    const char* file;
    int line;
};

/// Called for every violation. It may throw (tests do) or end the process; if it returns, `std::abort` follows.
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

// Cold, and the only place where a message is put together: a check that holds costs its comparison alone.
template <class... Parts>
[[noreturn, gnu::cold, gnu::noinline]] void violated(const char* condition, const char* file, int line,
                                                     const Parts&... parts) {
    if (const ViolationHandler handler = violation_handler.load())
        handler(Violation{condition, (std::string{} + ... + text(parts)), file, line});
    std::abort();
}

} // namespace detail

/// Replaces the handler of broken preconditions and returns the previous one. `nullptr`: nothing but `std::abort`.
inline ViolationHandler set_violation_handler(ViolationHandler handler) {
    return detail::violation_handler.exchange(handler);
}

} // namespace cellar

/// Stops in the violation handler unless `condition` holds. The further arguments are the parts of the message (text,
/// integers, ids): they are evaluated only after a failure.
#define CELLAR_EXPECTS(condition, ...)                                                                                 \
    ((condition) ? void() : ::cellar::detail::violated(#condition, __FILE__, __LINE__, __VA_ARGS__))
