// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>

#include <concepts>
#include <optional>
#include <source_location>
#include <string>
#include <type_traits>
#include <utility>

namespace cellar {

/// Why an operation was refused.
enum class Reason {
    full,               ///< fewer cells are free than the operation needs
    batch_too_long,     ///< the batch has more tokens than the limits allow
    cannot_shift,       ///< later tokens would have to change position, and the shift policy is `DisabledShift`
    not_next,           ///< a token does not follow its sequence's last one
    unequal_batch,      ///< the sequences have different numbers of tokens, and `Unequal::refuse` was asked for
    cannot_resume,      ///< the next token would see positions that are not kept
    cannot_rewind,      ///< no recurrent state is kept at that position
    cannot_cut,         ///< a recurrent state cannot lose its first tokens or tokens from its middle
    cannot_split,       ///< a snapshot of a window that has moved on, or of a recurrent state, cannot be divided
    cannot_share,       ///< the sequence has tokens of the snapshot at other positions
    no_checkpoints,     ///< the limits have no room for checkpoints
    no_pages,           ///< a sequence's cells do not form pages in the order of its positions
    too_many_snapshots, ///< there are as many snapshots as the limits have room for
};

/// One line for a person.
constexpr const char* to_string(Reason reason) {
    switch (reason) {
    case Reason::full:
        return "full: fewer cells are free than the operation needs";
    case Reason::batch_too_long:
        return "batch too long: it has more tokens than the limits allow";
    case Reason::cannot_shift:
        return "cannot shift: later tokens would have to change position, and the shift policy is DisabledShift";
    case Reason::not_next:
        return "not next: a token does not follow its sequence's last one";
    case Reason::unequal_batch:
        return "unequal batch: the sequences have different numbers of tokens";
    case Reason::cannot_resume:
        return "cannot resume: the next token would see positions that are not kept";
    case Reason::cannot_rewind:
        return "cannot rewind: no recurrent state is kept at that position";
    case Reason::cannot_cut:
        return "cannot cut: a recurrent state cannot lose its first tokens or tokens from its middle";
    case Reason::cannot_split:
        return "cannot split: a snapshot of a window that has moved on, or of a recurrent state, cannot be divided";
    case Reason::cannot_share:
        return "cannot share: the sequence has tokens of the snapshot at other positions";
    case Reason::too_many_snapshots:
        return "too many snapshots: there are as many as the limits have room for";
    case Reason::no_pages:
        return "no pages: the cells of a sequence do not form pages in the order of its positions";
    case Reason::no_checkpoints:
        return "no checkpoints: the limits have no room for any";
    }
    return "unknown reason";
}

/// The answer of an operation that a memory cannot carry out. It is decided before anything changes: the memory is as
/// it was. Compares with a `Reason`.
struct Refusal {
    Reason reason{};
    int member = -1;       ///< in a hybrid, the index of the member that refused; -1 elsewhere
    Sequence sequence{-1}; ///< the sequence that it is about, if it is about one; -1 if not
    Position expected{-1}; ///< for `not_next`: the position that its next token must have

    constexpr bool operator==(const Refusal&) const = default;
    friend constexpr bool operator==(const Refusal& refusal, Reason r) { return refusal.reason == r; }
};

/// One line for a person.
[[gnu::cold, gnu::noinline]] inline std::string to_string(const Refusal& refusal) {
    using Part = detail::MessagePart;
    const auto part_if = [](bool condition, Part part) { return condition ? part : Part{""}; };
    const bool of_member = refusal.member >= 0;
    const bool of_sequence = refusal.sequence.value >= 0;
    const bool of_position = refusal.expected.value >= 0;
    return detail::composed({part_if(of_member, "member "), part_if(of_member, refusal.member),
                             part_if(of_member, ": "), to_string(refusal.reason), part_if(of_sequence, "; sequence "),
                             part_if(of_sequence, refusal.sequence), part_if(of_position, " expects position "),
                             part_if(of_position, refusal.expected)});
}

namespace detail {

/// Converts to what f returns, so that an optional or a tuple can hold it without a move.
template <class F>
struct Made {
    F f;
    operator std::invoke_result_t<F&>() { return f(); }
};
template <class F>
Made(F) -> Made<F>; // clang 16 does not deduce it

/// Of the operation that refuses, or else of the caller of this function.
inline std::source_location line_of_refusal(const std::source_location& where = std::source_location::current()) {
    return current_caller.line() != 0 ? current_caller : where;
}

} // namespace detail

/// A value, or the refusal that explains its absence. The member functions have the names of `std::expected`, which
/// C++20 lacks.
template <class T>
class [[nodiscard]] Result {
public:
    // Two, because nvcc moves no local variable into a parameter that is taken by value.
    Result(T&& value) : value_{std::move(value)} {}
    Result(const T& value) requires(std::copy_constructible<T>) : value_{value} {}
    template <class F>
    Result(detail::Made<F> value) : value_{std::in_place, std::move(value)} {}
    Result(Refusal refusal) : refusal_{refusal}, refused_at_{detail::line_of_refusal()} {}
    Result(Reason reason) : Result{Refusal{reason}} {}

    bool has_value() const noexcept { return value_.has_value(); }
    explicit operator bool() const noexcept { return has_value(); }

    /// The value. Asking a refused result for it is a violation, which names the operation's line. A temporary result
    /// returns its value by move.
    T& value() & {
        expect_value();
        return *value_;
    }
    const T& value() const& {
        expect_value();
        return *value_;
    }
    T value() && {
        expect_value();
        return std::move(*value_);
    }
    T& operator*() & { return value(); }
    const T& operator*() const& { return value(); }
    T operator*() && { return std::move(*this).value(); }
    T* operator->() & { return &value(); }
    const T* operator->() const& { return &value(); }
    /// A value within a temporary result would be gone at the end of the line: a pass that is dropped at once.
    void operator->() && = delete;
    void operator->() const&& = delete;

    /// The refusal. Asking a result that has a value for it is a violation.
    Refusal error(const std::source_location& where = std::source_location::current()) const {
        CELLAR_EXPECTS_AT(where, !has_value(), "error() was called on a result that has a value");
        return refusal_;
    }

private:
    void expect_value() const {
        CELLAR_EXPECTS_AT(refused_at_, has_value(), "a refused result has no value: ", to_string(refusal_));
    }

    std::optional<T> value_;
    Refusal refusal_{};
    std::source_location refused_at_;
};

/// Success, or the refusal.
template <>
class [[nodiscard]] Result<void> {
public:
    Result() = default;
    Result(Refusal refusal) : refusal_{refusal}, refused_at_{detail::line_of_refusal()} {}
    Result(Reason reason) : Result{Refusal{reason}} {}

    bool has_value() const noexcept { return !refusal_.has_value(); }
    explicit operator bool() const noexcept { return has_value(); }

    /// For what cannot be refused: a violation if it was, which names the operation's line.
    void value() const {
        CELLAR_EXPECTS_AT(refused_at_, has_value(), "a refused result has no value: ", to_string(*refusal_));
    }

    /// The refusal. Asking a result that has none for it is a violation.
    Refusal error(const std::source_location& where = std::source_location::current()) const {
        CELLAR_EXPECTS_AT(where, !has_value(), "error() was called on a result that was not refused");
        return *refusal_;
    }

private:
    std::optional<Refusal> refusal_;
    std::source_location refused_at_;
};

} // namespace cellar
