// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

namespace folder {

/// Of Unicode's classes L and N.
bool is_letter(char32_t c);
bool is_number(char32_t c);

/// Unicode's white space.
constexpr bool is_space(char32_t c) {
    return (c >= 0x9 && c <= 0xd) || c == ' ' || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a)
           || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

} // namespace folder
