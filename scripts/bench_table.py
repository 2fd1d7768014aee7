#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Turns what cellar_bench measured into a table of ratios.

Reads Google Benchmark's JSON. A benchmark is called <job>/<setting>/<size>/<cells>/<way>: rows with the same job,
setting and size stand beside each other, and `cellar` is compared with every other way of doing the same job:

  scan, head     the peers' way: an array of {position, owners} scanned cell by cell (head: from where the last search
                 ended); the ratio says how many times longer it takes
  fill, memcpy   the limit: the same memory filled, or copied; the percentage says how much of that speed is reached

`growth` is the cost at the largest number of cells over that at the smallest.
"""

import argparse
import collections
import json
import statistics
import sys

LIMITS = ("fill", "memcpy")

# What is aimed at with 128k cells: (job, column, test, description).
TARGETS = [
    ("begin", "scan", lambda r: r >= 100, "at least 100 times faster than the scan"),
    ("begin", "growth", lambda r: r <= 1.5, "within 1.5 times of the cost at 4k cells"),
    ("copy_prefix", "scan", lambda r: r >= 20, "at least 20 times faster than the scan"),
    ("mask_float", "fill", lambda r: r >= 0.6, "at 60 % of filling the same memory, or more"),
]


def medians(results):
    """{(job, setting, size, cells): {way: nanoseconds}}"""
    samples = collections.defaultdict(lambda: collections.defaultdict(list))
    for run in results["benchmarks"]:
        if run.get("run_type") == "aggregate":
            continue  # the median is taken here, over the repetitions
        parts = run["run_name"].split("/")
        if len(parts) < 5 or parts[0] == "limit":
            continue
        samples[tuple(parts[:4])][parts[4]].append(run["real_time"])
    return {key: {way: statistics.median(times) for way, times in ways.items()} for key, ways in samples.items()}


def cells_of(name):
    return int(name.removesuffix("k")) * (1024 if name.endswith("k") else 1)


def table(found):
    rows = []
    for (job, setting, size, cells), ways in sorted(found.items(), key=lambda item: (*item[0][:3], cells_of(item[0][3]))):
        if "cellar" not in ways:
            continue
        row = {"job": job, "setting": setting, "size": size, "cells": cells, "ratios": {}}
        for way, time in ways.items():
            if way != "cellar":
                row["ratios"][way] = time / ways["cellar"]
        sizes = [key[3] for key in found if key[:3] == (job, setting, size)]
        least, most = min(sizes, key=cells_of), max(sizes, key=cells_of)
        if cells == most and least != most:
            row["ratios"]["growth"] = ways["cellar"] / found[(job, setting, size, least)]["cellar"]
        rows.append(row)
    return rows


def judged(rows):
    """What was aimed at and whether it was reached, for the rows with 128k cells."""
    for row in rows:
        if row["cells"] != "128k":
            continue
        for job, column, holds, words in TARGETS:
            if row["job"] == job and column in row["ratios"]:
                yield {**{k: row[k] for k in ("job", "setting", "size")}, "target": words,
                       "ratio": row["ratios"][column], "met": bool(holds(row["ratios"][column]))}


def cell(row, column):
    ratio = row["ratios"].get(column)
    if ratio is None:
        return ""
    return f"{100 * ratio:.0f} %" if column in LIMITS else f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"


def print_table(rows, targets):
    columns = [c for c in ("scan", "head", "fill", "memcpy", "growth") if any(c in r["ratios"] for r in rows)]
    head = ["job", "setting", "size", "cells", *columns]
    lines = [[r["job"], r["setting"], r["size"], r["cells"], *(cell(r, c) for c in columns)] for r in rows]
    widths = [max(len(line[i]) for line in [head, *lines]) for i in range(len(head))]

    def show(line):
        return "| " + " | ".join(text.ljust(w) if i < 4 else text.rjust(w)
                                 for i, (text, w) in enumerate(zip(line, widths))) + " |"

    print(show(head))
    print("|" + "|".join("-" * (w + 1) + ("-" if i < 4 else ":") for i, w in enumerate(widths)) + "|")
    for line in lines:
        print(show(line))
    print("\nscan, head: times as long as cellar takes. fill, memcpy: of that speed. growth: cost at most cells / at least.\n")
    for t in targets:
        print(f"{'met    ' if t['met'] else 'NOT met'}  {t['job']}/{t['setting']}/{t['size']} at 128k cells: "
              f"{t['target']} ({t['ratio']:.2f})")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", help="what cellar_bench wrote with --benchmark_out")
    parser.add_argument("--json", help="a file for the table")
    arguments = parser.parse_args()
    try:
        with open(arguments.results, encoding="utf-8") as file:
            rows = table(medians(json.load(file)))
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"bench_table: {arguments.results}: {error}")
    if not rows:
        sys.exit(f"bench_table: {arguments.results}: no benchmark of cellar beside another way")
    targets = list(judged(rows))
    print_table(rows, targets)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"rows": rows, "targets": targets}, file, indent=2)
            file.write("\n")


if __name__ == "__main__":
    main()
