#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints the results of cellar_bench as a table of ratios.

Reads Google Benchmark's JSON. Benchmarks are named job/state/sequences/cells/variant. A row compares `cellar` with the
other variants of the same job, state, sequences and cells. A variant that alternates with `cellar` within one benchmark
is a counter of that benchmark. Figures are medians over the repetitions.

  scan, head     other caches' method: an array of {position, owners} scanned cell by cell (head: the search for free
                 cells starts where the last one ended); its time divided by cellar's
  scattered      cellar with Placement::scattered; its time divided by cellar's
  questions      the same after all questions of a scheduler; its time divided by cellar's
  plain, buffered  the limit for files: as many bytes by write() or read() (buffered: by read() into a small buffer,
                 and from there to memory); cellar's share of that speed
  fill, memcpy, copy   the limit: filling the same memory, or copying as many bytes (copy: by Kokkos, with the same
                 threads); cellar's share of that speed
  warm           the same as memcpy where that writes to memory that was just allocated, but to memory in use
  touch          the limit for gathering single cells from strips: reading once each cache line that holds any of them
  memcmp         the limit for finding a prompt in a prefix tree: comparing the same tokens once
  separate       the members of a hybrid without the hybrid, one after another; their time divided by cellar's
  hand           the limit for conversions: a loop over the processor's instructions, compiled for it
  arrays         the limit for a whole model: the same loops over arrays of its own; cellar's share of that speed
  mask           a whole model that finds its cells in the mask, for each layer; its time divided by cellar's
  loop           a loop that converts one element after another; its time divided by cellar's
  launches       as many empty kernels as there are tensors to write; their time divided by cellar's
  read           the limit for attention: plainly reading the same keys and values, with the same threads
  peak           the other limit for attention: as many multiplications and additions in registers
  each           the same attention without reads_shared_once; its time divided by cellar's
  native         the same benchmark built for the processor (-march=native); the share of its speed without flags
  ggml, ggml_heads  ggml's flash attention over keys and values as llama.cpp keeps them, or with the rows of a head
                 together; its time divided by cellar's
  torch, torch_grouped  PyTorch's scaled_dot_product_attention, or products of matrices for the queries of a group; its
                 time divided by cellar's
  growth         the time with 128k cells divided by the time with 4k
"""

import argparse
import collections
import json
import statistics
import sys

LIMITS = ("fill", "memcpy", "warm", "plain", "buffered", "copy", "touch", "hand", "arrays", "memcmp", "read", "peak",
          "native")
PEERS = ("ggml", "ggml_heads", "torch", "torch_grouped")
COLUMNS = ("scan", "head", "scattered", "questions", "separate", "mask", "loop", "launches", "each", *PEERS, *LIMITS,
           "growth")
LARGE, SMALL = "128k", "4k"


class Row:
    def __init__(self, job, state, sequences, cells):
        self.job, self.state, self.sequences, self.cells = job, state, sequences, cells
        self.ns = {}  # variant: nanoseconds
        self.ratios = {}  # column: ratio

    def name(self):
        return f"{self.job}/{self.state}/{self.sequences}/{self.cells}"

    def as_json(self):
        return {"job": self.job, "state": self.state, "sequences": self.sequences, "cells": self.cells, "ns": self.ns,
                "ratios": self.ratios}


# (kind, selects rows, value of a row, accepts the value, in words). A target must be met, an aim should be.
GOALS = [
    ("target", lambda r: r.job == "begin" and r.cells == LARGE and r.sequences != "512",
     lambda r: r.ratios.get("scan"), lambda v: v >= 100, "at least 100 times as fast as the scan"),
    ("target", lambda r: r.job == "begin" and r.cells == LARGE,
     lambda r: r.ratios.get("growth"), lambda v: v <= 1.5, "at most 1.5 times the cost with 4k cells"),
    *((kind, lambda r, state=state: r.job == "copy_prefix" and r.state == state and r.cells == LARGE,
       lambda r: r.ratios.get("scan"), lambda v: v >= 20, "at least 20 times as fast as the scan")
      for kind, state in [("target", "contiguous"), ("target", "interleaved")]),
    *((kind, lambda r, job=job: r.job == job and r.state == "interleaved" and r.cells == LARGE,
       lambda r: r.ratios.get("scan"), lambda v: v >= 20, "at least 20 times as fast as the scan")
      for kind, job in [("target", "remove_all"), ("aim", "remove_shift"), ("aim", "defragment")]),
    ("target", lambda r: r.job == "begin" and "scattered" in r.ratios, lambda r: 1 / r.ratios["scattered"],
     lambda v: v <= 1.2, "at most 1.2 times the cost of scattered placement"),
    ("target", lambda r: r.job == "begin", lambda r: r.ratios.get("questions"), lambda v: v <= 1.1,
     "at most 1.1 times as much after all questions of a scheduler"),
    ("target", lambda r: r.job == "begin_commit" and r.sequences == "1000", lambda r: r.ns["cellar"] / 1e3,
     lambda v: v <= 80, "at most 80 ns for each sequence"),
    ("target", lambda r: r.job.startswith("mask_float") and r.cells == LARGE,
     lambda r: r.ratios.get("fill"), lambda v: v >= 0.6, "at least 0.6 of the speed of filling the same memory"),
    *(("target", lambda r, job=job, state=state, sequences=sequences: r.job == job and state in r.state
       and sequences in ("", r.sequences), lambda r: r.ratios.get("copy"), lambda v, minimum=minimum: v >= minimum,
       f"at least {minimum} of the speed of copying")
      for job, state, sequences, minimum in [("put", "standard", "", 0.85), ("put", "permuted", "", 0.6),
                                           ("move", "", "", 0.85), ("rotate", "", "", 0.8), ("gather", "", "1", 0.5),
                                           ("gather", "", "64", 0.85)]),
    ("target", lambda r: r.job.startswith("states_"), lambda r: r.ratios.get("memcpy"), lambda v: v >= 0.8,
     "at least 0.8 of the speed of copying the states"),
    *(("aim", lambda r, job=job: r.job == job, lambda r: r.ratios.get("memcpy"), lambda v: v >= 0.9,
       "at least 0.9 of the speed of copying the rows") for job in ("offload", "reload", "restore")),
    *((kind, lambda r, job=job: r.job == job, lambda r: r.ratios.get("plain"), lambda v: v >= 0.8,
       "at least 0.8 of the speed of plain writes and reads") for kind, job in [("target", "file_write"),
                                                                                ("aim", "file_read")]),
    ("aim", lambda r: r.job == "file_read", lambda r: r.ratios.get("memcpy"), lambda v: v >= 0.9,
     "at least 0.9 of the speed of copying"),
    ("target", lambda r: r.job == "decode_step", lambda r: 1 / r.ratios["separate"], lambda v: v <= 1.15,
     "at most 1.15 times as long as the members without a hybrid"),
    ("target", lambda r: r.job == "decode_model", lambda r: r.ratios.get("arrays"), lambda v: v >= 0.98,
     "at least 0.98 of the speed of the model's own arrays"),
    ("target", lambda r: r.job == "convert", lambda r: r.ratios.get("hand"), lambda v: v >= 0.9,
     "at least 0.9 of the speed of the processor's instructions"),
    *((kind, lambda r, many=many: r.job.startswith("prefix_") and r.state.endswith("1000") == many,
       lambda r: r.ratios.get("memcmp"), lambda v: v >= 1 / 3, "at least a third of the speed of comparing the tokens")
      for kind, many in [("target", False), ("aim", True)]),
    ("target", lambda r: r.job.startswith("prefix_") and r.state.endswith("1000"), lambda r: r.ns["cellar"] / 1e6,
     lambda v: v <= 1, "at most 1 us for each node"),
    ("target", lambda r: r.job == "prefix_attach", lambda r: r.ns["cellar"] / 1e3, lambda v: v <= 10,
     "at most 10 us"),
    *(("aim", lambda r, cells=cells, blocked=blocked: r.job == "attend_decode" and r.cells == cells
       and ("blocked" in r.state) == blocked and not any(s in r.state for s in ("held", "scattered", "shared")),
       lambda r: r.ratios.get("read"), lambda v, minimum=minimum: v >= minimum,
       f"at least {minimum} of the speed of reading")
      for cells, blocked, minimum in [("512", False, 0.4), ("4k", False, 0.45), ("32k", False, 0.5),
                                      ("512", True, 0.6), ("4k", True, 0.7), ("32k", True, 0.75)]),
    ("aim", lambda r: r.job == "attend_decode" and "shared" in r.state, lambda r: r.ratios.get("each"),
     lambda v: v >= 4, "at least 4 times as fast as without reads_shared_once"),
    ("aim", lambda r: r.job == "attend_prefill", lambda r: r.ratios.get("peak"), lambda v: v >= 0.5,
     "at least half of the processor's peak"),
    ("aim", lambda r: r.job == "attend_mla", lambda r: max(r.ratios.get("peak", 0), r.ratios.get("read", 0)),
     lambda v: v >= 0.6, "at least 0.6 of the closer limit"),
    ("aim", lambda r: "native" in r.ratios, lambda r: r.ratios["native"], lambda v: v >= 0.85,
     "at least 0.85 of the speed of a build for this processor"),
    *((kind, lambda r: r.job == "peers_decode", lambda r, peer=peer: r.ratios.get(peer),
       lambda v, minimum=minimum: v >= minimum, f"at least {minimum} times as fast as {peer}")
      for kind, peer, minimum in [("target", "ggml", 4), ("aim", "ggml", 8), ("aim", "ggml_heads", 2),
                                  ("aim", "torch", 4), ("aim", "torch_grouped", 1.2)]),
    ("aim", lambda r: r.job == "peers_prefill",
     lambda r: min((r.ratios[p] for p in PEERS if p in r.ratios), default=None), lambda v: v >= 1,
     "as fast as the fastest of the others"),
    ("aim", lambda r: r.job == "begin" and r.sequences == "1",
     lambda r: r.ns["cellar"] / 1e3, lambda v: v <= 0.5, "at most 0.5 us"),
    ("aim", lambda r: r.job == "begin" and r.sequences == "64",
     lambda r: r.ns["cellar"] / 1e3, lambda v: v <= 10, "at most 10 us"),
]


def read(paths, native_paths):
    """Returns the rows in the order in which they were first measured, and the limits by name, in nanoseconds."""
    samples = collections.defaultdict(list)
    for path in paths:
        with open(path, encoding="utf-8") as file:
            for run in json.load(file)["benchmarks"]:
                if run.get("run_type") == "aggregate" or "ns" not in run:
                    continue
                samples[run["name"]].append(run["ns"])
                for variant in COLUMNS:
                    if variant in run:
                        samples[run["name"].replace("/cellar", "/" + variant)].append(run[variant])
    for path in native_paths:
        with open(path, encoding="utf-8") as file:
            for run in json.load(file)["benchmarks"]:
                if run.get("run_type") != "aggregate" and "ns" in run and "/cellar" in run["name"]:
                    samples[run["name"].replace("/cellar", "/native")].append(run["ns"])
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
    small_rows = {(r.job, r.state, r.sequences): r for r in rows if r.cells == SMALL}
    for row in rows:
        ours = row.ns["cellar"]
        row.ratios = {variant: ns / ours for variant, ns in row.ns.items() if variant != "cellar"}
        small = small_rows.get((row.job, row.state, row.sequences))
        if row.cells == LARGE and small is not None:
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
    parser.add_argument("results", nargs="+", help="files that cellar_bench wrote with --benchmark_out")
    parser.add_argument("--native", metavar="FILE", action="append", default=[],
                        help="the same of a build for the processor")
    parser.add_argument("--json", metavar="FILE", help="write the table to this file too")
    arguments = parser.parse_intermixed_args()
    try:
        rows, limits = read(arguments.results, arguments.native)
    except (OSError, ValueError, KeyError, IndexError) as error:
        sys.exit(f"bench_table: {' '.join(arguments.results)}: {error}")
    if not rows:
        sys.exit(f"bench_table: {' '.join(arguments.results)}: nothing measured")
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
