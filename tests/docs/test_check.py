#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Breaks each rule of check.py once, in a small tree made for it, and expects to be told."""
import tempfile
import unittest
from pathlib import Path

import check

SOURCE = """int main() {
    // [sum]
    int a = 1;
    // [inner]
    a += 1;
    // [/inner]

    return a;
    // [/sum]
}
"""
QUOTED = "int a = 1;\na += 1;\n\nreturn a;\n"


def page(above, text, language="cpp"):
    return f"# A page\n\nWords.\n\n{above}\n```{language}\n{text}```\n"


SOUND = {
    "examples/01_sum.cpp": SOURCE,
    "README.md": page("<!-- quote: examples/01_sum.cpp sum -->", QUOTED),
    "docs/index.md": "[a page](../README.md#a-page), [itself](#two-words), [far](https://a.b/c)\n\n## Two words\n",
    "docs/decisions.md": "# Decisions\n\n## One\n\n" + "line\n" * 8,
}


class Tree:
    def __init__(self, **changes):
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name)
        for name, text in {**SOUND, **changes}.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def __enter__(self):
        return self.root

    def __exit__(self, *error):
        self.folder.cleanup()


class Rules(unittest.TestCase):
    def expect(self, words, **changes):
        with Tree(**changes) as root:
            problems = list(check.check(root))
        self.assertEqual(len(problems), 1, problems)
        self.assertIn(words, problems[0])

    def test_sound_tree(self):
        with Tree() as root:
            self.assertEqual(list(check.check(root)), [])

    def test_inner_region(self):
        with Tree(**{"README.md": page("<!-- quote: examples/01_sum.cpp inner -->", "a += 1;\n")}) as root:
            self.assertEqual(list(check.check(root)), [])

    def test_item_within_a_line(self):
        self.expect("README.md:5: an item of a list", **{"README.md": "# A page\n\nWords.\n\n- one - **two**\n"})

    def test_quote_differs(self):
        text = page("<!-- quote: examples/01_sum.cpp sum -->", "int a = 2;\n")
        self.expect("differs from region [sum]", **{"README.md": text})

    def test_region_missing(self):
        text = page("<!-- quote: examples/01_sum.cpp other -->", QUOTED)
        self.expect("has 0 regions [other]", **{"README.md": text})

    def test_region_twice(self):
        self.expect("has 2 regions [sum]", **{"examples/01_sum.cpp": SOURCE + SOURCE})

    def test_source_missing(self):
        text = page("<!-- quote: examples/02_gone.cpp sum -->", QUOTED)
        self.expect("does not exist", **{"README.md": text})

    def test_source_that_nobody_compiles(self):
        text = page("<!-- quote: docs/sum.cpp sum -->", QUOTED)
        self.expect("is not compiled", **{"README.md": text, "docs/sum.cpp": SOURCE})

    def test_neither_quote_nor_outline(self):
        self.expect("neither a quote nor an outline", **{"README.md": page("", QUOTED)})

    def test_outline_and_other_languages(self):
        for text in page("<!-- outline -->", QUOTED), page("", "scripts/demo\n", "sh"):
            with Tree(**{"README.md": text}) as root:
                self.assertEqual(list(check.check(root)), [])

    def test_links(self):
        self.expect("leads nowhere", **{"docs/more.md": "**[gone](gone.md)**"})
        self.expect("leads to no heading", **{"docs/more.md": "**[gone](index.md#three-words)**"})

    def test_opening(self):
        self.expect("no recommendation", **{"docs/more.md": "# More\n\nWords.\n\n## Section\n\n**If unsure**, this.\n"})
        self.expect("no recommendation", **{"docs/more.md": "# More\n\n```text\n**\n```\n"})
        with Tree(**{"docs/more.md": "# More\n\n**If unsure**, this.\n"}) as root:
            self.assertEqual(list(check.check(root)), [])

    def test_tasks(self):
        def table(sources):
            return {"docs/more.md": "**Tasks**\n\n### Ten tasks\n\n| task | page | sources |\n|---|---|---|\n"
                                    f"| add | [a page](../README.md#a-page) | {sources} |\n\n### More\n\n| a |\n"}
        with Tree(**table("[sum](../examples/01_sum.cpp)")) as root:
            self.assertEqual(list(check.check(root)), [])
        self.expect("does not quote docs/index.md", **table("[sum](../examples/01_sum.cpp), [other](index.md)"))
        self.expect("has no source", **table("none"))

    def test_long_decision(self):
        self.expect("'One' has 9 lines", **{"docs/decisions.md": SOUND["docs/decisions.md"] + "line\n"})

    def test_update(self):
        text = page("<!-- quote: examples/01_sum.cpp sum -->", "int a = 2;\n")
        with Tree(**{"README.md": text}) as root:
            check.update(root)
            self.assertEqual((root / "README.md").read_text(), SOUND["README.md"])


if __name__ == "__main__":
    unittest.main()
