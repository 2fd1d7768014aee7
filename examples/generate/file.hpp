// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <bit>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace llama {

static_assert(std::endian::native == std::endian::little, "model files are little-endian");

/// An error in a file, as one line: the file, what it contains and what was expected.
class FileError : public std::runtime_error {
public:
    FileError(const std::string& file, const std::string& what) : std::runtime_error{file + ": " + what} {}
};

/// The content of a file, and its name for error messages.
struct File {
    std::string name;
    std::vector<char> bytes;
};

File read_file(const std::string& path);

/// Reads a value from an address that need not be aligned.
template <class T>
T load(const char* bytes) {
    T value;
    std::memcpy(&value, bytes, sizeof value);
    return value;
}

/// Text from a file for an error message: shortened, printable and in quotes.
std::string in_quotes(std::string_view text);

} // namespace llama
