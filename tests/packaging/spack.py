#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loads the recipe for Spack with stand-ins for Spack's names, checks it, and prints what it passes to CMake.

usage: spack.py <the recipe> <the version> <the components, with commas between>
"""
import sys
import types
from pathlib import Path

WITHOUT_PACKAGE = {"ggml"}  # components whose library Spack does not have
DIRECTIVES = ("conflicts", "depends_on", "license", "variant", "version")


class CMakePackage:
    @staticmethod
    def define(name, value):
        return f"-D{name}={'ON' if value else 'OFF'}"


def load(recipe):
    """The classes of the recipe, and the calls of directives: name, arguments, named arguments."""
    calls = []
    module = types.ModuleType("spack.package")
    module.CMakePackage = CMakePackage
    for name in DIRECTIVES:
        setattr(module, name, lambda *args, _name=name, **named: calls.append((_name, args, named)))
    sys.modules["spack"] = types.ModuleType("spack")
    sys.modules["spack.package"] = module
    names = {}
    exec(compile(Path(recipe).read_text(), recipe, "exec"), names)
    return names, calls


def problems(names, calls, version, components):
    package = names.get("Cellar")
    if package is None or not issubclass(package, CMakePackage):
        yield "expected a class Cellar that is a CMakePackage"
    if version not in [args[0] for name, args, _ in calls if name == "version"]:
        yield f"expected the version {version}"
    variants = [args[0] for name, args, _ in calls if name == "variant"]
    components = [component for component in components if component not in WITHOUT_PACKAGE]
    if sorted(variants) != sorted(components):
        yield f"the variants are {variants}, expected the components {components}"
    for component in components:
        if not any(name == "depends_on" and named.get("when") == f"+{component}" for name, _, named in calls):
            yield f"the variant {component} brings nothing"


def main(recipe, version, components):
    names, calls = load(recipe)
    found = list(problems(names, calls, version, components.split(",")))
    if found:
        sys.exit("\n".join(found))
    print(";".join(names["Cellar"]().cmake_args()), end="")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
