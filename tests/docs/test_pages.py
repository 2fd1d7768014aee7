#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Breaks what outputs.py and cheat_sheet.py check, and expects to be told."""
import re
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

import cheat_sheet
import outputs
import speed_picture

PROJECT = Path(__file__).resolve().parents[2]


class Outputs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.page = Path(folder.name) / "README.md"
        self.page.write_text("# A page\n\n<!-- output: sum -->\n```text\n1\n2\n```\n")

    def problems(self, output, name="sum"):
        return list(outputs.check(self.page.parent, name, output))

    def test_the_same(self):
        self.assertEqual(self.problems("1\n2\n"), [])

    def test_another_output(self):
        (problem,) = self.problems("1\n3\n")
        self.assertIn("README.md:5: differs from what sum prints", problem)

    def test_no_page(self):
        self.assertEqual(self.problems("1\n2\n", "product"), ["no page shows what product prints"])

    def test_update(self):
        outputs.update(self.page.parent, "sum", "7\n")
        self.assertEqual(self.problems("7\n"), [])

    def test_a_program_that_fails(self):
        with self.assertRaises(outputs.subprocess.CalledProcessError):
            outputs.main([str(self.page.parent), "sum", sys.executable, "-c", "raise SystemExit(1)"])


class CheatSheet(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        include = "include/cellar/"
        for name in (cheat_sheet.PAGE, include + "base/result.hpp",
                     *(include + header for header in (*cheat_sheet.LIMITS.values(), *cheat_sheet.COMPLETE,
                                                       *cheat_sheet.OTHERS))):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(PROJECT / name, self.root / name)

    def expect(self, problem, name, old, new):
        path = self.root / name
        text, changes = re.subn(old, new, path.read_text(), count=1, flags=re.M)
        self.assertEqual(changes, 1)
        path.write_text(text)
        self.assertEqual(list(cheat_sheet.check(self.root)), [f"{cheat_sheet.PAGE}: {problem}"])

    def test_as_it_is(self):
        self.assertEqual(list(cheat_sheet.check(self.root)), [])

    def test_a_reason_that_is_new(self):
        self.expect("the reason tired is missing", "include/cellar/base/result.hpp", r"^    full,", "    tired,\n    full,")

    def test_a_reason_that_is_gone(self):
        self.expect("the reason tired is gone", cheat_sheet.PAGE, r"^\| `no_pages` \|", "| `no_pages`, `tired` |")

    def test_a_limit_that_is_new(self):
        self.expect("the limit PrefixLimits::depth is missing", "include/cellar/prefix/prefix_limits.hpp",
                    r"^    std::int32_t page = 1;", "    std::int32_t page = 1;\n    std::int32_t depth = 1;")

    def test_a_limit_without_a_default_that_is_new(self):
        self.expect("the limit CacheShape::scales is missing", "include/cellar/cache/cache_shape.hpp",
                    r"^    std::vector<LayerShape> each_layer\{\};",
                    "    std::vector<LayerShape> each_layer{};\n    std::vector<float> scales{};")

    def test_a_call_that_is_new(self):
        self.expect("the call fold is missing", "include/cellar/cache/cell_room.hpp",
                    r"^    Cell free_cells\(", "    Cell fold() const;\n    Cell free_cells(")

    def test_a_call_that_is_gone(self):
        self.expect("the call fold is gone", cheat_sheet.PAGE, r"`cache\.promise\(s, n\)`",
                    "`cache.promise(s, n)`, `fold()`")


class SpeedPicture(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        for name in (speed_picture.PAGE, speed_picture.PICTURE):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(PROJECT / name, self.root / name)

    def test_as_it_is(self):
        self.assertEqual(speed_picture.main([str(self.root)]), 0)

    def test_another_figure(self):
        page = self.root / speed_picture.PAGE
        page.write_text(page.read_text().replace("| decode | 4,096 | 2.22 |", "| decode | 4,096 | 2.32 |"))
        self.assertEqual(speed_picture.main([str(self.root)]), 1)
        self.assertEqual(speed_picture.main(["--update", str(self.root)]), 0)
        self.assertIn(">2.32<", (self.root / speed_picture.PICTURE).read_text())


if __name__ == "__main__":
    unittest.main()
