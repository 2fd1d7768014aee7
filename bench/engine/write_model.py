#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes a Llama model with random weights in Q4_0, for measurements at the sizes of a real one.

usage: write_model.py VOCABULARY OUT

VOCABULARY is a GGUF file whose tokens the model gets. Sizes are those of Llama 3.2 1B, apart from the tokens.
"""

import sys

import gguf
import numpy as np

layers, width, heads, kv_heads, head_dim, hidden = 16, 2048, 32, 8, 64, 8192
values, bytes_of_block = 32, 18  # of Q4_0: a scale as half, and 4 bits for each value


def random_weights(rng, rows, columns):
    """Q4_0 with a standard deviation of 1 / sqrt(columns)."""
    blocks = rng.integers(0, 256, (rows, columns // values, bytes_of_block), dtype=np.uint8)
    scale = np.float16(1 / (4.6 * columns**0.5))
    blocks[:, :, :2] = np.frombuffer(scale.tobytes(), np.uint8)
    return blocks.reshape(rows, -1)


def copy_tokens(reader, writer):
    for name, field in reader.fields.items():
        if not name.startswith("tokenizer."):
            continue
        kind = field.types[0]
        if kind == gguf.GGUFValueType.ARRAY:
            writer.add_array(name, field.contents())
        else:
            writer.add_key_value(name, field.contents(), kind)


def main(vocabulary, out):
    reader = gguf.GGUFReader(vocabulary)
    tokens = len(reader.fields["tokenizer.ggml.tokens"].data)
    writer = gguf.GGUFWriter(out, "llama")
    writer.add_block_count(layers)
    writer.add_context_length(131072)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(hidden)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(500000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    copy_tokens(reader, writer)

    rng = np.random.default_rng(1)
    shapes = {"token_embd": (tokens, width)}
    for i in range(layers):
        for name, rows, columns in [
            ("attn_q", heads * head_dim, width),
            ("attn_k", kv_heads * head_dim, width),
            ("attn_v", kv_heads * head_dim, width),
            ("attn_output", width, heads * head_dim),
            ("ffn_gate", hidden, width),
            ("ffn_up", hidden, width),
            ("ffn_down", width, hidden),
        ]:
            shapes[f"blk.{i}.{name}"] = (rows, columns)
    for name, (rows, columns) in shapes.items():
        weights = random_weights(rng, rows, columns)
        writer.add_tensor(name + ".weight", weights, raw_dtype=gguf.GGMLQuantizationType.Q4_0)
    norms = [f"blk.{i}.{name}" for i in range(layers) for name in ("attn_norm", "ffn_norm")] + ["output_norm"]
    for name in norms:
        writer.add_tensor(name + ".weight", np.ones(width, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
