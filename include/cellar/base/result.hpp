// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>

#include <optional>
#include <string>
#include <utility>

namespace cellar {

/// Why an operation was refused.
enum class Reason {
    full,           ///< fewer cells are free than the operation needs
    batch_too_long, ///< the batch has more tokens than the limits allow
    cannot_shift,   ///< later tokens would have to change position, and the shift policy is `DisabledShift`
    not_next,       ///< a token does not follow its sequence's last one
    unequal_batch,  ///< the sequences have different numbers of tokens, and `Unequal::refuse` was asked for
    cannot_rewind,  ///< no recurrent state is kept at that position
    cannot_cut,     ///< a recurrent state cannot lose its first tokens or tokens from its middle
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
    case Reason::cannot_rewind:
        return "cannot rewind: no recurrent state is kept at that position";
    case Reason::cannot_cut:
        return "cannot cut: a recurrent state cannot lose its first tokens or tokens from its middle";
    }
    return "unknown reason";
}

/// The answer of an operation that a memory cannot carry out. It is decided before anything changes: the memory is as
/// it was. Compares with a `Reason`.
struct Refusal {
    Reason reason{};
    int member = -1; ///< in a hybrid, the index of the member that refused; -1 elsewhere

    constexpr bool operator==(const Refusal&) const = default;
    friend constexpr bool operator==(const Refusal& refusal, Reason reason) { return refusal.reason == reason; }
};

/// One line for a person.
inline std::string to_string(const Refusal& refusal) {
    if (refusal.member < 0) return to_string(refusal.reason);
    return "member " + std::to_string(refusal.member) + ": " + to_string(refusal.reason);
}

/// A value, or the refusal that explains its absence. The member functions have the names of `std::expected`, which
/// C++20 lacks.
template <class T>
class [[nodiscard]] Result {
public:
    Result(T value) : value_{std::move(value)} {}
    Result(Refusal refusal) : refusal_{refusal} {}
    Result(Reason reason) : refusal_{reason} {}

    bool has_value() const noexcept { return value_.has_value(); }
    explicit operator bool() const noexcept { return has_value(); }

    /// The value. Asking a refused result for it is a violation. A temporary result returns its value by move.
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

    /// The refusal. Asking a result that has a value for it is a violation.
    Refusal error() const {
        CELLAR_EXPECTS(!has_value(), "error() was called on a result that has a value");
        return refusal_;
    }

private:
    void expect_value() const { CELLAR_EXPECTS(has_value(), "a refused result has no value: ", to_string(refusal_)); }

    std::optional<T> value_;
    Refusal refusal_{};
};

/// Success, or the refusal.
template <>
class [[nodiscard]] Result<void> {
public:
    Result() = default;
    Result(Refusal refusal) : refusal_{refusal} {}
    Result(Reason reason) : refusal_{Refusal{reason}} {}

    bool has_value() const noexcept { return !refusal_.has_value(); }
    explicit operator bool() const noexcept { return has_value(); }

    /// The refusal. Asking a result that has none for it is a violation.
    Refusal error() const {
        CELLAR_EXPECTS(!has_value(), "error() was called on a result that was not refused");
        return *refusal_;
    }

private:
    std::optional<Refusal> refusal_;
};

} // namespace cellar
