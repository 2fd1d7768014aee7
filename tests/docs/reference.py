#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that the API reference is complete, by the XML that Doxygen makes beside the pages (scripts/docs).

- Every public class, struct and concept of cellar has a docstring. A specialisation may leave that to its template.
- So has every function of a namespace, and every public member function of these classes; one docstring serves all
  overloads. A member may leave it to the docstring of a concept or of its class that names it, as in `sinks()`. A
  constructor, also one that a class inherits, an operator and what is deleted need none, and neither do functions for
  cellar itself, whose types are of a namespace `detail`.
- Every class has a page.

usage: reference.py <the folder with html/ and xml/>
"""
import re
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

from check import report

CLASSES = {"class", "struct", "union", "concept"}


def has_docstring(element):
    return any("".join(element.find(part).itertext()).strip()
               for part in ("briefdescription", "detaileddescription") if element.find(part) is not None)


def names_functions(element):
    """The functions that a docstring names."""
    parts = (element.find(part) for part in ("briefdescription", "detaileddescription"))
    codes = ("".join(code.itertext()) for part in parts if part is not None for code in part.iter("computeroutput"))
    return {name for code in codes for name in re.findall(r"\b(\w+)(?:<[^>]*>)?\(", code)}


def is_public(name, element):
    return name.startswith("cellar::") and "<" not in name and element.get("prot", "public") == "public"


def where(element):
    location = element.find("location")
    return f"{location.get('file')}:{location.get('line')}" if location is not None else "?"


def check(folder):
    folder = Path(folder)
    definitions = [xml.parse(folder / "xml" / f"{compound.get('refid')}.xml").getroot().find("compounddef")
                   for compound in xml.parse(folder / "xml" / "index.xml").getroot().findall("compound")
                   if compound.get("kind") in CLASSES | {"namespace"}]
    of_concepts = set().union(*(names_functions(definition) for definition in definitions
                                if definition.get("kind") == "concept"))
    classes = 0
    for definition in definitions:
        kind = definition.get("kind")
        name = definition.findtext("compoundname")
        if kind == "namespace":
            yield from check_functions(name, definition)
        elif is_public(name, definition):
            classes += 1
            if not has_docstring(definition):
                yield f"{where(definition)}: {kind} {name} has no docstring"
            if not (folder / "html" / f"{definition.get('id')}.html").is_file():
                yield f"{where(definition)}: {kind} {name} has no page"
            yield from check_functions(name, definition, of_concepts | names_functions(definition))
    if classes == 0:
        yield f"{folder}: no class of cellar, expected the folder of an API reference"


def check_functions(scope, definition, documented=None):
    functions = {}
    constructors = {base.text.split("<")[0].split("::")[-1].strip() for base in definition.findall("basecompoundref")}
    constructors.add(scope.rpartition("::")[2])
    for function in definition.iter("memberdef"):
        own = function.findtext("name")
        arguments = function.findtext("argsstring") or ""
        name = f"{scope}::{own}"
        if function.get("kind") == "function" and is_public(name, function) and "operator" not in name \
                and own.lstrip("~") not in constructors and "delete" not in arguments \
                and "->" not in arguments and own not in (documented or ()):  # a deduction guide
            functions.setdefault(name, []).append(function)
    for name, overloads in functions.items():
        may_lack = documented is not None and any(map(is_for_cellar, overloads))
        if not may_lack and not any(map(has_docstring, overloads)):
            yield f"{where(overloads[0])}: function {name} has no docstring"


def is_for_cellar(function):
    return "detail::" in "".join(function.find("type").itertext() if function.find("type") is not None else ()) \
        + (function.findtext("argsstring") or "")


if __name__ == "__main__":
    sys.exit(report(check(*sys.argv[1:])))
