// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/models/description.hpp>

// Published models: what each layer stores. Where the numbers come from stands before each.

namespace cellar::models {

// Models whose layers all have the same kind of attention. The numbers of a config.json named here were read from
// https://github.com/Lightning-AI/litgpt, litgpt/config.py, which quotes it.

// https://huggingface.co/meta-llama/Llama-3.1-8B, config.json. The scaling is also in the publisher's code,
// https://github.com/meta-llama/llama-models, models/llama3/model.py. Llama 3 is the same without the scaling. The
// publisher's own checkpoints pair neighbouring elements.
inline constexpr Rope llama31_rope{.pairing = Pairing::neox, .dims = 128, .base = 500000.0, .scaling = Llama3Scaling{}};
inline constexpr Description llama31_8b{
    .name = "Llama 3.1 8B",
    .layers = 32,
    .pattern = "F",
    .full = {.shape = {8, 128, 128}, .rope = llama31_rope},
};

// https://huggingface.co/meta-llama/Llama-3.1-70B, config.json.
inline constexpr Description llama31_70b{
    .name = "Llama 3.1 70B",
    .layers = 80,
    .pattern = "F",
    .full = {.shape = {8, 128, 128}, .rope = llama31_rope},
};

// https://huggingface.co/mistralai/Mistral-7B-v0.1, config.json. Versions 0.2 and 0.3 have full attention and a base
// of 1000000.
inline constexpr Description mistral_7b{
    .name = "Mistral 7B v0.1",
    .layers = 32,
    .pattern = "S",
    .sliding = {.shape = {8, 128, 128}, .rope = {.pairing = Pairing::neox, .dims = 128}, .window = 4096},
};

// https://huggingface.co/Qwen/Qwen3-8B, config.json.
inline constexpr Description qwen3_8b{
    .name = "Qwen 3 8B",
    .layers = 36,
    .pattern = "F",
    .full = {.shape = {8, 128, 128}, .rope = {.pairing = Pairing::neox, .dims = 128, .base = 1000000.0}},
};

// https://huggingface.co/microsoft/phi-4, config.json.
inline constexpr Description phi4{
    .name = "Phi-4",
    .layers = 40,
    .pattern = "F",
    .full = {.shape = {10, 128, 128}, .rope = {.pairing = Pairing::neox, .dims = 128, .base = 250000.0}},
};

// https://github.com/deepseek-ai/DeepSeek-V3, inference/configs/config_671B.json and inference/model.py. Each token has
// one latent of 512 elements, which serves as key and value, followed by 64 elements of rotary key. The prediction
// layer is not counted.
inline constexpr Description deepseek_v3{
    .name = "DeepSeek-V3",
    .layers = 61,
    .pattern = "F",
    .full = {.shape = {1, 512 + 64, 0},
             .rope = {.pairing = Pairing::interleaved,
                      .dims = 64,
                      .scaling = YarnScaling{.factor = 40.0, .original_context = 4096.0},
                      .begin = 512}},
};

// Models whose layers all have attention, some of them with a sliding window.

// https://github.com/google/gemma_pytorch, gemma/config.py (get_config_for_9b) and gemma/model.py.
inline constexpr Rope gemma2_rope{.pairing = Pairing::neox, .dims = 256};
inline constexpr Description gemma2_9b{
    .name = "Gemma 2 9B",
    .layers = 42,
    .pattern = "SF",
    .sliding = {.shape = {8, 256, 256}, .rope = gemma2_rope, .window = 4096},
    .full = {.shape = {8, 256, 256}, .rope = gemma2_rope},
};

// https://github.com/google/gemma_pytorch, gemma/config.py (get_config_for_4b, get_config_for_12b). Only the full
// layers are scaled: https://github.com/google-deepmind/gemma, gemma/gm/nn/_gemma.py.
inline constexpr Rope gemma3_sliding_rope{.pairing = Pairing::neox, .dims = 256, .base = 10000.0};
inline constexpr Rope gemma3_full_rope{
    .pairing = Pairing::neox, .dims = 256, .base = 1000000.0, .scaling = LinearScaling{8.0}};
inline constexpr Description gemma3_4b{
    .name = "Gemma 3 4B",
    .layers = 34,
    .pattern = "SSSSSF",
    .sliding = {.shape = {4, 256, 256}, .rope = gemma3_sliding_rope, .window = 1024},
    .full = {.shape = {4, 256, 256}, .rope = gemma3_full_rope},
};
inline constexpr Description gemma3_12b{
    .name = "Gemma 3 12B",
    .layers = 48,
    .pattern = "SSSSSF",
    .sliding = {.shape = {8, 256, 256}, .rope = gemma3_sliding_rope, .window = 1024},
    .full = {.shape = {8, 256, 256}, .rope = gemma3_full_rope},
};

// https://github.com/openai/gpt-oss, gpt_oss/torch/model.py has the numbers of the 120b. The number of layers of the
// 20b is from https://docs.nvidia.com/nemo/megatron-bridge/nightly/models/llm/gpt-oss.html. The model's sinks are
// learned numbers, not tokens, so `WindowOptions::sinks` is 0.
inline constexpr Rope gpt_oss_rope{.pairing = Pairing::neox,
                                   .dims = 64,
                                   .base = 150000.0,
                                   .scaling =
                                       YarnScaling{.factor = 32.0, .original_context = 4096.0, .whole_pairs = false}};
inline constexpr Description gpt_oss_20b{
    .name = "gpt-oss 20b",
    .layers = 24,
    .pattern = "SF",
    .sliding = {.shape = {8, 64, 64}, .rope = gpt_oss_rope, .window = 128},
    .full = {.shape = {8, 64, 64}, .rope = gpt_oss_rope},
};
inline constexpr Description gpt_oss_120b{
    .name = "gpt-oss 120b",
    .layers = 36,
    .pattern = "SF",
    .sliding = {.shape = {8, 64, 64}, .rope = gpt_oss_rope, .window = 128},
    .full = {.shape = {8, 64, 64}, .rope = gpt_oss_rope},
};

// Models with recurrent layers, alone or between attention layers. The convolution of a Mamba 2 layer has
// h * d + 2 * g * n channels, for h heads of d elements, g groups and n states.

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
