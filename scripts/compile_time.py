#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints what translation units that use one cache cost to compile, compared with one that has a product of Eigen.

They are compiled in turn, at -O2. Ratios are those of the medians of processor seconds.
"""

import argparse
import os
import shutil
import statistics
import subprocess

PRODUCT = "one product of Eigen"
SOURCES = {
    PRODUCT: ["bench/compile/one_product.cpp"],
    "one cache": ["bench/compile/one_cache.cpp"],
    "the same without cellar.hpp": ["bench/compile/one_cache.cpp", "-DOWN_HEADERS"],
    "the same with extern template": ["bench/compile/one_cache.cpp", "-DINSTANTIATED_ELSEWHERE"],
    "the file of a class with a cache": ["tests/docs/attention.cpp"],
    "a file that uses this class": ["bench/compile/uses_attention.cpp"],
    "the program of the README": ["examples/00_readme.cpp"],
}


def seconds(compiler, source, eigen):
    command = [compiler, "-std=c++20", "-O2", "-Iinclude", "-isystem", eigen, "-c", *source, "-o", os.devnull]
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
    for compiler in arguments.compilers.split(","):
        if shutil.which(compiler) is None:
            print(f"{compiler}: not installed")
            continue
        samples = {name: [] for name in SOURCES}
        for _ in range(arguments.times + 1):  # the first ones fill the file cache and are not counted
            for name, source in SOURCES.items():
                samples[name].append(seconds(compiler, source, arguments.eigen))
        medians = {name: statistics.median(values[1:]) for name, values in samples.items()}
        for name, median in medians.items():
            print(f"{compiler}: {name}: {median / medians[PRODUCT]:.2f} ({median:.2f} s)")


if __name__ == "__main__":
    main()
