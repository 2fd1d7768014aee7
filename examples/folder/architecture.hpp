// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <string_view>

namespace folder {

/// How the folders of one architecture name tensors and numbers. A layer has two parts, each with a norm before it:
/// attention or a recurrence, and a feed-forward network.
struct Architecture {
    std::string_view model_type{};
    std::string_view embedding = "embed_tokens.weight";
    std::string_view norm = "norm.weight"; ///< behind the last layer
    std::string_view epsilon = "rms_norm_eps";
    float usual_epsilon = 1e-6F;

    std::string_view first_norm = "input_layernorm.weight";
    std::string_view attention = "self_attn.";
    std::string_view output = "o_proj";         ///< of attention
    std::string_view head_norm = "norm.weight"; ///< behind "q_" and "k_"
    std::string_view recurrence{};

    std::string_view second_norm = "post_attention_layernorm.weight";
    std::string_view feed_forward = "mlp.";
    std::string_view gate = "gate_proj.weight";
    std::string_view up = "up_proj.weight";
    std::string_view down = "down_proj.weight";

    bool has_one_part = false;  ///< each layer is one of the three
    bool is_gemma = false;      ///< norms also behind both parts, GELU in gates, larger embeddings
    bool norms_add_one = false; ///< files have what is added to 1
};

inline constexpr Architecture architectures[] = {
    {.model_type = "llama"},
    {.model_type = "mistral"},
    {.model_type = "qwen2"},
    {.model_type = "qwen3"},
    {.model_type = "phi3", .usual_epsilon = 1e-5F},
    {.model_type = "gemma2",
     .second_norm = "pre_feedforward_layernorm.weight",
     .is_gemma = true,
     .norms_add_one = true},
    {.model_type = "gemma3_text",
     .second_norm = "pre_feedforward_layernorm.weight",
     .is_gemma = true,
     .norms_add_one = true},
    {.model_type = "gpt_oss"},
    {.model_type = "deepseek_v3"},
    {.model_type = "qwen3_next", .recurrence = "linear_attn.", .norms_add_one = true},
    {.model_type = "granitemoehybrid", .recurrence = "mamba."},
    {.model_type = "jamba",
     .norm = "final_layernorm.weight",
     .recurrence = "mamba.",
     .second_norm = "pre_ff_layernorm.weight",
     .feed_forward = "feed_forward."},
    {.model_type = "nemotron_h",
     .embedding = "embeddings.weight",
     .norm = "norm_f.weight",
     .epsilon = "layer_norm_epsilon",
     .usual_epsilon = 1e-5F,
     .first_norm = "norm.weight",
     .attention = "mixer.",
     .recurrence = "mixer.",
     .second_norm = "norm.weight",
     .feed_forward = "mixer.",
     .has_one_part = true},
    {.model_type = "mamba2",
     .embedding = "embeddings.weight",
     .norm = "norm_f.weight",
     .epsilon = "layer_norm_epsilon",
     .usual_epsilon = 1e-5F,
     .first_norm = "norm.weight",
     .recurrence = "mixer.",
     .has_one_part = true},
    {.model_type = "lfm2",
     .norm = "embedding_norm.weight",
     .epsilon = "norm_eps",
     .usual_epsilon = 1e-5F,
     .first_norm = "operator_norm.weight",
     .output = "out_proj",
     .head_norm = "layernorm.weight",
     .recurrence = "conv.",
     .second_norm = "ffn_norm.weight",
     .feed_forward = "feed_forward.",
     .gate = "w1.weight",
     .up = "w3.weight",
     .down = "w2.weight"},
};

/// Throws `std::runtime_error` if the model_type is none of these.
const Architecture& architecture_of(std::string_view model_type);

} // namespace folder
