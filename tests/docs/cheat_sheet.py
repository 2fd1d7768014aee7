#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks docs/cheat-sheet.md against the headers: reasons, limits and calls that are missing there, or gone here.

usage: cheat_sheet.py <the project's folder>
"""
import re
import sys
from pathlib import Path

from check import report

PAGE = "docs/cheat-sheet.md"
LIMITS = {
    "CacheShape": "cache/cache_shape.hpp",
    "WindowOptions": "window/window.hpp",
    "CacheLimits": "cache/cache_limits.hpp",
    "StateLimits": "recurrent/state_limits.hpp",
    "PrefixLimits": "prefix/prefix_limits.hpp",
    "SchedulerLimits": "serve/scheduler_limits.hpp",
}
# Whose public functions must all be on the page, and the line of the header at which those for programs end.
COMPLETE = {
    "base/batch_builder.hpp": "private:",
    "cache/cache.hpp": "/// The two phases of these operations",
    "cache/cell_room.hpp": "private:",
    "cache/encoder_memory.hpp": "/// The two phases of operations",
    "prefix/prefix_tree.hpp": "private:",
    "serve/scheduler.hpp": "private:",
}
# Where a function of the page may be declared, too.
OTHERS = (
    "attention/attend.hpp",
    "attention/attend_residual.hpp",
    "cache/audit.hpp",
    "cache/cache_pass.hpp",
    "cache/describe.hpp",
    "cache/sizes.hpp",
    "files/prefix_file.hpp",
    "files/sequence_file.hpp",
    "files/snapshot_file.hpp",
    "hybrid/hybrid.hpp",
    "hybrid/hybrid_pass.hpp",
    "memory/park.hpp",
    "models/make_memory.hpp",
    "models/sizes.hpp",
    "recurrent/recurrent_memory.hpp",
    "recurrent/recurrent_pass.hpp",
    "prefix/audit.hpp",
)
# A member with its default.
MEMBER = re.compile(r"^    [\w:<>]+ (\w+)(?: = |\{)", re.M)
# Of a class or of the namespace: a type, and a name.
FUNCTION = re.compile(
    r"^(?:    )?(?=\S)(?!static_assert|friend|using|explicit|operator)[\w:<>&*,\[\] ]+[ &*](\w+)\(", re.M)


def section(page, title):
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", page, re.M | re.S)
    return found[1] if found else ""


def first_column(text):
    """The names of the first column of all tables in a text: all `names` of a row."""
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("|")]
    return [name for row in rows for name in re.findall(r"`(?:[a-z]+\.)?(\w+)", row)]


def functions(header, end=None):
    return set(FUNCTION.findall(re.sub(r"//.*", "", header.partition(end)[0] if end else header)))


def differences(what, page, header):
    for name in sorted(header - page):
        yield f"{PAGE}: {what}{name} is missing"
    for name in sorted(page - header):
        yield f"{PAGE}: {what}{name} is gone"


def check(root):
    root = Path(root)
    include = root / "include/cellar"
    page = (root / PAGE).read_text()
    reasons = re.search(r"enum class Reason \{(.*?)\n\};", (include / "base/result.hpp").read_text(), re.S)[1]
    yield from differences("the reason ", set(first_column(section(page, "Reasons"))),
                           set(re.findall(r"^    (\w+),", reasons, re.M)))
    for name, header in LIMITS.items():
        struct = re.search(rf"struct {name} \{{(.*?)\n\}};", (include / header).read_text(), re.S)[1]
        yield from differences(f"the limit {name}::", set(first_column(section(page, f"`{name}`"))),
                               set(MEMBER.findall(struct)) - {"named_only"})
    calls = set(first_column(section(page, "Calls")))
    public = {name for header, end in COMPLETE.items() for name in functions((include / header).read_text(), end)}
    known = public.union(*(functions((include / header).read_text()) for header in OTHERS))
    yield from differences("the call ", calls & public | calls - known, public)


if __name__ == "__main__":
    sys.exit(report(check(*sys.argv[1:])))
