// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>

#include <optional>
#include <string_view>
#include <utility>

namespace cellar {

/// An ordinary "no", decided before anything was touched.
enum class Refusal {
    full,           ///< fewer cells are free than the operation needs
    batch_too_long, ///< the batch has more tokens than `Limits::batch`
    cannot_shift,   ///< later positions would have to move, and the shift policy is `NoShift`
    not_next,       ///< a token does not follow on from its sequence's recurrent state
    unequal_batch,  ///< the sequences have different numbers of tokens, and `Unequal::refuse` was asked for
    cannot_rewind,  ///< no recurrent state is kept at that position
    cannot_cut,     ///< a recurrent state cannot lose tokens from its middle
};

/// One line for a person.
constexpr std::string_view to_string(Refusal refusal) {
    switch (refusal) {
    case Refusal::full:
        return "full: fewer cells are free than the operation needs";
    case Refusal::batch_too_long:
        return "batch too long: it has more tokens than Limits::batch";
    case Refusal::cannot_shift:
        return "cannot shift: later keys would have to be turned, and the shift policy is NoShift";
    case Refusal::not_next:
        return "not next: a token does not follow on from its sequence's recurrent state";
    case Refusal::unequal_batch:
        return "unequal batch: the sequences have different numbers of tokens";
    case Refusal::cannot_rewind:
        return "cannot rewind: no recurrent state is kept at that position";
    case Refusal::cannot_cut:
        return "cannot cut: a recurrent state cannot lose tokens from its middle";
    }
    return "unknown refusal";
}

/// A value or the reason why there is none, of a type that `to_string` makes text of. The names are those of `std::expected`, which C++20 lacks.
template <class T, class E = Refusal>
class [[nodiscard]] Result {
public:
    Result(T value) : value_{std::move(value)} {}
    Result(E error) : error_{std::move(error)} {}

    bool has_value() const noexcept { return value_.has_value(); }
    explicit operator bool() const noexcept { return has_value(); }

    /// The value; without one, a violation that names the refusal. A result that nobody keeps hands its value over.
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
    T* operator->() { return &value(); }
    const T* operator->() const { return &value(); }

    /// The reason; with a value, a violation.
    E error() const {
        CELLAR_EXPECTS(!has_value(), "error() was asked of a result that has a value");
        return error_;
    }

private:
    void expect_value() const { CELLAR_EXPECTS(has_value(), "a refused result has no value: ", to_string(error_)); }

    std::optional<T> value_;
    E error_{};
};

/// Done, or the reason why not.
template <class E>
class [[nodiscard]] Result<void, E> {
public:
    Result() = default;
    Result(E error) : error_{std::move(error)} {}

    bool has_value() const noexcept { return !error_.has_value(); }
    explicit operator bool() const noexcept { return has_value(); }

    /// The reason; when it was done, a violation.
    E error() const {
        CELLAR_EXPECTS(!has_value(), "error() was asked of a result that has a value");
        return *error_;
    }

private:
    std::optional<E> error_;
};

/// The answer of a verb that never refuses, for code that is written for all memories.
struct Done {
    static constexpr bool has_value() noexcept { return true; }
    explicit constexpr operator bool() const noexcept { return true; }
};

} // namespace cellar
