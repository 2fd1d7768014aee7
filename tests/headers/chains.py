#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Divides headers into few sources that test each header as if it were alone.

usage: chains.py <the folder that holds cellar/> <header>...

Prints a line for each source: the headers that it includes, in this order. The code of a header sees what the header
includes, and what the source has included before. If the header includes all of that, too, by itself or through others,
it sees the same as alone. So each header of a source includes the one before it.
"""
import functools
import re
import sys
from pathlib import Path

root = Path(sys.argv[1])


@functools.cache
def text(header):
    path = root / header
    return path.read_text() if path.exists() else ""


@functools.cache
def reached(header):
    """All that a header includes, by itself or through others."""
    direct = re.findall(r"^[ \t]*#[ \t]*include[ \t]*<([^>]+)>", text(header), flags=re.M)
    return frozenset(direct).union(*map(reached, direct))


chains = []
for header in sorted((str(Path(h).relative_to(root)) for h in sys.argv[2:]), key=lambda h: (len(reached(h)), h)):
    # What has no `#pragma once` is included several times, with other macros, so it has a source of its own.
    joined = [c for c in chains if c[-1] in reached(header) and "#pragma once" in text(c[-1])]
    if joined and "#pragma once" in text(header):
        max(joined, key=lambda c: len(reached(c[-1]))).append(header)
    else:
        chains.append([header])
print("\n".join(" ".join(c) for c in chains))
