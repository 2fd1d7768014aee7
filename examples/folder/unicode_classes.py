#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes unicode_classes.cpp: the letters and numbers of Unicode, as ranges.

usage: unicode_classes.py > unicode_classes.cpp
"""
import sys
import unicodedata


def ranges(major):
    found, begin = [], None
    for code in range(0x110000 + 1):
        inside = code < 0x110000 and unicodedata.category(chr(code))[0] == major
        if inside and begin is None:
            begin = code
        if not inside and begin is not None:
            found.append((begin, code - 1))
            begin = None
    return found


def table(name, major):
    entries = [f"{{0x{first:x}, 0x{last:x}}}," for first, last in ranges(major)]
    lines, line = [], "   "
    for entry in entries:
        if len(line) + 1 + len(entry) > 120:
            lines.append(line)
            line = "   "
        line += " " + entry
    return f"constexpr Range {name}[] = {{\n" + "\n".join([*lines, line]) + "\n};\n"


print(f"""// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Written by unicode_classes.py, from Unicode {unicodedata.unidata_version}.
#include "unicode_classes.hpp"

#include <algorithm>
#include <iterator>

// clang-format off

namespace folder {{

namespace {{

struct Range {{
    char32_t first, last;
}};

{table("letters", "L")}
{table("numbers", "N")}
template <std::size_t N>
bool contains(const Range (&ranges)[N], char32_t c) {{
    const auto* const found = std::lower_bound(
        std::begin(ranges), std::end(ranges), c, [](const Range& range, char32_t code) {{ return range.last < code; }});
    return found != std::end(ranges) && found->first <= c;
}}

}} // namespace

bool is_letter(char32_t c) {{ return contains(letters, c); }}
bool is_number(char32_t c) {{ return contains(numbers, c); }}

}} // namespace folder""", file=sys.stdout)
