// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/models/description.hpp>

// Models whose layers all have the same kind of attention. The numbers of a config.json named here were read from
// https://github.com/Lightning-AI/litgpt, litgpt/config.py, which quotes it.

namespace cellar::models {

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

} // namespace cellar::models
