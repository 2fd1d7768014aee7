#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints what a translation unit that uses one cache costs to compile, beside one with a product of Eigen.

The two are compiled in turn, at -O2. Figures are medians of processor seconds; the ratio is that of the medians.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys

SOURCES = {"one cache": "bench/compile/one_cache.cpp", "one product of Eigen": "bench/compile/one_product.cpp"}
LARGEST_RATIO = 1.25


def seconds(compiler, source, eigen):
    command = [compiler, "-std=c++20", "-O2", "-Iinclude", "-isystem", eigen, "-c", source, "-o", os.devnull]
    before = os.times()
    subprocess.run(command, check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compilers", default="g++,clang++-16", help="separated by commas; missing ones are left out")
    parser.add_argument("--eigen", default="/usr/include/eigen3", help="the folder of Eigen's headers")
    parser.add_argument("--times", type=int, default=5, help="how often each is compiled")
    arguments = parser.parse_args()
    met = True
    for compiler in arguments.compilers.split(","):
        if shutil.which(compiler) is None:
            print(f"{compiler}: not installed")
            continue
        samples = {name: [] for name in SOURCES}
        for _ in range(arguments.times + 1):  # the first ones fill the file cache and are not counted
            for name, source in SOURCES.items():
                samples[name].append(seconds(compiler, source, arguments.eigen))
        cache, product = (statistics.median(samples[name][1:]) for name in SOURCES)
        met = met and cache <= LARGEST_RATIO * product
        print(f"{compiler}: one cache takes {cache / product:.2f} times as long to compile as one product of Eigen "
              f"({cache:.2f} s, {product:.2f} s)")
    print(f"target: at most {LARGEST_RATIO} times: {'met' if met else 'NOT MET'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
