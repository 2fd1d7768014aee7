// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>

namespace cellar {

/// A place in the calling code, for messages of violations. Functions with checks take it last, and fill it in
/// themselves: `Where where = Where::current()`.
using Where = std::source_location;

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
inline thread_local constinit Where current_caller{};

/// Stands at the beginning of public functions: violations that it or anything below it finds name the caller's line.
class Caller {
public:
    explicit Caller(Where where) noexcept : outermost_{current_caller.line() == 0} {
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

/// One of the texts, integers and ids that make up a message. A text must live until the message is composed. Small,
/// because every check builds a list of them.
class MessagePart {
public:
    MessagePart(std::string_view text) : as_text{text.data()}, size_{static_cast<std::int64_t>(text.size())} {}
    MessagePart(const char* text) : as_text{text}, size_{terminated_text} {}
    MessagePart(const std::string& text) : as_text{text.data()}, size_{static_cast<std::int64_t>(text.size())} {}
    MessagePart(std::signed_integral auto number) : as_signed{number}, size_{signed_number} {}
    MessagePart(std::unsigned_integral auto number) : as_unsigned{number}, size_{unsigned_number} {}
    MessagePart(Position id) : MessagePart{id.value} {}
    MessagePart(Sequence id) : MessagePart{id.value} {}

    /// The text; that of a number is written to `digits`.
    std::string_view text(char (&digits)[24]) const {
        if (size_ >= 0) return {as_text, static_cast<std::size_t>(size_)};
        if (size_ == terminated_text) return as_text;
        const int size = size_ == signed_number ? std::snprintf(digits, sizeof(digits), "%lld", as_signed)
                                                : std::snprintf(digits, sizeof(digits), "%llu", as_unsigned);
        return {digits, static_cast<std::size_t>(size)};
    }

private:
    static constexpr std::int64_t signed_number = -1;
    static constexpr std::int64_t unsigned_number = -2;
    static constexpr std::int64_t terminated_text = -3; // measured when the message is composed

    union {
        const char* as_text;
        long long as_signed;
        unsigned long long as_unsigned;
    };
    std::int64_t size_; // of the text, or what else it is
};

/// Also for texts that are not messages of violations.
[[gnu::cold, gnu::noinline]] inline std::string composed(std::initializer_list<MessagePart> parts) {
    char digits[24];
    std::size_t size = 0;
    for (const MessagePart& part : parts) size += part.text(digits).size();
    std::string message(size, ' '); // at its full length, because growing one takes longer to compile
    char* end = message.data();
    for (const MessagePart& part : parts) {
        const std::string_view text = part.text(digits);
        end += text.copy(end, text.size());
    }
    return message;
}

// The only place that composes a message, and cold: a check that holds costs only its comparison. It is no template,
// because one instance for each message took a quarter of the time that it takes to compile a cache.
[[noreturn, gnu::cold, gnu::noinline]] inline void violated(const char* condition, Where check,
                                                            std::initializer_list<MessagePart> parts) {
    const Where where = current_caller.line() != 0 ? current_caller : check;
    current_caller = {}; // a handler may throw past the caller's scope, and may call cellar itself
    std::string message = composed(parts);
    if (const ViolationHandler handler = violation_handler.load())
        handler(Violation{condition, std::move(message), where.file_name(), static_cast<int>(where.line())});
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
#define CELLAR_EXPECTS(condition, ...) CELLAR_EXPECTS_AT(::cellar::Where::current(), condition, __VA_ARGS__)

/// The same, for functions that know their caller's position in `where`. (nvcc 13 garbles some lists that have no type,
/// and refuses a constant condition in `?:`.)
#define CELLAR_EXPECTS_AT(where, condition, ...)                                                                       \
    static_cast<void>((condition)                                                                                      \
                      || (::cellar::detail::violated(                                                                  \
                              #condition, where, std::initializer_list<::cellar::detail::MessagePart>{__VA_ARGS__}),   \
                          false))
