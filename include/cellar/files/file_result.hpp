// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/result.hpp>

#include <optional>
#include <source_location>
#include <string>
#include <type_traits>
#include <utility>

namespace cellar {

/// Why a file was not written, or is refused.
enum class FileReason {
    cannot_open,  ///< the operating system does not open the file, or it is not a regular file
    cannot_read,  ///< reading failed
    cannot_write, ///< writing, syncing or renaming failed: the disk is full, for example
    truncated,    ///< the file ends before its contents do
    foreign,      ///< the file was not written by cellar
    newer,        ///< a newer version of cellar wrote the file, in a format that this one does not know
    malformed,    ///< the header contradicts itself or the format
    altered,      ///< a checksum does not match: the bytes are not the ones that were written
    unsuitable,   ///< the file is whole, but it is not what the caller needs
    refused,      ///< the memory refuses: `FileError::refusal` says why
};

/// One line for a person.
constexpr const char* to_string(FileReason reason) {
    switch (reason) {
    case FileReason::cannot_open:
        return "cannot open";
    case FileReason::cannot_read:
        return "cannot read";
    case FileReason::cannot_write:
        return "cannot write";
    case FileReason::truncated:
        return "truncated";
    case FileReason::foreign:
        return "not a file of cellar";
    case FileReason::newer:
        return "written by a newer version of cellar";
    case FileReason::malformed:
        return "malformed";
    case FileReason::altered:
        return "altered";
    case FileReason::unsuitable:
        return "unsuitable";
    case FileReason::refused:
        return "refused by the memory";
    }
    return "unknown reason";
}

/// Why an operation on a file failed. Compares with a `FileReason`, and with the `Reason` of a memory.
struct FileError {
    FileReason reason{};
    std::string message;  ///< one line: the path, what was found, and what was expected
    Refusal refusal = {}; ///< for `refused`

    friend bool operator==(const FileError& error, FileReason r) { return error.reason == r; }
    friend bool operator==(const FileError& error, Reason r) {
        return error.reason == FileReason::refused && error.refusal == r;
    }
};

/// One line for a person.
inline const std::string& to_string(const FileError& error) {
    return error.message;
}

/// A value, or the error that explains its absence. The member functions have the names of `std::expected`.
template <class T>
class [[nodiscard]] FileResult {
public:
    FileResult(T&& value) : value_{std::move(value)} {}
    FileResult(const T& value) requires(std::is_copy_constructible_v<T>) : value_{value} {}
    FileResult(FileError error) : error_{std::move(error)} {}

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
    const FileError& error(const std::source_location& where = std::source_location::current()) const& {
        CELLAR_EXPECTS_AT(where, !has_value(), "error() was called on a result that has a value");
        return error_;
    }
    FileError error(const std::source_location& where = std::source_location::current()) && {
        CELLAR_EXPECTS_AT(where, !has_value(), "error() was called on a result that has a value");
        return std::move(error_);
    }

private:
    void expect_value(const std::source_location& where) const {
        CELLAR_EXPECTS_AT(where, has_value(), "a failed result has no value: ", error_.message);
    }

    std::optional<T> value_;
    FileError error_;
};

/// Success, or the error.
template <>
class [[nodiscard]] FileResult<void> {
public:
    FileResult() = default;
    FileResult(FileError error) : error_{std::move(error)} {}

    bool has_value() const noexcept { return !error_.has_value(); }
    explicit operator bool() const noexcept { return has_value(); }

    /// The error. Asking a result that has none for it is a violation.
    const FileError& error(const std::source_location& where = std::source_location::current()) const& {
        CELLAR_EXPECTS_AT(where, !has_value(), "error() was called on a result without an error");
        return *error_;
    }
    FileError error(const std::source_location& where = std::source_location::current()) && {
        CELLAR_EXPECTS_AT(where, !has_value(), "error() was called on a result without an error");
        return *std::move(error_);
    }

private:
    std::optional<FileError> error_;
};

} // namespace cellar
