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

/// What is wrong with a file, in one line for a person: the file, what it holds, what was expected.
class FileError : public std::runtime_error {
public:
    FileError(const std::string& file, const std::string& what) : std::runtime_error{file + ": " + what} {}
};

/// A file in memory, and the name under which errors speak of it.
struct File {
    std::string name;
    std::vector<char> bytes;
};

File read_file(const std::string& path);

/// A value from any offset, aligned or not.
template <class T>
T load(const char* bytes) {
    T value;
    std::memcpy(&value, bytes, sizeof value);
    return value;
}

/// Text from a file as part of an error line: short, printable and in quotes.
std::string in_quotes(std::string_view text);

} // namespace llama
