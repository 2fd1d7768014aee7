#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that the API reference is complete, by the XML that Doxygen makes beside the pages (scripts/docs).

- Every public class, struct and concept of cellar has a docstring. A specialisation may leave that to its template.
- So has every function of a namespace; one docstring serves all its overloads.
- Every class has a page.

usage: reference.py <the folder with html/ and xml/>
"""
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

from check import report

CLASSES = {"class", "struct", "union", "concept"}


def has_docstring(element):
    return any("".join(element.find(part).itertext()).strip()
               for part in ("briefdescription", "detaileddescription") if element.find(part) is not None)


def is_public(name, element):
    return name.startswith("cellar::") and "<" not in name and element.get("prot", "public") == "public"


def where(element):
    location = element.find("location")
    return f"{location.get('file')}:{location.get('line')}" if location is not None else "?"


def check(folder):
    folder = Path(folder)
    classes = 0
    for compound in xml.parse(folder / "xml" / "index.xml").getroot().findall("compound"):
        kind = compound.get("kind")
        if kind not in CLASSES | {"namespace"}:
            continue
        definition = xml.parse(folder / "xml" / f"{compound.get('refid')}.xml").getroot().find("compounddef")
        name = definition.findtext("compoundname")
        if kind == "namespace":
            yield from check_functions(name, definition)
        elif is_public(name, definition):
            classes += 1
            if not has_docstring(definition):
                yield f"{where(definition)}: {kind} {name} has no docstring"
            if not (folder / "html" / f"{compound.get('refid')}.html").is_file():
                yield f"{where(definition)}: {kind} {name} has no page"
    if classes == 0:
        yield f"{folder}: no class of cellar, expected the folder of an API reference"


def check_functions(namespace, definition):
    functions = {}
    for function in definition.iter("memberdef"):
        name = f"{namespace}::{function.findtext('name')}"
        if function.get("kind") == "function" and is_public(name, function) and "operator" not in name \
                and "->" not in (function.findtext("argsstring") or ""):  # a deduction guide
            functions.setdefault(name, []).append(function)
    for name, overloads in functions.items():
        if not any(map(has_docstring, overloads)):
            yield f"{where(overloads[0])}: function {name} has no docstring"


if __name__ == "__main__":
    sys.exit(report(check(*sys.argv[1:])))
