#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Shows reference.py small API references, complete ones and others."""
import tempfile
import unittest
from pathlib import Path

import reference

BRIEF = "<briefdescription><para>Words.</para></briefdescription><detaileddescription></detaileddescription>"
NONE = "<briefdescription></briefdescription><detaileddescription></detaileddescription>"
PLACE = '<location file="a.hpp" line="7"/>'


def compound(kind, name, inner, prot="public"):
    return f'<compounddef kind="{kind}" prot="{prot}"><compoundname>{name}</compoundname>{inner}{PLACE}</compounddef>'


def function(name, text, arguments="()"):
    return (f'<memberdef kind="function" prot="public"><name>{name}</name><argsstring>{arguments}</argsstring>'
            f"{text}{PLACE}</memberdef>")


class Reference(unittest.TestCase):
    def problems(self, *compounds, pages=True):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "xml").mkdir()
            (Path(folder) / "html").mkdir()
            entries = ""
            for i, text in enumerate(compounds):
                kind = text.split('"')[1]
                entries += f'<compound refid="c{i}" kind="{kind}"/>'
                (Path(folder) / f"xml/c{i}.xml").write_text(
                    "<doxygen>" + text.replace("<compounddef", f'<compounddef id="c{i}"', 1) + "</doxygen>")
                if pages:
                    (Path(folder) / f"html/c{i}.html").write_text("")
            (Path(folder) / "xml/index.xml").write_text(f"<doxygenindex>{entries}</doxygenindex>")
            return list(reference.check(folder))

    def test_complete(self):
        functions = function("f", BRIEF) + function("f", NONE, "(int)") + function("A", NONE, "() -&gt; A&lt; int &gt;")
        namespace = compound("namespace", "cellar", functions)
        self.assertEqual(self.problems(compound("class", "cellar::A", BRIEF), namespace,
                                       compound("struct", "cellar::A&lt; int &gt;", NONE),
                                       compound("struct", "std::hash", NONE),
                                       compound("class", "cellar::A::P", NONE, "private")), [])

    def test_class_without_docstring(self):
        for kind in "class", "struct", "concept":
            self.assertEqual(self.problems(compound(kind, "cellar::A", NONE)),
                             [f"a.hpp:7: {kind} cellar::A has no docstring"])

    def test_function_without_docstring(self):
        functions = function("f", NONE) + function("f", NONE, "(int)")
        documented = compound("class", "cellar::A", BRIEF)
        self.assertEqual(self.problems(documented, compound("namespace", "cellar", functions)),
                         ["a.hpp:7: function cellar::f has no docstring"])

    def test_member_without_docstring(self):
        members = (function("f", NONE) + function("f", NONE, "(int)") + function("g", BRIEF) + function("A", NONE)
                   + function("~A", NONE) + function("operator=", NONE) + function("h", NONE, "()=delete")
                   + function("i", NONE, "(detail::B)") + function("j", NONE).replace("public", "private"))
        self.assertEqual(self.problems(compound("class", "cellar::A", BRIEF + members)),
                         ["a.hpp:7: function cellar::A::f has no docstring"])

    def test_inherited_constructor(self):
        base = "<basecompoundref>cellar::B&lt; int &gt;</basecompoundref>"
        self.assertEqual(self.problems(compound("class", "cellar::A", BRIEF + base + function("B", NONE))), [])
        self.assertEqual(self.problems(compound("class", "cellar::A", BRIEF + base + function("C", NONE))),
                         ["a.hpp:7: function cellar::A::C has no docstring"])

    def test_member_that_a_concept_or_its_class_names(self):
        def words(code):
            return f"<briefdescription/><detaileddescription><para>Has <computeroutput>{code}</computeroutput></para>" \
                   "</detaileddescription>"
        self.assertEqual(self.problems(compound("concept", "cellar::C", words("f(int)")),
                                       compound("class", "cellar::A", words("g&lt;T&gt;()") + function("f", NONE)
                                                + function("g", NONE) + function("h", NONE))),
                         ["a.hpp:7: function cellar::A::h has no docstring"])

    def test_class_without_page(self):
        self.assertEqual(self.problems(compound("class", "cellar::A", BRIEF), pages=False),
                         ["a.hpp:7: class cellar::A has no page"])

    def test_no_classes(self):
        self.assertIn("no class of cellar", self.problems()[0])


if __name__ == "__main__":
    unittest.main()
