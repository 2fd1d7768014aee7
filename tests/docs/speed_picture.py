#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draws docs/images/speed.svg, the picture of the README, from a table of docs/performance.md, and checks that it is
drawn from the table as it is.

usage: speed_picture.py [--update] <the project's folder>

  --update  writes the picture
"""
import re
import sys
from pathlib import Path

from check import report

PAGE = "docs/performance.md"
HEADING = "### A real model, beside libllama"
PICTURE = "docs/images/speed.svg"
# A column of the table, the name in the picture, and the colour.
ENGINES = (
    ("libllama, no flash", "libllama", "#b0bec5"),
    ("libllama, flash", "libllama, flash attention", "#78909c"),
    ("`attend`", "cellar", "#e8743b"),
)
WIDTH, HEIGHT = 800, 330
LEFT, RIGHT, TOP, BOTTOM = 44, 786, 70, 268
BAR = 36


def table(text):
    """The rows of the first table below the heading, as dictionaries; the first column is named ''."""
    found = re.search(rf"^{re.escape(HEADING)}\n(?:(?!\|).*\n)*((?:\|.*\n)+)", text, re.M)
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in found[1].splitlines()]
    return [dict(zip(lines[0], line)) for line in lines[2:]]


def text(x, y, words, anchor="middle", more=""):
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{more}>{words}</text>'


def draw(rows):
    most = max(float(row[column]) for row in rows for column, _, _ in ENGINES)
    scale = (BOTTOM - TOP) / most
    pitch = (RIGHT - LEFT) / len(rows)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="Helvetica, Arial, sans-serif" font-size="13" fill="#263238">',
        "<title>Tokens a second, relative to the better path of libllama</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        text(LEFT, 22, "SmolLM2-135M on a processor: tokens a second, relative to the better path of libllama", "start",
             ' font-weight="600"'),
    ]
    x = LEFT
    for _, name, colour in ENGINES:
        out.append(f'<rect x="{x}" y="36" width="13" height="13" fill="{colour}"/>')
        out.append(text(x + 19, 47, name, "start"))
        x += 44 + 7 * len(name)
    for place, row in enumerate(rows):
        middle = LEFT + pitch * (place + 0.5)
        for i, (column, _, colour) in enumerate(ENGINES):
            value = float(row[column])
            left = middle + BAR * (i - len(ENGINES) / 2)
            top = BOTTOM - scale * value
            out.append(f'<rect x="{left:.1f}" y="{top:.1f}" width="{BAR - 3}" height="{BOTTOM - top:.1f}" '
                       f'fill="{colour}"/>')
            weight = ' font-weight="600"' if i == len(ENGINES) - 1 else ' fill="#607d8b"'
            out.append(text(round(left + (BAR - 3) / 2, 1), round(top - 5, 1), row[column], more=weight))
        what = "decode" if row[""] == "decode" else "prompt of 512"
        out.append(text(round(middle, 1), BOTTOM + 20, what))
        out.append(text(round(middle, 1), BOTTOM + 38, f"after {row['context']} tokens"))
    out.append(f'<path stroke="#455a64" d="M{LEFT} {BOTTOM}H{RIGHT}"/>')
    return "\n".join([*out, "</svg>", ""])


def main(arguments):
    writes = arguments[:1] == ["--update"]
    root = Path(arguments[-1])
    picture = draw(table((root / PAGE).read_text()))
    if writes:
        (root / PICTURE).write_text(picture)
    is_old = (root / PICTURE).read_text() != picture
    return report([f"{PICTURE}: differs from the table of {PAGE}; --update draws it again"] if is_old else [])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
