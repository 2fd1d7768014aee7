#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes float8.json, what PyTorch makes of floats that it converts to its types of 8 bits, and back: for each type,
[bits of a float, bits of the number] pairs of all numbers, of the middles between neighbours and of the floats beside
both, and the bits of the float that each pattern is.

usage: write_float8.py <the file to write>
"""
import json
import struct
import sys

import torch


def bits_of(x):
    return struct.unpack("<I", struct.pack("<f", x))[0]


def float_of(bits):
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def table(dtype):
    patterns = torch.arange(256, dtype=torch.uint8).view(dtype).to(torch.float32)
    finite = sorted({abs(x) for x in patterns.tolist() if x - x == 0})
    steps = finite + [2 * finite[-1] - finite[-2], 4 * finite[-1], 1e30]
    around = set()
    for x in steps + [(a + b) / 2 for a, b in zip(steps, steps[1:])]:
        around |= {bits_of(x) + by for by in (-1, 0, 1) if bits_of(x) + by >= 0}
    around |= {1, 0x7FFFFF, 0x7F7FFFFF, 0x7F800000, 0x7FC00000}
    bits = sorted(around | {b | 0x80000000 for b in around})
    # As integers, because Python may quieten NaNs.
    floats = torch.tensor(bits, dtype=torch.int64).to(torch.int32).view(torch.float32)
    numbers = floats.to(dtype).view(torch.uint8).tolist()
    return {
        "encoded": [list(pair) for pair in zip(bits, numbers)],
        "decoded": [b & 0xFFFFFFFF for b in patterns.view(torch.int32).tolist()],
    }


if len(sys.argv) != 2:
    sys.exit(__doc__)
tables = {"torch": torch.__version__}
for name in ["float8_e4m3fn", "float8_e5m2"]:
    tables[name] = table(getattr(torch, name))
with open(sys.argv[1], "w") as file:
    file.write(json.dumps(tables, separators=(",", ":")).replace('"float8', '\n"float8') + "\n")
