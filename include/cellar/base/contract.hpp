// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>

#include <atomic>
#include <concepts>
#include <cstdio>
#include <cstdlib>
#include <source_location>
#include <string>
#include <string_view>

namespace cellar {

/// A broken precondition: a mistake in the calling code. (A `Refusal`, in contrast, is an answer that correct programs
/// get, too.)
struct Violation {
    const char* condition; ///< the source text of the condition that did not hold
    std::string message;   ///< what was given and what was expected
    const char* file;      ///< where the calling code called cellar
    int line;
};

/// Called for every violation. It may throw or end the process; if it returns, `std::abort` is called. A violation
/// found by a destructor, or by another function that is noexcept, ends the process even if the handler throws.
using ViolationHandler = void (*)(const Violation&);

namespace detail {

/// Where the calling code called the public function that runs now; line 0 outside of one.
inline thread_local constinit std::source_location current_caller{};

/// Stands at the beginning of public functions: violations that it or anything below it finds name the caller's line.
class Caller {
public:
    explicit Caller(const std::source_location& where) noexcept : outermost_{current_caller.line() == 0} {
        if (outermost_) current_caller = where;
    }
    ~Caller() {
        if (outermost_) current_caller = {};
    }
    Caller(const Caller&) = delete;
    Caller& operator=(const Caller&) = delete;

private:
    bool outermost_;
};

inline void print_violation(const Violation& v) {
    std::fprintf(stderr, "%s:%d: cellar: %s\n  (expected %s)\n", v.file, v.line, v.message.c_str(), v.condition);
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
[[noreturn, gnu::cold, gnu::noinline]] void violated(const char* condition, const std::source_location& check,
                                                     const Parts&... parts) {
    const std::source_location where = current_caller.line() != 0 ? current_caller : check;
    current_caller = {}; // a handler may throw past the caller's scope, and may call cellar itself
    if (const ViolationHandler handler = violation_handler.load())
        handler(Violation{condition, (std::string{} + ... + text(parts)), where.file_name(),
                          static_cast<int>(where.line())});
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
#define CELLAR_EXPECTS(condition, ...) CELLAR_EXPECTS_AT(std::source_location::current(), condition, __VA_ARGS__)

/// The same, for functions that know their caller's position in `where`.
#define CELLAR_EXPECTS_AT(where, condition, ...)                                                                       \
    ((condition) ? void() : ::cellar::detail::violated(#condition, where, __VA_ARGS__))
