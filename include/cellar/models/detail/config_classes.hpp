// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/models/description.hpp>

#include <string_view>

// What the config classes of transformers say where a file is silent: configuration_NAME.py and modeling_NAME.py in
// models/NAME of https://github.com/huggingface/transformers, versions 5.12 and 5.24. tests/models/test_config.cpp
// compares it with what the classes themselves wrote.

namespace cellar::models::detail {

/// Which layers of a class see a window, if the file does not list their types.
enum class Windows {
    none,       ///< all layers are full
    every,      ///< all slide, if there is a window
    every_used, ///< all slide, if `use_sliding_window`
    late,       ///< those from `max_window_layers` on slide, if `use_sliding_window`
    period,     ///< all slide but the last one of each period
    rotated,    ///< those with rotary positions are chunked
    unrotated,  ///< those without rotary positions slide, if `use_sliding_window`
};

/// What else a class has.
enum class ConfigKind {
    attention, ///< nothing else
    latent,    ///< keys and values are a latent (MLA)
    qwen3_next,
    granite_hybrid,
    nemotron_h,
    jamba,
    lfm2,
    mamba2,
    t5,      ///< an encoder, and a decoder that attends to its results
    whisper, ///< the same, with other keys
    bart,
};

struct ConfigClass {
    std::string_view name{}; ///< its model_type
    ConfigKind kind = ConfigKind::attention;
    Pairing pairing = Pairing::neox;
    Windows windows = Windows::none;
    int heads = 0;           ///< 0: the file has to say it
    int kv_heads = 0;        ///< 0: as many as heads
    int head_dim = 0;        ///< 0: hidden_size / num_attention_heads
    int score_dim = 0;       ///< scores are divided by its square root; 0: by that of head_dim
    int context = 0;         ///< trained context; 0: not known
    int window = 0;          ///< 0: none
    int period = 0;          ///< `Windows::period`, and of layers without rotary positions; 0: there are none
    double base = 10000.0;   ///< of rotary frequencies
    double local_base = 0.0; ///< that of sliding layers, if it is another one
    double rotated = 1.0;    ///< the part of a head that is rotated
    double soft_cap = 0.0;
    bool learned_sinks = false;
    bool yarn = false; ///< rotary positions are always scaled by YaRN
};

inline constexpr ConfigClass config_classes[] = {
    {.name = "llama"},
    {.name = "mistral", .windows = Windows::every, .window = 4096},
    {.name = "mixtral", .windows = Windows::every, .base = 1000000.0},
    {.name = "qwen2", .windows = Windows::late, .window = 4096},
    {.name = "qwen3", .windows = Windows::late, .head_dim = 128, .window = 4096},
    {.name = "qwen3_moe", .windows = Windows::every_used, .window = 4096},
    {.name = "smollm3", .windows = Windows::unrotated, .period = 4, .base = 2000000.0},
    {.name = "phi3", .windows = Windows::every},
    {.name = "granite"},
    {.name = "gemma2",
     .windows = Windows::period,
     .head_dim = 256,
     .score_dim = 256,
     .window = 4096,
     .period = 2,
     .soft_cap = 50.0},
    {.name = "gemma3_text",
     .windows = Windows::period,
     .heads = 8,
     .kv_heads = 4,
     .head_dim = 256,
     .score_dim = 256,
     .context = 131072,
     .window = 4096,
     .period = 6,
     .base = 1000000.0,
     .local_base = 10000.0},
    {.name = "gpt_oss",
     .windows = Windows::period,
     .head_dim = 64,
     .window = 128,
     .period = 2,
     .base = 150000.0,
     .learned_sinks = true,
     .yarn = true},
    {.name = "llama4_text",
     .pairing = Pairing::interleaved,
     .windows = Windows::rotated,
     .head_dim = 128,
     .window = 8192,
     .period = 4,
     .base = 500000.0},
    {.name = "deepseek_v2", .kind = ConfigKind::latent, .pairing = Pairing::interleaved},
    {.name = "deepseek_v3", .kind = ConfigKind::latent, .pairing = Pairing::interleaved},
    {.name = "qwen3_next", .kind = ConfigKind::qwen3_next, .head_dim = 256, .rotated = 0.25},
    {.name = "granitemoehybrid", .kind = ConfigKind::granite_hybrid},
    {.name = "nemotron_h", .kind = ConfigKind::nemotron_h, .pairing = Pairing::none, .head_dim = 128},
    {.name = "jamba", .kind = ConfigKind::jamba, .pairing = Pairing::none},
    {.name = "lfm2", .kind = ConfigKind::lfm2, .base = 1000000.0},
    {.name = "mamba2", .kind = ConfigKind::mamba2, .pairing = Pairing::none},
    {.name = "t5", .kind = ConfigKind::t5, .pairing = Pairing::none, .head_dim = 64},
    {.name = "whisper", .kind = ConfigKind::whisper, .pairing = Pairing::none},
    {.name = "bart", .kind = ConfigKind::bart, .pairing = Pairing::none},
};

} // namespace cellar::models::detail
