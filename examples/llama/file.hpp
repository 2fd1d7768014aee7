// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <bit>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <ios>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
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

inline File read_file(const std::string& path) {
    errno = 0;
    const auto reason = [] {
        return errno == 0 ? std::string{"unknown reason"} : std::generic_category().message(errno);
    };
    std::ifstream stream{path, std::ios::binary};
    if (!stream) throw FileError{path, "cannot be opened: " + reason()};
    File file{path, {}};
    constexpr std::size_t piece = std::size_t{1} << 20;
    while (stream) {
        const std::size_t size = file.bytes.size();
        file.bytes.resize(size + piece);
        stream.read(file.bytes.data() + size, static_cast<std::streamsize>(piece));
        file.bytes.resize(size + static_cast<std::size_t>(stream.gcount()));
    }
    if (stream.bad()) throw FileError{path, "cannot be read: " + reason()};
    return file;
}

/// A value from any offset, aligned or not.
template <class T>
T load(const char* bytes) {
    T value;
    std::memcpy(&value, bytes, sizeof value);
    return value;
}

/// Text from a file as part of an error line: short, printable and in quotes.
inline std::string in_quotes(std::string_view text) {
    constexpr std::size_t longest = 60;
    std::string result = "'";
    for (const char c : text.substr(0, longest)) {
        const bool printable = c >= ' ' && c <= '~';
        result += printable ? c : '?';
    }
    return result + (text.size() > longest ? "...'" : "'");
}

} // namespace llama
