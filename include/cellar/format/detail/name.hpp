// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cstddef>
#include <string_view>

namespace cellar::detail {

/// A name that is put together at compile time.
struct FormatName {
    char text[64] = {};
    std::size_t size = 0;

    constexpr FormatName& add(std::string_view part) {
        for (const char c : part) text[size++] = c;
        return *this;
    }
    constexpr FormatName& add(int number) {
        if (number >= 10) add(number / 10);
        text[size++] = static_cast<char>('0' + number % 10);
        return *this;
    }
    constexpr std::string_view view() const { return {text, size}; }
};

} // namespace cellar::detail
