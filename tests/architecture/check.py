#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks the rules of docs/design.md that no compiler checks: which room of include/cellar/ may include
which, what is internal, who may name Eigen and Kokkos, what every header has, and that tests/ mirrors
the rooms.

usage: check.py <the folder that holds cellar/> <the folder of the tests>
"""
import re
import sys
from pathlib import Path

import sizes

# A room may include itself and these rooms.
ROOMS = {
    "base": [],
    "simd": [],
    "crc": ["base"],
    "element": ["base", "simd"],
    "format": ["base", "simd", "element"],
    "layout": ["base", "element"],
    "window": ["base"],
    "shift": ["base"],
    "book": ["base", "window"],
    "kernel": ["base", "element", "layout", "shift"],
    "backend": ["base", "simd", "crc", "element", "layout", "shift", "kernel"],
    "memory": ["base", "element"],
    "cache": ["base", "simd", "element", "layout", "window", "shift", "book", "backend", "memory"],
    "recurrent": ["base", "element", "backend", "memory"],
    "hybrid": ["base", "memory"],
    "prefix": ["base", "memory"],
    "serve": ["base", "memory", "prefix"],
    "attention": ["base", "simd", "element", "layout", "shift", "book", "backend", "memory"],
    "models": ["base", "element", "layout", "window", "shift", "backend", "cache", "recurrent", "hybrid"],
    "interop": ["base", "element", "format", "layout", "memory", "cache", "attention", "models"],
    "files": ["base", "crc", "element", "memory", "prefix"],
    "mpi": ["base", "simd", "crc", "element", "layout", "window", "backend", "memory", "cache", "prefix", "attention"],
}

# Headers outside of any room. They may include every room, and no room includes them.
HALL = {"cellar.hpp", "fwd.hpp"}

# Everything in these folders, and in every folder `detail`, lies in the namespace cellar::detail.
INTERNAL = ("simd/", "crc/", "book/", "kernel/", "backend/host/", "backend/kokkos/")

# Folders of tests that belong to no room.
SUITES = {
    "architecture", "assembly", "compile_fail", "conformance", "consumer", "docs", "examples", "faults", "headers", "link",
    "mutations", "naive", "packaging", "property", "scripts", "static",
}

# Named only in headers that are called after them, or that lie in a folder called after them.
OPT_IN = {"eigen": "Eigen", "kokkos": "Kokkos", "dlpack": "dlpack", "ggml": "ggml", "files": "nlohmann", "mpi": "mpi"}

# Headers of an operating system, behind an #if: the whole list.
PLATFORM = {
    "simd/amx.hpp": ["<cpuid.h>", "<sys/syscall.h>", "<unistd.h>"],
    "simd/byte_products.hpp": ["<sys/auxv.h>"],
    "base/huge_pages.hpp": ["<sys/mman.h>", "<unistd.h>"],
    "base/random_seed.hpp": ["<unistd.h>"],
    "files/detail/posix_files.hpp": ["<fcntl.h>", "<sys/file.h>", "<sys/mman.h>", "<sys/stat.h>", "<unistd.h>"],
}

# These headers must not reach the rooms named: the Eigen backend is an oracle because it shares no
# arithmetic with the kernels, and only components have checksums.
NEVER_REACHES = {"backend/eigen.hpp": ["kernel"], "cellar.hpp": ["crc"]}

# Included several times, with other macros each time, so they have no `#pragma once`.
REPEATED = {
    "attention/detail/kernels_for_codes.hpp",
    "attention/detail/kernels_for_columns.hpp",
    "attention/detail/kernels_for_matrix_unit.hpp",
    "attention/detail/kernels_for_vector.hpp",
    "attention/detail/rotation_for_vector.hpp",
    "attention/detail/softmax_for_vector.hpp",
    "base/score_of.hpp",
    "crc/crc32_fold_kernel.hpp",
    "simd/operations.hpp",
}

# Only simd/ names a processor's instructions, and crc32_fold*.hpp, whose products without carry nothing else needs.
INSTRUCTIONS = r"__builtin_(ia32_\w+|cpu_supports|prefetch|nontemporal_store|shufflevector)|gnu::target|\w+intrin\.h|arm_neon\.h"

LICENCE = "// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception"
MAX_COLUMNS = 120
MAX_FUNCTION_LINES = 40
MAX_MEMBERS = 80  # variables and functions of a class


def room_of(header):
    return header.split("/")[0] if "/" in header else None


def is_internal(header):
    return header.startswith(INTERNAL) or "detail" in header.split("/")[:-1]


def opted_into(header, name):
    *folders, file = header.split("/")
    return name in folders or re.fullmatch(rf"{name}(_[a-z_]+)?\.hpp", file) is not None


def without_comments(text):
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)


def includes_of(code):
    return re.findall(r'^[ \t]*#[ \t]*include[ \t]*([<"][^>"]+[>"])', code, flags=re.M)


def check_form(header, text):
    lines = text.splitlines()
    if not lines or lines[0] != LICENCE:
        yield f"{header}: the first line is not '{LICENCE}'"
    if "#pragma once" not in lines[:3] and header not in REPEATED:
        yield f"{header}: no '#pragma once' below the licence"
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_COLUMNS:
            yield f"{header}:{number}: {len(line)} columns, expected at most {MAX_COLUMNS}"


def check_sizes(header, text):
    try:
        for kind, name, line, size in sizes.sizes_of(text):
            if kind == "function" and size > MAX_FUNCTION_LINES:
                yield f"{header}:{line}: {name} has {size} lines, expected at most {MAX_FUNCTION_LINES}"
            if kind == "class" and size > MAX_MEMBERS:
                yield f"{header}:{line}: {name} has {size} members, expected at most {MAX_MEMBERS}"
    except ValueError as error:
        yield f"{header}: {error}, so its functions and classes cannot be measured"


def check_instructions(header, code):
    if header.startswith("simd/") or header.split("/")[-1].startswith("crc32_fold"):
        return
    found = re.search(INSTRUCTIONS, code)
    if found:
        yield f"{header}: names {found[0]}, which only simd/ may"


def check_namespace(header, code):
    code = re.sub(r"\bnamespace cellar \{\s*(struct \w+;\s*)+\}", "", code)  # declares what another room defines
    if is_internal(header) and re.search(r"\bnamespace cellar \{", code):
        yield f"{header}: is internal, expected everything in namespace cellar::detail"


def check_outside(header, code, include):
    """One include of something that is not ours."""
    if include.startswith('"'):
        yield f"{header}: includes {include}, expected <cellar/...>"
    elif not re.fullmatch(r"<[a-z_0-9]+>", include) and include not in PLATFORM.get(header, []):
        if not any(include.startswith(f"<{OPT_IN[o]}") for o in OPT_IN if opted_into(header, o)):
            yield f"{header}: includes {include}, which is not of the standard library"


def check_names(header, code):
    code = re.sub(r"^[ \t]*# *include[^\n]*", "", code, flags=re.M)  # check_outside judges these
    for opt_in, name in OPT_IN.items():
        if opted_into(header, opt_in):
            continue
        found = re.search(rf"\b{name}\b|\b{name}_|\b{name.upper()}_", code)
        if found:
            yield f"{header}: names {name}, which only headers called after {opt_in} may"


def check_arrow(header, other, headers):
    """One include of another header of ours."""
    if other not in headers:
        yield f"{header}: includes <cellar/{other}>, which does not exist"
        return
    here, there = room_of(header), room_of(other)
    if here is not None and there is None:
        yield f"{header}: {here}/ must not include <cellar/{other}>, which lies in no room"
    elif here is not None and there != here and there not in ROOMS.get(here, []):
        yield f"{header}: {here}/ must not include {there}/ (<cellar/{other}>)"
    elif there != here and "detail" in other.split("/")[:-1]:
        yield f"{header}: includes <cellar/{other}>, which is for {there}/ alone"
    else:
        for opt_in in OPT_IN:
            if opted_into(other, opt_in) and not opted_into(header, opt_in):
                yield f"{header}: includes the opt-in header <cellar/{other}>"


def reached_from(header, arrows):
    reached, todo = set(), [header]
    while todo:
        for other in arrows.get(todo.pop(), []):
            if other not in reached:
                reached.add(other)
                todo.append(other)
    return reached


def check_reach(arrows):
    for header in arrows:
        reached = reached_from(header, arrows)
        if header in reached:
            yield f"{header}: includes itself in a circle"
        for room in NEVER_REACHES.get(header, []):
            for other in sorted(o for o in reached if room_of(o) == room):
                yield f"{header}: must not reach {room}/, and reaches <cellar/{other}>"


def check_tests(tests_folder):
    folders = {p.name for p in Path(tests_folder).iterdir() if p.is_dir()}
    for room in sorted(ROOMS.keys() - folders):
        yield f"tests: no folder {room}/ for the room of that name"
    for folder in sorted(folders - ROOMS.keys() - SUITES):
        yield f"tests: {folder}/ is neither a room nor among the suites of {Path(__file__).name}"


def check(include_folder, tests_folder):
    """All broken rules, a line each."""
    root = Path(include_folder) / "cellar"
    texts = {str(p.relative_to(root)): p.read_text() for p in sorted(root.rglob("*")) if p.is_file()}
    if not texts:
        yield f"{root}: no headers"
    arrows = {}
    for header, text in texts.items():
        if not header.endswith(".hpp"):
            yield f"{header}: is not a header (.hpp)"
        if room_of(header) is None and header not in HALL:
            yield f"{header}: lies in no room, where only {' and '.join(sorted(HALL))} may lie"
        elif room_of(header) not in [None, *ROOMS]:
            yield f"{header}: {room_of(header)}/ is not among the rooms of {Path(__file__).name}"
        code = without_comments(text)
        yield from check_form(header, text)
        yield from check_sizes(header, text)
        yield from check_names(header, code)
        yield from check_namespace(header, code)
        yield from check_instructions(header, code)
        arrows[header] = []
        for include in includes_of(code):
            if include.startswith("<cellar/"):
                arrows[header].append(include[len("<cellar/") : -1])
                yield from check_arrow(header, arrows[header][-1], texts)
            else:
                yield from check_outside(header, code, include)
    yield from check_reach(arrows)
    yield from check_tests(tests_folder)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    broken = list(check(*sys.argv[1:]))
    print("\n".join(broken) if broken else "all rules hold")
    sys.exit(1 if broken else 0)
