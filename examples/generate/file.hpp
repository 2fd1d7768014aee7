// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace llama {

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

/// Sixteen hexadecimal digits that tell bytes apart (FNV-1a).
class Fingerprint {
public:
    void add(std::span<const char> bytes) {
        for (const char c : bytes) hash_ = (hash_ ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
    }
    std::string digits() const;

private:
    std::uint64_t hash_ = 0xcbf29ce484222325U;
};

/// That of the contents of a file.
std::string fingerprint(const std::string& path);

/// Reads values from a little-endian file. The address need not be aligned.
template <class T>
void load(const char* bytes, std::span<T> values) {
    if (values.empty()) return;
    std::memcpy(values.data(), bytes, values.size_bytes());
    if constexpr (std::endian::native == std::endian::big) {
        for (T& value : values) {
            char* const first = reinterpret_cast<char*>(&value);
            std::reverse(first, first + sizeof value);
        }
    }
}

/// The same for one value.
template <class T>
T load(const char* bytes) {
    T value;
    load(bytes, std::span{&value, 1});
    return value;
}

/// Text from a file for an error message: shortened, printable and in quotes.
std::string in_quotes(std::string_view text);

} // namespace llama
