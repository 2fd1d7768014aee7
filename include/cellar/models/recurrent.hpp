// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/models/description.hpp>

// Models with recurrent layers, alone or between attention layers. A Mamba 2 layer of h heads of d elements, g groups
// and n states has a convolution over h * d + 2 * g * n channels.

namespace cellar::models {

// https://github.com/state-spaces/mamba: layers and width from mamba_ssm/models/config_mamba.py (the README has them
// for the first Mamba, 2.8B), the rest from mamba_ssm/modules/mamba2.py.
inline constexpr Description mamba2_2_7b{
    .name = "Mamba 2 2.7B",
    .layers = 64,
    .pattern = "R",
    .state = {{"conv", {3, 80 * 64 + 2 * 128}}, {"ssm", {80, 64, 128}}},
};

// https://github.com/BlinkDL/RWKV-LM, RWKV-v7/rwkv_v7_demo_fast.py has the tensors, and heads of 64. The 32 layers of
// 2560 elements were not read from the publisher. People who train the model call it L32-D2560, and these numbers give
// 2.9 billion parameters.
inline constexpr Description rwkv7_2_9b{
    .name = "RWKV 7 2.9B",
    .layers = 32,
    .pattern = "R",
    .state = {{"attention shift", {2560}}, {"wkv", {40, 64, 64}}, {"feed-forward shift", {2560}}},
};

// https://huggingface.co/Qwen/Qwen3-Next-80B-A3B-Instruct. Its numbers are the defaults in
// https://github.com/huggingface/transformers, models/qwen3_next/configuration_qwen3_next.py. The state is in
// modular_qwen3_next.py in the same folder. The base was read from config.json as its users quote it. The prediction
// layer is not counted.
inline constexpr Description qwen3_next_80b{
    .name = "Qwen3-Next 80B-A3B",
    .layers = 48,
    .pattern = "RRRF",
    .full = {.shape = {2, 256, 256}, .rope = {.pairing = Pairing::neox, .dims = 64, .base = 10000000.0}},
    .state = {{"conv", {3, 2 * 16 * 128 + 32 * 128}}, {"delta", {32, 128, 128}}},
};

// https://huggingface.co/ai21labs/AI21-Jamba-1.5-Mini, config.json. Its numbers are the defaults in
// https://github.com/huggingface/transformers, models/jamba/configuration_jamba.py.
inline constexpr Description jamba15_mini{
    .name = "Jamba 1.5 Mini",
    .layers = 32,
    .pattern = "RRRRFRRR",
    .full = {.shape = {8, 128, 128}},
    .state = {{"conv", {3, 2 * 4096}}, {"ssm", {2 * 4096, 16}}},
};

// https://docs.nvidia.com/nemo/megatron-bridge/latest/models/llm/nemotronh.html (pattern, heads, dimensions) and
// https://github.com/huggingface/transformers, models/nemotron_h/configuration_nemotron_h.py (the same numbers, the
// groups, the convolution). NVIDIA's page lists rotary embeddings for the whole family. The code of transformers, which
// runs the checkpoint, has none.
inline constexpr Description nemotron_h_8b{
    .name = "Nemotron-H 8B",
    .layers = 52,
    .pattern = "R-R-R-RF-R-R-R-R-RF-R-R-R-R-RF-R-R-R-R-RF-R-R-R-R-R-",
    .full = {.shape = {8, 128, 128}},
    .state = {{"conv", {3, 128 * 64 + 2 * 8 * 128}}, {"ssm", {128, 64, 128}}},
};

// https://huggingface.co/ibm-granite/granite-4.0-h-tiny, config.json as its users quote it. Keys carry no position:
// https://github.com/huggingface/transformers, docs/source/en/model_doc/granitemoehybrid.md.
inline constexpr Description granite4_h_tiny{
    .name = "Granite 4.0 H Tiny",
    .layers = 40,
    .pattern = "RRRRRFRRRR",
    .full = {.shape = {4, 128, 128}},
    .state = {{"conv", {3, 48 * 64 + 2 * 128}}, {"ssm", {48, 64, 128}}},
};

// https://huggingface.co/LiquidAI/LFM2-1.2B, config.json as its users quote it. The convolution is in
// https://github.com/huggingface/transformers, models/lfm2.
inline constexpr Description lfm2_1_2b{
    .name = "LFM2 1.2B",
    .layers = 16,
    .pattern = "RRFRRFRRFRFRFRFR",
    .full = {.shape = {8, 64, 64}, .rope = {.pairing = Pairing::neox, .dims = 64, .base = 1000000.0}},
    .state = {{"conv", {2, 2048}}},
};

} // namespace cellar::models
