#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Breaks each rule of check.py once, in a small tree made for it, and expects to be told."""
import tempfile
import unittest
from pathlib import Path

import check

HEAD = f"{check.LICENCE}\n#pragma once\n"

SOUND = {
    "base/ids.hpp": HEAD + "#include <cstdint>\n// Kokkos and Eigen in a comment are words\n",
    "window/window.hpp": HEAD + "#include <cellar/base/ids.hpp>\n",
    "window/detail/forgetting_window.hpp": HEAD + "namespace cellar::detail {}\n",
    "window/sliding_window.hpp": HEAD + "#include <cellar/window/detail/forgetting_window.hpp>\n",
    "kernel/rotate.hpp": HEAD + "#include <cellar/base/ids.hpp>\n",
    "book/cell_table.hpp": HEAD + "#include <cellar/window/window.hpp>\nnamespace cellar::detail {}\n",
    "backend/backend.hpp": HEAD + "namespace cellar {}\n",
    "backend/host.hpp": HEAD + "#include <cellar/kernel/rotate.hpp>\n",
    "backend/eigen.hpp": HEAD + "#include <Eigen/Core>\nusing M = Eigen::MatrixXf;\n",
    "cache/detail/layer_store.hpp": HEAD + "#include <cellar/backend/backend.hpp>\n",
    "cache/cache.hpp": HEAD + "#include <cellar/book/cell_table.hpp>\n#include <cellar/cache/detail/layer_store.hpp>\n",
    "cellar.hpp": HEAD + "#include <cellar/cache/cache.hpp>\n",
}


def broken_rules(folders=(*check.ROOMS, "static"), **changes):
    """The complaints about the sound tree with some files changed or added."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {**SOUND, **changes}.items():
            path = Path(folder) / "cellar" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        tests = Path(folder) / "tests"
        for name in folders:
            (tests / name).mkdir(parents=True)
        return list(check.check(folder, tests))


class Rules(unittest.TestCase):
    def expect(self, words, name, text):
        broken = broken_rules(**{name: text})
        self.assertEqual(len(broken), 1, broken)
        self.assertIn(words, broken[0])

    def test_sound_tree(self):
        self.assertEqual(broken_rules(), [])

    def test_every_arrow_that_is_not_in_the_table(self):
        for here, allowed in check.ROOMS.items():
            forbidden = [room for room in check.ROOMS if room != here and room not in allowed]
            leaves = {f"{room}/leaf.hpp": HEAD for room in forbidden}
            includes = "".join(f"#include <cellar/{room}/leaf.hpp>\n" for room in forbidden)
            broken = broken_rules(**leaves, **{f"{here}/new.hpp": HEAD + includes})
            self.assertEqual(len(broken), len(forbidden), broken)
            for room in forbidden:
                self.assertIn(f"{here}/new.hpp: {here}/ must not include {room}/ (<cellar/{room}/leaf.hpp>)", broken)

    def test_room_includes_the_hall(self):
        text = HEAD + "#include <cellar/fwd.hpp>\n"
        broken = broken_rules(**{"fwd.hpp": HEAD, "cache/pass.hpp": text})
        self.assertEqual(len(broken), 1, broken)
        self.assertIn("which lies in no room", broken[0])

    def test_header_in_the_hall(self):
        self.expect("lies in no room, where only", "cache.hpp", HEAD)

    def test_detail_of_another_room(self):
        text = HEAD + "#include <cellar/window/detail/forgetting_window.hpp>\n"
        self.expect("which is for window/ alone", "book/leaf.hpp", text)
        self.expect("which is for window/ alone", "cellar.hpp", text)

    def test_public_name_in_an_internal_header(self):
        text = HEAD + "namespace cellar {}\n"
        for name in ("book/leaf.hpp", "window/detail/leaf.hpp", "backend/host/leaf.hpp"):
            self.expect("expected everything in namespace cellar::detail", name, text)

    def test_declaration_of_a_public_type_in_an_internal_header(self):
        text = HEAD + "namespace cellar {\nstruct half;\n} // namespace cellar\n"
        self.assertEqual(broken_rules(**{"simd/leaf.hpp": text}), [])
        self.expect("expected everything in namespace cellar::detail", "simd/leaf.hpp", text.replace(";", " {};"))

    def test_instructions_outside_of_their_room(self):
        text = HEAD + "inline void f(const int* p) { __builtin_prefetch(p); }\n"
        self.assertEqual(broken_rules(**{"simd/leaf.hpp": text}), [])
        self.expect("names __builtin_prefetch, which only simd/ may", "cache/cache.hpp", text)

    def test_tests_mirror_the_rooms(self):
        rooms = [*check.ROOMS]
        self.assertIn("no folder base/", broken_rules(folders=rooms[1:])[0])
        self.assertIn("attic/ is neither a room nor", broken_rules(folders=[*rooms, "attic"])[0])

    def test_oracle_reaches_a_kernel_through_another_header(self):
        text = SOUND["backend/eigen.hpp"] + "#include <cellar/backend/host.hpp>\n"
        self.expect("must not reach kernel/", "backend/eigen.hpp", text)

    def test_opt_in_header_included(self):
        text = HEAD + "#include <cellar/backend/eigen.hpp>\n"
        self.expect("includes the opt-in header", "cellar.hpp", text)

    def test_library_named_outside(self):
        self.expect("names Kokkos", "cellar.hpp", HEAD + "KOKKOS_FUNCTION void f();\n")
        self.expect("names Eigen", "base/ids.hpp", HEAD + "using M = Eigen::MatrixXf;\n")
        self.expect("names nlohmann", "base/ids.hpp", HEAD + "using J = nlohmann::json;\n")
        self.expect("names Eigen", "backend/kokkos.hpp", HEAD + "using M = Eigen::MatrixXf;\n")

    def test_include_from_outside(self):
        words = "not of the standard library"
        self.expect(words, "base/ids.hpp", HEAD + "#include <nlohmann/json.hpp>\n")
        self.expect(words, "base/ids.hpp", HEAD + "#include <sys/mman.h>\n")
        self.expect(words, "base/huge_pages.hpp", HEAD + "#include <fcntl.h>\n")
        self.assertEqual(broken_rules(**{"files/file.hpp": HEAD + "#include <nlohmann/json.hpp>\n"}), [])
        self.expect("expected <cellar/...>", "book/leaf.hpp", HEAD + '#include "free_cells.hpp"\n')

    def test_missing_header(self):
        self.expect("does not exist", "cellar.hpp", HEAD + "#include <cellar/book/gone.hpp>\n")

    def test_circle(self):
        text = HEAD + "#include <cellar/base/ids.hpp>\n"
        self.expect("in a circle", "base/ids.hpp", text)

    def test_unknown_room(self):
        self.expect("not among the rooms", "attic/box.hpp", HEAD)

    def test_form(self):
        self.expect("the first line", "base/ids.hpp", "\n" + HEAD)
        self.expect("#pragma once", "base/ids.hpp", check.LICENCE + "\n")
        self.expect("121 columns", "base/ids.hpp", HEAD + "/" * 121 + "\n")
        self.expect("is not a header", "base/ids.cpp", HEAD)

    def test_long_function(self):
        body = "{\n" + "    int x{};\n" * 40
        self.assertEqual(broken_rules(**{"base/ids.hpp": HEAD + "inline void f(int a) " + body + "}\n"}), [])
        body += "// a comment counts, too\n}\n"
        for head in ("inline void f(int a) ", "template <class T> struct S : T { S(int a) : a_{a}, b_{1} ", "operator int() "):
            text = HEAD + head + body + ("};\n" if "struct" in head else "")
            self.expect("has 41 lines, expected at most 40", "base/ids.hpp", text)

    def test_many_members(self):
        members = "public: int x_{1}; void f() const { g(); } template <class T> int g(T t = {}) { return t; }\n" * 27
        others = "friend struct B; friend void h() { i(); } using C = int; struct D { int x; }; enum class E { a };\n"
        self.expect("A has 81 members, expected at most 80", "base/ids.hpp", HEAD + f"class A {{\n{others}{members}}};\n")
        members = members.replace("int x_{1}; ", "", 1)
        self.assertEqual(broken_rules(**{"base/ids.hpp": HEAD + f"class A {{\n{others}{members}}};\n"}), [])

    def test_braces_without_a_partner(self):
        self.expect("cannot be measured", "base/ids.hpp", HEAD + "#if A\nvoid f() {\n#else\nvoid g() {\n#endif\n}\n")


if __name__ == "__main__":
    unittest.main()
