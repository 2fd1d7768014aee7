// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/result.hpp>

#include <string>

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

/// A value, or the error that explains its absence.
template <class T>
using FileResult = Result<T, FileError>;

} // namespace cellar
