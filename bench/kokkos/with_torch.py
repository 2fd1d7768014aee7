#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures the attention of PyTorch on the GPU for the cases of attention.cpp: writes their medians to a file for
scripts/bench_table.py.

usage: with_torch.py RESULTS.json

Each case runs as scaled_dot_product_attention with every backend that accepts it, and for single tokens also with the
queries of a group as tokens. The calls for all layers are a CUDA graph. The fastest counts.
"""

import json
import statistics
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention

HEADS, KV_HEADS, DIM = 32, 8, 128
CASES = [("attend_decode", 1, 4096, 1), ("attend_decode", 1, 32768, 1), ("attend_decode", 8, 4096, 1),
         ("attend_decode", 64, 1024, 1), ("attend_prefill", 1, 4096, 512)]
BACKENDS = [SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def layers_of(cells):
    return min(32, (2 << 30) // (2 * cells * KV_HEADS * DIM * 2))


def median_ns(run, repeats=50):
    """The time of `run`, captured as a graph and replayed."""
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e6)
    return statistics.median(times[5:])


def ways(keys, values, sequences, length, tokens):
    """(name, function of all layers)"""
    q = torch.rand(sequences, HEADS, tokens, DIM, dtype=keys[0].dtype, device="cuda")

    def all_layers(queries, **options):
        return lambda: [scaled_dot_product_attention(queries, k, v, **options) for k, v in zip(keys, values)]

    if tokens == 1:
        yield "grouped", all_layers(q.view(sequences, KV_HEADS, HEADS // KV_HEADS, DIM))
        yield "enable_gqa", all_layers(q, enable_gqa=True)
    else:
        yield "enable_gqa", all_layers(q, attn_mask=causal_lower_right(tokens, length + tokens), enable_gqa=True)
        visible = torch.ones(tokens, length + tokens, dtype=torch.bool, device="cuda").tril(length)
        yield "mask", all_layers(q, attn_mask=visible, enable_gqa=True)


def measure(dtype, sequences, length, tokens):
    """(the fastest, its name)"""
    shape = (sequences, KV_HEADS, length + tokens, DIM)
    layers = layers_of(sequences * (length + tokens))
    keys, values = ([torch.rand(shape, dtype=dtype, device="cuda") for _ in range(layers)] for _ in range(2))
    found = []
    for name, run in ways(keys, values, sequences, length, tokens):
        for backend in BACKENDS:
            try:
                with sdpa_kernel([backend]):
                    found.append((median_ns(run), f"{name}, {backend.name}"))
            except RuntimeError as error:
                print(f"{name}, {backend.name}: left out: {str(error).splitlines()[0]}", file=sys.stderr)
                torch.cuda.synchronize()
    return min(found)


def main():
    results = []
    print(f"PyTorch {torch.__version__} on {torch.cuda.get_device_name()}", file=sys.stderr)
    for state, dtype in (("half", torch.half), ("bfloat16", torch.bfloat16)):
        for job, sequences, length, tokens in CASES:
            ns, way = measure(dtype, sequences, length, tokens)
            name = f"{job}/{state}/{sequences}/{length // 1024}k/torch"
            print(f"{name}: {ns / 1e3:.1f} us, {way}", file=sys.stderr)
            results.append({"name": name, "ns": ns, "run_type": "iteration", "label": way})
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump({"benchmarks": results}, file, indent=2)
        file.write("\n")


if __name__ == "__main__":
    main()
