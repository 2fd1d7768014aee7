#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Turns what cellar_bench measured into a table of ratios.

Reads Google Benchmark's JSON. A benchmark is called job/state/sequences/cells/way; rows with the same first four stand
beside each other, and `cellar` is compared with every other way of doing the same job. A way that took turns with
`cellar` in one benchmark is a counter of it. Figures are medians over the repetitions.

  scan, head     the peers' way: an array of {position, owners} scanned cell by cell (head: free cells are looked for
                 from where the last ones were found); how many times longer it takes
  fill, memcpy, copy   the limit: the same memory filled, or as many bytes copied (copy: by Kokkos, with the same
                 threads); how much of that speed is reached
  touch          another limit, where single cells are gathered from strips: each line that holds some is read once
  apart          what a hybrid does, done by its members one after another; how many times longer it takes
  launches       as many empty kernels as there are tensors to write; how many times longer they take
  growth         the cost with 128k cells over that with 4k
"""

import argparse
import collections
import json
import statistics
import sys

LIMITS = ("fill", "memcpy", "copy", "touch")
COLUMNS = ("scan", "head", "apart", "launches", *LIMITS, "growth")
MOST, LEAST = "128k", "4k"


class Row:
    def __init__(self, job, state, sequences, cells):
        self.job, self.state, self.sequences, self.cells = job, state, sequences, cells
        self.ns = {}  # way: nanoseconds
        self.ratios = {}  # column: ratio

    def name(self):
        return f"{self.job}/{self.state}/{self.sequences}/{self.cells}"

    def as_json(self):
        return {"job": self.job, "state": self.state, "sequences": self.sequences, "cells": self.cells, "ns": self.ns,
                "ratios": self.ratios}


# (kind, which rows, what of a row, whether it will do, in words). A target has to be reached, an aim is to be.
GOALS = [
    ("target", lambda r: r.job == "begin" and r.cells == MOST and r.sequences != "512",
     lambda r: r.ratios.get("scan"), lambda v: v >= 100, "at least 100 times faster than the scan"),
    ("target", lambda r: r.job == "begin" and r.cells == MOST,
     lambda r: r.ratios.get("growth"), lambda v: v <= 1.5, "at most 1.5 times its cost with 4k cells"),
    *((kind, lambda r, state=state: r.job == "copy_prefix" and r.state == state and r.cells == MOST,
       lambda r: r.ratios.get("scan"), lambda v: v >= 20, "at least 20 times faster than the scan")
      for kind, state in [("target", "contiguous"), ("aim", "in_turn")]),
    ("target", lambda r: r.job.startswith("mask_float") and r.cells == MOST,
     lambda r: r.ratios.get("fill"), lambda v: v >= 0.6, "at least 0.6 of the speed of filling the same memory"),
    *(("target", lambda r, job=job, state=state, sequences=sequences: r.job == job and state in r.state
       and sequences in ("", r.sequences), lambda r: r.ratios.get("copy"), lambda v, least=least: v >= least,
       f"at least {least} of the speed of copying")
      for job, state, sequences, least in [("put", "standard", "", 0.85), ("put", "permuted", "", 0.6),
                                           ("move", "", "", 0.85), ("turn", "", "", 0.8), ("gather", "", "1", 0.5),
                                           ("gather", "", "64", 0.85)]),
    ("target", lambda r: r.job.startswith("states_"), lambda r: r.ratios.get("memcpy"), lambda v: v >= 0.8,
     "at least 0.8 of the speed of copying the states"),
    ("target", lambda r: r.job == "decode_step", lambda r: 1 / r.ratios["apart"], lambda v: v <= 1.15,
     "at most 1.15 times what the members take apart"),
    ("aim", lambda r: r.job == "begin" and r.sequences == "1",
     lambda r: r.ns["cellar"] / 1e3, lambda v: v <= 0.5, "at most 0.5 us"),
    ("aim", lambda r: r.job == "begin" and r.sequences == "64",
     lambda r: r.ns["cellar"] / 1e3, lambda v: v <= 10, "at most 10 us"),
]


def read(path):
    """The rows in the order in which they were first measured, and the limits by name, in nanoseconds."""
    samples = collections.defaultdict(list)
    with open(path, encoding="utf-8") as file:
        for run in json.load(file)["benchmarks"]:
            if run.get("run_type") == "aggregate" or "ns" not in run:
                continue
            samples[run["name"]].append(run["ns"])
            for way in COLUMNS:
                if way in run:
                    samples[run["name"].replace("/cellar", "/" + way)].append(run[way])
    rows, limits = {}, {}
    for name, figures in samples.items():
        parts = name.split("/")
        if parts[0] == "limit":
            limits[parts[1]] = statistics.median(figures)
        else:
            row = rows.setdefault(tuple(parts[:4]), Row(*parts[:4]))
            row.ns[parts[4]] = statistics.median(figures)
    return [row for row in rows.values() if "cellar" in row.ns], limits


def compare(rows):
    least = {(r.job, r.state, r.sequences): r for r in rows if r.cells == LEAST}
    for row in rows:
        ours = row.ns["cellar"]
        row.ratios = {way: ns / ours for way, ns in row.ns.items() if way != "cellar"}
        small = least.get((row.job, row.state, row.sequences))
        if row.cells == MOST and small is not None:
            row.ratios["growth"] = ours / small.ns["cellar"]


def cells_of(row):
    return int(row.cells.removesuffix("k"))


def in_order(rows):
    jobs = list(dict.fromkeys(r.job for r in sorted(rows, key=lambda r: r.job)))
    return sorted(rows, key=lambda r: (jobs.index(r.job), r.state, int(r.sequences), cells_of(r)))


def judge(rows):
    for kind, concerns, value_of, holds, words in GOALS:
        for row in rows:
            value = value_of(row) if concerns(row) else None
            if value is not None:
                yield {"kind": kind, "name": row.name(), "words": words, "value": value, "met": bool(holds(value))}


def time_text(ns):
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.3g} ns"


def ratio_text(column, ratio):
    if ratio is None:
        return ""
    if column in LIMITS:
        return f"{100 * ratio:.0f} %"
    return f"{ratio:.0f}" if ratio >= 100 else f"{ratio:.3g}" if ratio >= 10 else f"{ratio:.2f}"


def print_table(rows, limits):
    columns = [c for c in COLUMNS if any(c in r.ratios for r in rows)]
    head = ["job", "state", "sequences", "cells", "cellar", *columns]
    lines = [[r.job, r.state, r.sequences, r.cells, time_text(r.ns["cellar"]),
              *(ratio_text(c, r.ratios.get(c)) for c in columns)] for r in rows]
    widths = [max(len(line[i]) for line in [head, *lines]) for i in range(len(head))]
    aligned = ["<"] * 2 + [">"] * (len(head) - 2)
    for line in [head, ["-" * (w - (a == ">")) + ":" * (a == ">") for w, a in zip(widths, aligned)], *lines]:
        print("| " + " | ".join(f"{text:{a}{w}}" for text, a, w in zip(line, aligned, widths)) + " |")
    print()
    for name, ns in limits.items():
        print(f"{name}: {time_text(ns)}")


def print_goals(goals):
    for goal in goals:
        print(f"{'met' if goal['met'] else 'NOT MET':8}{goal['kind']:8}{goal['name']:34} {goal['words']}: "
              f"{goal['value']:.3g}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", help="what cellar_bench wrote with --benchmark_out")
    parser.add_argument("--json", metavar="FILE", help="write the table to this file too")
    arguments = parser.parse_args()
    try:
        rows, limits = read(arguments.results)
    except (OSError, ValueError, KeyError, IndexError) as error:
        sys.exit(f"bench_table: {arguments.results}: {error}")
    if not rows:
        sys.exit(f"bench_table: {arguments.results}: nothing measured")
    rows = in_order(rows)
    compare(rows)
    goals = list(judge(rows))
    print_table(rows, limits)
    print()
    print_goals(goals)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"rows": [row.as_json() for row in rows], "limits": limits, "goals": goals}, file, indent=2)
            file.write("\n")


if __name__ == "__main__":
    main()
