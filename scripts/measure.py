#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a benchmark of Google Benchmark, and reports how much other processes disturbed it.

usage: measure.py COMMAND [ARGUMENT...] [--benchmark_...]

Times in the arguments are rewritten for the version that the program was built with: up to 1.7 they are plain numbers
(--benchmark_min_time=0.1), later ones warn about a number without a unit (0.1s). The program is asked with --help.

When the program has ended, a line on the error stream says if other processes took more than 2 % of the processors'
time, or if the host of this virtual machine did. Ends with the status of the program.
"""

import os
import re
import resource
import subprocess
import sys

THRESHOLD = 0.02
TIMES = ("--benchmark_min_time", "--benchmark_min_warmup_time")


def wants_units(help_text):
    """True if the program reads times with a unit."""
    found = re.search(r"--benchmark_min_time=\S*.*", help_text)
    return found is not None and "s`" in found.group()


def with_times(arguments, units):
    """The arguments, with each time as the program reads it. A number of iterations (10x) stays as it is."""
    result = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if name == TIMES[0] and equals and not value.endswith("x"):
            argument = f"{name}={value.removesuffix('s')}{'s' if units else ''}"
        elif name in TIMES and equals:
            argument = f"{name}={value.removesuffix('s')}"
        result.append(argument)
    return result


def processor_times(stat):
    """(busy, stolen, all) seconds of all processors since the start, from the text of /proc/stat."""
    user, nice, system, idle, iowait, irq, softirq, stolen = (int(word) for word in stat.split("\n")[0].split()[1:9])
    busy = user + nice + system + irq + softirq
    tick = os.sysconf("SC_CLK_TCK")
    return busy / tick, stolen / tick, (busy + idle + iowait + stolen) / tick


def disturbances(before, after, own):
    """What others took, in words: from two results of `processor_times`, and the program's own processor time."""
    busy, stolen, everything = (b - a for a, b in zip(before, after))
    if everything <= 0:
        return
    others = (busy - own) / everything
    if others > THRESHOLD:
        yield (f"other processes took {100 * others:.0f} % of the processors' time: "
               "these figures are not of a quiet machine")
    if stolen / everything > THRESHOLD:
        yield f"the host of this virtual machine took {100 * stolen / everything:.0f} % of the processors' time"


def now():
    try:
        with open("/proc/stat", encoding="ascii") as file:
            return processor_times(file.read())
    except (OSError, ValueError):  # not Linux
        return (0, 0, 0)


def own_time():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def main():
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        sys.exit(__doc__)
    of_benchmark = next((i for i, a in enumerate(arguments) if a.startswith("--benchmark_")), len(arguments))
    asked = subprocess.run([*arguments[:of_benchmark], "--help"], capture_output=True, text=True, check=False)
    command = with_times(arguments, wants_units(asked.stdout + asked.stderr))
    before, own = now(), own_time()
    status = subprocess.run(command, check=False).returncode
    for line in disturbances(before, now(), own_time() - own):
        print(line, file=sys.stderr)
    sys.exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    main()
