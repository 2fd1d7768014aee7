#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests scripts/measure.py, also with programs that stand in for a benchmark."""
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))

import measure

OLD = "          [--benchmark_min_time=<min_time>]\n          [--benchmark_repetitions=<num_repetitions>]\n"
NEW = "          [--benchmark_min_time=`<integer>x` OR `<float>s` ]\n          [--benchmark_repetitions=<n>]\n"

STAT = "cpu  {user} 0 100 {idle} 0 0 0 {stolen} 0 0\ncpu0 1 2 3\n"


def times(user=0, idle=0, stolen=0):
    return measure.processor_times(STAT.format(user=user, idle=idle, stolen=stolen))


class Times(unittest.TestCase):
    def test_the_help_of_a_program_says_whether_times_have_units(self):
        self.assertFalse(measure.wants_units(OLD))
        self.assertTrue(measure.wants_units(NEW))
        self.assertFalse(measure.wants_units("no such option"))

    def test_a_time_is_written_as_the_program_reads_it(self):
        for given in ("0.1", "0.1s"):
            argument = "--benchmark_min_time=" + given
            self.assertEqual(measure.with_times([argument], True), ["--benchmark_min_time=0.1s"])
            self.assertEqual(measure.with_times([argument], False), ["--benchmark_min_time=0.1"])

    def test_other_arguments_stay(self):
        kept = ["program", "--benchmark_filter=time=0.1", "--benchmark_min_time=10x", "--benchmark_repetitions=3"]
        for units in (False, True):
            self.assertEqual(measure.with_times(kept, units), kept)

    def test_a_warmup_time_has_no_unit_in_any_version(self):
        for units in (False, True):
            self.assertEqual(measure.with_times(["--benchmark_min_warmup_time=1"], units),
                             ["--benchmark_min_warmup_time=1"])


class Disturbances(unittest.TestCase):
    def test_a_quiet_machine_is_not_mentioned(self):
        own = 1000 / 100
        self.assertEqual(list(measure.disturbances(times(), times(user=1010, idle=1000), own)), [])

    def test_the_time_of_other_processes_is_a_share_of_all_processors(self):
        own = 1000 / 100
        lines = list(measure.disturbances(times(), times(user=1500, idle=500), own))
        self.assertEqual(len(lines), 1)
        self.assertTrue(lines[0].startswith("other processes took 25 % of the processors' time"), lines[0])

    def test_the_time_of_the_host_is_mentioned_apart(self):
        own = 1000 / 100
        lines = list(measure.disturbances(times(), times(user=1000, idle=900, stolen=100), own))
        self.assertEqual(lines, ["the host of this virtual machine took 5 % of the processors' time"])

    def test_nothing_is_said_where_the_times_are_unknown(self):
        self.assertEqual(list(measure.disturbances((0, 0, 0), (0, 0, 0), 1)), [])


class Program(unittest.TestCase):
    """A whole call, with a script in place of a benchmark."""

    def run_with(self, help_text, *arguments, code="pass", status=0):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "program.py"
            program.write_text(f"import sys\nif '--help' in sys.argv:\n    print({help_text!r})\n    sys.exit()\n"
                               f"print(sys.argv[1:])\n{code}\nsys.exit({status})\n")
            return subprocess.run([sys.executable, SCRIPTS / "measure.py", sys.executable, program, *arguments],
                                  capture_output=True, text=True, check=False)

    def test_the_program_gets_the_times_of_its_version(self):
        arguments = ("--benchmark_filter=x", "--benchmark_min_time=0.5")
        self.assertIn("'--benchmark_min_time=0.5'", self.run_with(OLD, *arguments).stdout)
        self.assertIn("'--benchmark_min_time=0.5s'", self.run_with(NEW, *arguments).stdout)

    def test_the_status_is_that_of_the_program(self):
        self.assertEqual(self.run_with(OLD).returncode, 0)
        self.assertEqual(self.run_with(OLD, status=3).returncode, 3)

    @unittest.skipUnless(sys.platform == "linux" and os.cpu_count() <= 32, "one process is too small a share here")
    def test_a_process_that_works_at_the_same_time_is_reported(self):
        other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        try:
            result = self.run_with(OLD, code="import time; time.sleep(1)")
        finally:
            other.kill()
            other.wait()
        self.assertIn("other processes took", result.stderr)


if __name__ == "__main__":
    unittest.main()
