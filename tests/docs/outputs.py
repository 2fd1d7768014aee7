#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a program, and checks that the pages show what it prints.

What a page shows is a block directly below the line

    <!-- output: 00_readme -->

usage: outputs.py [--update] <the project's folder> <name> <program> [argument...]

  --update  writes the output into the blocks of this name first
"""
import re
import subprocess
import sys
from pathlib import Path

from check import pages, report


def blocks(name):
    return re.compile(rf"^(?P<head><!-- output: {re.escape(name)} -->\n```\w*\n)(?P<text>.*?)^```$", re.M | re.S)


def update(root, name, output):
    for path in pages(root):
        text = path.read_text()
        changed = blocks(name).sub(lambda block: block["head"] + output + "```", text)
        if changed != text:
            path.write_text(changed)
            print(f"updated {path.relative_to(root)}")


def check(root, name, output):
    found = 0
    for path in pages(root):
        text = path.read_text()
        for block in blocks(name).finditer(text):
            found += 1
            if block["text"] != output:
                line = text.count("\n", 0, block.start("text")) + 1
                yield (f"{path.relative_to(root)}:{line}: differs from what {name} prints; --update repairs it. "
                       f"Expected:\n{output}")
    if found == 0:
        yield f"no page shows what {name} prints"


def main(arguments):
    writes = arguments[:1] == ["--update"]
    folder, name, *command = arguments[1:] if writes else arguments
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    if writes:
        update(Path(folder), name, output)
    return report(check(Path(folder), name, output))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
