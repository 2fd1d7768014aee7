// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/models/description.hpp>

// Models whose layers all have attention, some of them with a sliding window.

namespace cellar::models {

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

} // namespace cellar::models
