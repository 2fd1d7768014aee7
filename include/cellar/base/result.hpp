// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

/// Lets clang warn of a reference into a temporary result.
#if defined(__clang__)
#define CELLAR_LIFETIME_BOUND [[clang::lifetimebound]]
#else
#define CELLAR_LIFETIME_BOUND
#endif

namespace cellar {

/// Why an operation was refused.
enum class Reason {
    full,               ///< fewer cells are free than the operation needs
    batch_too_long,     ///< the batch has more tokens than the limits allow
    request_too_long,   ///< the request has more tokens than the scheduler's context
    cannot_shift,       ///< later tokens would have to change position, and the shift policy is `DisabledShift`
    not_next,           ///< a token does not follow its sequence's last one
    unequal_batch,      ///< the sequences have different numbers of tokens, and `Unequal::refuse` was asked for
    cannot_resume,      ///< the next token would see positions that are not kept
    cannot_rewind,      ///< no recurrent state is kept at that position
    cannot_cut,         ///< a recurrent state cannot lose its first tokens or tokens from its middle
    cannot_branch,      ///< a recurrent state follows one branch of a tree of drafts
    cannot_split,       ///< a snapshot of a window that has moved on, or of a recurrent state, cannot be divided
    cannot_share,       ///< the sequence has tokens of the snapshot at other positions
    no_checkpoints,     ///< the limits have no room for checkpoints
    no_pages,           ///< a sequence's cells do not form pages in the order of its positions
    too_many_snapshots, ///< there are as many snapshots as the limits have room for
    already_passed,     ///< the sequence has come to that position already
    shared_position,    ///< tokens of the sequence share a position, as those of an image do
    not_empty,          ///< the sequence has tokens or inputs, and the operation expects one without
    altered,            ///< some keys of the sequence are not those that its tokens alone would give
};

/// One line for a person.
constexpr const char* to_string(Reason reason) {
    constexpr std::pair<Reason, const char*> texts[] = {
        {Reason::full, "full: fewer cells are free than the operation needs"},
        {Reason::batch_too_long, "batch too long: it has more tokens than the limits allow"},
        {Reason::request_too_long, "request too long: it has more tokens than the scheduler's context"},
        {Reason::cannot_shift,
         "cannot shift: later tokens would have to change position, and the shift policy is DisabledShift"},
        {Reason::not_next, "not next: a token does not follow its sequence's last one"},
        {Reason::unequal_batch, "unequal batch: the sequences have different numbers of tokens"},
        {Reason::cannot_resume, "cannot resume: the next token would see positions that are not kept"},
        {Reason::cannot_rewind, "cannot rewind: no recurrent state is kept at that position"},
        {Reason::cannot_cut, "cannot cut: a recurrent state cannot lose its first tokens or tokens from its middle"},
        {Reason::cannot_branch, "cannot branch: a recurrent state follows one branch of a tree of drafts"},
        {Reason::cannot_split,
         "cannot split: a snapshot of a window that has moved on, or of a recurrent state, cannot be divided"},
        {Reason::cannot_share, "cannot share: the sequence has tokens of the snapshot at other positions"},
        {Reason::too_many_snapshots, "too many snapshots: there are as many as the limits have room for"},
        {Reason::already_passed, "already passed: the sequence has come to that position already"},
        {Reason::shared_position, "shared position: tokens of the sequence share a position, as those of an image do"},
        {Reason::not_empty, "not empty: the sequence has tokens or inputs already"},
        {Reason::altered, "altered: some keys of the sequence are not those that its tokens alone would give"},
        {Reason::no_pages, "no pages: the cells of a sequence do not form pages in the order of its positions"},
        {Reason::no_checkpoints, "no checkpoints: the limits have no room for any"},
    };
    for (const auto& [one, text] : texts)
        if (one == reason) return text;
    return "unknown reason";
}

/// The answer of an operation that a memory cannot carry out. It is decided before anything changes: the memory is as
/// it was. Compares with a `Reason`.
struct Refusal {
    Reason reason{};
    int member = -1;       ///< in a hybrid, the index of the member that refused; -1 elsewhere
    Sequence sequence{-1}; ///< the sequence that it is about, if it is about one; -1 if not
    Position expected{-1}; ///< for `not_next`: the position that its next token must have
    int inner = -1;        ///< the same as `member` within that member, if it is a hybrid, too; -1 if not
    /// What the operation needs, and what there is for it: cells for `full`, tokens for `batch_too_long` and
    /// `request_too_long`, snapshots for `too_many_snapshots`, the most and the fewest tokens of a sequence for
    /// `unequal_batch`. Positions for the following: the one that was given or asked for, and, for `not_next`, the one
    /// that is right; for `cannot_resume` and `cannot_rewind`, the last one up to it where the sequence can go on; for
    /// `already_passed`, `next(s)`; for `altered` and `shared_position`, the first one below it that is altered or
    /// shared. -1 if the reason is not a matter of numbers, or one is not known.
    std::int64_t needed = -1;
    std::int64_t available = -1;

    /// The same reason, about the same. The numbers do not count.
    constexpr bool operator==(const Refusal& other) const {
        return reason == other.reason && member == other.member && inner == other.inner && sequence == other.sequence
               && expected == other.expected;
    }
    friend constexpr bool operator==(const Refusal& refusal, Reason r) { return refusal.reason == r; }
};

namespace detail {

/// What a refusal's line says before `needed` and before `available`.
struct NumberWords {
    const char* needed;
    const char* available;
};
constexpr NumberWords number_words(Reason reason) {
    switch (reason) {
    case Reason::not_next:
        return {", not ", nullptr}; // the position that is right comes before
    case Reason::cannot_resume:
    case Reason::cannot_rewind:
        return {"; asked for position ", ", possible is "};
    case Reason::already_passed:
        return {"; asked for position ", ", next is "};
    case Reason::altered:
        return {"; asked for end ", ", altered from position "};
    case Reason::shared_position:
        return {"; asked for end ", ", shared is position "};
    case Reason::unequal_batch:
        return {"; one has ", ", another has "};
    default:
        return {"; needs ", ", has "};
    }
}

} // namespace detail

/// One line for a person.
[[gnu::cold, gnu::noinline]] inline std::string to_string(const Refusal& refusal) {
    using Part = detail::MessagePart;
    const auto part_if = [](bool condition, Part part) { return condition ? part : Part{""}; };
    const bool of_member = refusal.member >= 0;
    const bool of_sequence = refusal.sequence.value >= 0;
    const bool of_position = refusal.expected.value >= 0;
    const detail::NumberWords words = detail::number_words(refusal.reason);
    const bool of_numbers = refusal.needed >= 0;
    const bool of_both = of_numbers && refusal.available >= 0 && words.available != nullptr;
    return detail::composed({part_if(of_member, "member "), part_if(of_member, refusal.member),
                             part_if(of_member, ": "), to_string(refusal.reason), part_if(of_sequence, "; sequence "),
                             part_if(of_sequence, refusal.sequence), part_if(of_position, " expects position "),
                             part_if(of_position, refusal.expected), part_if(of_numbers, words.needed),
                             part_if(of_numbers, refusal.needed), part_if(of_both, words.available),
                             part_if(of_both, refusal.available)});
}

namespace detail {

/// The value of an operation that returns none.
struct NoValue {};

/// Converts to what f returns, so that an optional or a tuple can hold it without a move.
template <class F>
struct Made {
    F f;
    operator std::invoke_result_t<F&>() { return f(); }
};
template <class F>
Made(F) -> Made<F>; // clang 16 does not deduce it

/// Of the operation that refuses or fails, or else of the caller of this function.
inline Where line_of_failure(Where where = Where::current()) {
    return current_caller.line() != 0 ? current_caller : where;
}

} // namespace detail

/// A value, or the error that explains its absence: a `Refusal` of a memory, a `FileError`, an `mpi::MpiError`. The
/// member functions have the names of `std::expected`, which C++20 lacks. `to_string(error)` is its text. It can be
/// copied if the value can, and be assigned if moving the value throws nothing.
template <class T, class E = Refusal>
class [[nodiscard]] Result {
    static constexpr bool has_type = !std::is_same_v<T, detail::NoValue>; // else it stands for `void`
    static constexpr bool is_refusal = std::is_same_v<E, Refusal>;
    static constexpr bool moves_without_fail = std::is_nothrow_move_constructible_v<T>;
    static_assert(std::is_nothrow_move_constructible_v<E>);

public:
    using value_type = std::conditional_t<has_type, T, void>;
    using error_type = E;

    // Two, because nvcc moves no local variable into a parameter that is taken by value.
    Result(T&& value) : held_value(std::move(value)), has_value_{true} {}
    Result(const T& value) requires(std::is_copy_constructible_v<T>) : held_value(value), has_value_{true} {}
    template <class F>
    Result(detail::Made<F> value) : held_value(value.f()), has_value_{true} {}
    Result(E error) : held_error(std::move(error)), failed_at_{detail::line_of_failure()} {}
    Result(Reason reason) requires(is_refusal) : Result{Refusal{reason}} {}

    Result(const Result& other) requires(std::is_copy_constructible_v<T>) { take(other); }
    Result(Result&& other) noexcept(moves_without_fail) requires(std::is_move_constructible_v<T>) {
        take(std::move(other));
    }
    Result& operator=(const Result& other) requires(moves_without_fail&& std::is_copy_constructible_v<T>) {
        *this = Result{other};
        return *this;
    }
    Result& operator=(Result&& other) noexcept requires(moves_without_fail) {
        if (this == &other) return *this;
        destroy();
        take(std::move(other));
        return *this;
    }
    ~Result() { destroy(); }

    /// False if the operation was refused or failed: then `error()` says why.
    bool has_value() const noexcept { return has_value_; }
    explicit operator bool() const noexcept { return has_value(); }

    /// The value. Asking a refused or failed result for it is a violation, which names the operation's line. That of a
    /// temporary result can be moved from, and lives until the end of the statement.
    T& value() & {
        expect_value();
        return held_value;
    }
    const T& value() const& {
        expect_value();
        return held_value;
    }
    T&& value() && CELLAR_LIFETIME_BOUND {
        expect_value();
        return std::move(held_value);
    }
    T& operator*() & requires(has_type) { return value(); }
    const T& operator*() const& requires(has_type) { return value(); }
    T&& operator*() && CELLAR_LIFETIME_BOUND requires(has_type) { return std::move(*this).value(); }
    T* operator->() & requires(has_type) { return &value(); }
    const T* operator->() const& requires(has_type) { return &value(); }
    /// A value within a temporary result would be gone at the end of the line: a pass that is dropped at once.
    void operator->() && = delete;
    void operator->() const&& = delete;

    /// The error. Asking a result that has none for it is a violation.
    const E& error(Where where = Where::current()) const& {
        expect_error(where);
        return held_error;
    }
    E error(Where where = Where::current()) && {
        expect_error(where);
        return std::move(held_error);
    }

private:
    void expect_value() const {
        if (!has_value()) [[unlikely]]
            say_why_not();
    }
    // Apart, so that asking for a value is inlined as one comparison.
    [[gnu::cold, gnu::noinline]] void say_why_not() const {
        CELLAR_EXPECTS_AT(failed_at_, has_value(), is_refusal ? "a refused" : "a failed",
                          " result has no value: ", to_string(held_error));
    }
    void expect_error(Where where) const {
        CELLAR_EXPECTS_AT(where, !has_value(), "error() was called on a result ",
                          has_type     ? "that has a value"
                          : is_refusal ? "that was not refused"
                                       : "without an error");
    }

    // Neither the value nor the error is there.
    template <class Other>
    void take(Other&& other) {
        if (other.has_value_) {
            std::construct_at(std::addressof(held_value), std::forward<Other>(other).held_value);
        } else {
            std::construct_at(std::addressof(held_error), std::forward<Other>(other).held_error);
        }
        has_value_ = other.has_value_;
        failed_at_ = other.failed_at_;
    }
    void destroy() noexcept { has_value_ ? held_value.~T() : held_error.~E(); }

    // Not a `std::optional`, which takes longer to compile, for each type of value, than the rest of this class.
    union {
        T held_value;
        E held_error;
    };
    bool has_value_ = false;
    Where failed_at_;
};

/// Success, or the error. `value()` is for what cannot fail: a violation if it did.
template <class E>
class [[nodiscard]] Result<void, E> : public Result<detail::NoValue, E> {
public:
    using Result<detail::NoValue, E>::Result;
    Result() : Result<detail::NoValue, E>{detail::NoValue{}} {}
};

} // namespace cellar
