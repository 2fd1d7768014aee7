// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>

#include <optional>
#include <source_location>
#include <type_traits>
#include <utility>

namespace cellar {

/// A value, or the error that explains its absence: `FileResult` for files, `mpi::MpiResult` for other processes. The
/// member functions have the names of `std::expected`. `E` has a `message` of one line.
template <class T, class E>
class [[nodiscard]] Outcome {
public:
    Outcome(T&& value) : value_{std::move(value)} {}
    Outcome(const T& value) requires(std::is_copy_constructible_v<T>) : value_{value} {}
    Outcome(E error) : error_{std::move(error)} {}

    bool has_value() const noexcept { return value_.has_value(); }
    explicit operator bool() const noexcept { return has_value(); }

    /// The value. Asking a failed result for it is a violation. A temporary result returns its value by move.
    T& value(const std::source_location& where = std::source_location::current()) & {
        expect_value(where);
        return *value_;
    }
    const T& value(const std::source_location& where = std::source_location::current()) const& {
        expect_value(where);
        return *value_;
    }
    T value(const std::source_location& where = std::source_location::current()) && {
        expect_value(where);
        return std::move(*value_);
    }
    T& operator*() & { return value(); }
    const T& operator*() const& { return value(); }
    T operator*() && { return std::move(*this).value(); }
    T* operator->() & { return &value(); }
    const T* operator->() const& { return &value(); }
    void operator->() && = delete;
    void operator->() const&& = delete;

    /// The error. Asking a result that has a value for it is a violation.
    const E& error(const std::source_location& where = std::source_location::current()) const& {
        CELLAR_EXPECTS_AT(where, !has_value(), "error() was called on a result that has a value");
        return error_;
    }
    E error(const std::source_location& where = std::source_location::current()) && {
        CELLAR_EXPECTS_AT(where, !has_value(), "error() was called on a result that has a value");
        return std::move(error_);
    }

private:
    void expect_value(const std::source_location& where) const {
        CELLAR_EXPECTS_AT(where, has_value(), "a failed result has no value: ", error_.message);
    }

    std::optional<T> value_;
    E error_;
};

/// Success, or the error.
template <class E>
class [[nodiscard]] Outcome<void, E> {
public:
    Outcome() = default;
    Outcome(E error) : error_{std::move(error)} {}

    bool has_value() const noexcept { return !error_.has_value(); }
    explicit operator bool() const noexcept { return has_value(); }

    /// The error. Asking a result that has none for it is a violation.
    const E& error(const std::source_location& where = std::source_location::current()) const& {
        CELLAR_EXPECTS_AT(where, !has_value(), "error() was called on a result without an error");
        return *error_;
    }
    E error(const std::source_location& where = std::source_location::current()) && {
        CELLAR_EXPECTS_AT(where, !has_value(), "error() was called on a result without an error");
        return *std::move(error_);
    }

private:
    std::optional<E> error_;
};

} // namespace cellar
