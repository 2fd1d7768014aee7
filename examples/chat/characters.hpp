// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <string>

namespace chat {

/// Text that is shown while it is written. A character of UTF-8 may consist of several tokens: it is shown once it is
/// whole. Bytes that are no UTF-8 pass as they are, at most three bytes later. A character that is cut at the end of the
/// text is not shown.
class WholeCharacters {
public:
    /// The bytes of a token. Returns what can be shown now.
    std::string add(const std::string& bytes) {
        held_ += bytes;
        std::string whole = held_.substr(0, whole_length());
        held_.erase(0, whole.size());
        return whole;
    }

private:
    std::size_t whole_length() const {
        const std::size_t size = held_.size();
        for (std::size_t length = 1; length <= std::min<std::size_t>(3, size); ++length) {
            const auto byte = static_cast<unsigned char>(held_[size - length]);
            if (byte < 0x80) break;
            const bool begins = byte >= 0xc0; // with as many ones as the character has bytes
            if (begins) return static_cast<std::size_t>(std::countl_one(byte)) > length ? size - length : size;
        }
        return size;
    }

    std::string held_;
};

} // namespace chat
