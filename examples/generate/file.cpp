// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "file.hpp"

#include <cerrno>
#include <cstddef>
#include <fstream>
#include <ios>
#include <system_error>

namespace llama {

File read_file(const std::string& path) {
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

std::string fingerprint(const std::string& path) {
    Fingerprint hash;
    hash.add(read_file(path).bytes);
    return hash.digits();
}

std::string Fingerprint::digits() const {
    std::string digits;
    for (int shift = 60; shift >= 0; shift -= 4) digits += "0123456789abcdef"[hash_ >> shift & 15U];
    return digits;
}

std::string in_quotes(std::string_view text) {
    constexpr std::size_t longest = 60;
    std::string result = "'";
    for (const char c : text.substr(0, longest)) {
        const bool printable = c >= ' ' && c <= '~';
        result += printable ? c : '?';
    }
    return result + (text.size() > longest ? "...'" : "'");
}

} // namespace llama
