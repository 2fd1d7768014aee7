#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes tests/models/configs.json: configurations of published models, what the config classes of `transformers` make
of them, and the rotary frequencies that its code computes.

usage: scripts/sandbox --with "python3-torch python3-transformers" tests/models/write_configs.py

`file` has the keys of the config.json that was published with the model, as far as they concern its memory; `written`
is what the config class writes after it has read them. Both must be read alike.
"""
import json
import sys
from pathlib import Path

import torch
import transformers
from transformers import AutoConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

llama31 = {
    "model_type": "llama", "max_position_embeddings": 131072, "num_key_value_heads": 8, "rope_theta": 500000.0,
    "rope_scaling": {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                     "original_max_position_embeddings": 8192, "rope_type": "llama3"}}
gemma3_scaling = {"factor": 8.0, "rope_type": "linear"}
gpt_oss = {
    "model_type": "gpt_oss", "head_dim": 64, "hidden_size": 2880, "max_position_embeddings": 131072,
    "num_attention_heads": 64, "num_key_value_heads": 8, "rope_theta": 150000, "sliding_window": 128,
    "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096,
                     "rope_type": "yarn", "truncate": False}}
deepseek_yarn = {"beta_fast": 32, "beta_slow": 1, "original_max_position_embeddings": 4096, "type": "yarn"}

FILES = {
    "Llama 3.1 8B": {**llama31, "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32},
    "Llama 3.1 70B": {**llama31, "hidden_size": 8192, "num_attention_heads": 64, "num_hidden_layers": 80},
    "Mistral 7B v0.1": {
        "model_type": "mistral", "hidden_size": 4096, "max_position_embeddings": 32768, "num_attention_heads": 32,
        "num_hidden_layers": 32, "num_key_value_heads": 8, "rope_theta": 10000.0, "sliding_window": 4096},
    "Mistral 7B v0.3": {
        "model_type": "mistral", "hidden_size": 4096, "max_position_embeddings": 32768, "num_attention_heads": 32,
        "num_hidden_layers": 32, "num_key_value_heads": 8, "rope_theta": 1000000.0, "sliding_window": None},
    "Mixtral 8x7B": {
        "model_type": "mixtral", "hidden_size": 4096, "max_position_embeddings": 32768, "num_attention_heads": 32,
        "num_hidden_layers": 32, "num_key_value_heads": 8, "rope_theta": 1000000.0, "sliding_window": None},
    "Qwen 2.5 7B": {
        "model_type": "qwen2", "hidden_size": 3584, "max_position_embeddings": 32768, "max_window_layers": 28,
        "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4, "rope_theta": 1000000.0,
        "sliding_window": 131072, "use_sliding_window": False},
    "Qwen 2 with late windows": {
        "model_type": "qwen2", "hidden_size": 896, "max_position_embeddings": 32768, "max_window_layers": 5,
        "num_attention_heads": 14, "num_hidden_layers": 8, "num_key_value_heads": 2, "rope_theta": 1000000.0,
        "sliding_window": 512, "use_sliding_window": True},
    "Qwen 3 8B": {
        "model_type": "qwen3", "head_dim": 128, "hidden_size": 4096, "max_position_embeddings": 40960,
        "max_window_layers": 36, "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8,
        "rope_scaling": None, "rope_theta": 1000000, "sliding_window": None, "use_sliding_window": False},
    "Qwen 3 8B with YaRN": {
        "model_type": "qwen3", "head_dim": 128, "hidden_size": 4096, "max_position_embeddings": 131072,
        "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8, "rope_theta": 1000000,
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}},
    "Qwen 3 30B-A3B": {
        "model_type": "qwen3_moe", "head_dim": 128, "hidden_size": 2048, "max_position_embeddings": 40960,
        "num_attention_heads": 32, "num_hidden_layers": 48, "num_key_value_heads": 4, "rope_theta": 1000000.0,
        "sliding_window": None, "use_sliding_window": False},
    "SmolLM 2 135M": {
        "model_type": "llama", "hidden_size": 576, "max_position_embeddings": 8192, "num_attention_heads": 9,
        "num_hidden_layers": 30, "num_key_value_heads": 3, "rope_scaling": None, "rope_theta": 100000},
    "SmolLM 3 3B": {
        "model_type": "smollm3", "hidden_size": 2048, "max_position_embeddings": 65536, "num_attention_heads": 16,
        "num_hidden_layers": 36, "num_key_value_heads": 4, "no_rope_layer_interval": 4, "rope_theta": 5000000.0,
        "sliding_window": None, "use_sliding_window": False},
    "Phi-4": {
        "model_type": "phi3", "hidden_size": 5120, "max_position_embeddings": 16384, "num_attention_heads": 40,
        "num_hidden_layers": 40, "num_key_value_heads": 10, "original_max_position_embeddings": 16384,
        "rope_scaling": None, "rope_theta": 250000, "sliding_window": None},
    "a Phi-4 mini with made-up factors": {
        "model_type": "phi3", "hidden_size": 3072, "max_position_embeddings": 131072, "num_attention_heads": 24,
        "num_hidden_layers": 32, "num_key_value_heads": 8, "original_max_position_embeddings": 4096,
        "partial_rotary_factor": 0.75, "rope_theta": 10000.0, "sliding_window": 262144,
        "rope_scaling": {"type": "longrope", "short_factor": [1 + i / 64 for i in range(48)],
                         "long_factor": [1 + i / 2 for i in range(48)]}},
    "Granite 3.3 8B": {
        "model_type": "granite", "attention_multiplier": 0.0078125, "hidden_size": 4096,
        "max_position_embeddings": 131072, "num_attention_heads": 32, "num_hidden_layers": 40,
        "num_key_value_heads": 8, "rope_theta": 10000000.0},
    "DeepSeek-V3": {
        "model_type": "deepseek_v3", "hidden_size": 7168, "kv_lora_rank": 512, "max_position_embeddings": 163840,
        "num_attention_heads": 128, "num_hidden_layers": 61, "num_key_value_heads": 128, "q_lora_rank": 1536,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "rope_theta": 10000,
        "rope_scaling": {**deepseek_yarn, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0}},
    "DeepSeek-V2-Lite": {
        "model_type": "deepseek_v2", "hidden_size": 2048, "kv_lora_rank": 512, "max_position_embeddings": 163840,
        "num_attention_heads": 16, "num_hidden_layers": 27, "num_key_value_heads": 16, "q_lora_rank": None,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "rope_theta": 10000,
        "rope_scaling": {**deepseek_yarn, "factor": 40, "mscale": 0.707, "mscale_all_dim": 0.707}},
    "Gemma 2 9B": {
        "model_type": "gemma2", "attn_logit_softcapping": 50.0, "head_dim": 256, "hidden_size": 3584,
        "max_position_embeddings": 8192, "num_attention_heads": 16, "num_hidden_layers": 42, "num_key_value_heads": 8,
        "query_pre_attn_scalar": 256, "rope_theta": 10000.0, "sliding_window": 4096},
    "Gemma 2 27B": {
        "model_type": "gemma2", "attn_logit_softcapping": 50.0, "head_dim": 128, "hidden_size": 4608,
        "max_position_embeddings": 8192, "num_attention_heads": 32, "num_hidden_layers": 46, "num_key_value_heads": 16,
        "query_pre_attn_scalar": 144, "rope_theta": 10000.0, "sliding_window": 4096},
    "Gemma 3 1B": {
        "model_type": "gemma3_text", "head_dim": 256, "hidden_size": 1152, "max_position_embeddings": 32768,
        "num_attention_heads": 4, "num_hidden_layers": 26, "num_key_value_heads": 1, "query_pre_attn_scalar": 256,
        "rope_local_base_freq": 10000, "rope_scaling": None, "rope_theta": 1000000, "sliding_window": 512,
        "sliding_window_pattern": 6},
    "Gemma 3 4B": {
        "model_type": "gemma3",
        "text_config": {"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34,
                        "rope_scaling": gemma3_scaling, "sliding_window": 1024}},
    "Gemma 3 12B": {
        "model_type": "gemma3",
        "text_config": {"model_type": "gemma3_text", "hidden_size": 3840, "num_attention_heads": 16,
                        "num_hidden_layers": 48, "num_key_value_heads": 8, "rope_scaling": gemma3_scaling,
                        "sliding_window": 1024}},
    "gpt-oss 20b": {**gpt_oss, "num_hidden_layers": 24, "layer_types": ["sliding_attention", "full_attention"] * 12},
    "gpt-oss 120b": {**gpt_oss, "num_hidden_layers": 36, "layer_types": ["sliding_attention", "full_attention"] * 18},
    "Llama 4 Scout": {
        "model_type": "llama4",
        "text_config": {"model_type": "llama4_text", "attention_chunk_size": 8192, "head_dim": 128,
                        "hidden_size": 5120, "max_position_embeddings": 10485760, "no_rope_layers": [],
                        "num_attention_heads": 40, "num_hidden_layers": 48, "num_key_value_heads": 8,
                        "rope_theta": 500000.0,
                        "rope_scaling": {"factor": 16.0, "high_freq_factor": 1.0, "low_freq_factor": 0.5,
                                         "original_max_position_embeddings": 8192, "rope_type": "llama3"}}},
    "Qwen3-Next 80B-A3B": {
        "model_type": "qwen3_next", "full_attention_interval": 4, "head_dim": 256, "hidden_size": 2048,
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
        "linear_num_value_heads": 32, "linear_value_head_dim": 128, "max_position_embeddings": 262144,
        "num_attention_heads": 16, "num_hidden_layers": 48, "num_key_value_heads": 2, "partial_rotary_factor": 0.25,
        "rope_scaling": None, "rope_theta": 10000000},
    "Jamba 1.5 Mini": {
        "model_type": "jamba", "attn_layer_offset": 4, "attn_layer_period": 8, "hidden_size": 4096, "mamba_d_conv": 4,
        "mamba_d_state": 16, "mamba_expand": 2, "max_position_embeddings": 262144, "num_attention_heads": 32,
        "num_hidden_layers": 32, "num_key_value_heads": 8},
    "Nemotron-H 8B": {
        "model_type": "nemotron_h", "conv_kernel": 4, "hidden_size": 4096, "mamba_head_dim": 64, "mamba_num_heads": 128,
        "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
        "max_position_embeddings": 8192, "n_groups": 8, "num_attention_heads": 32, "num_hidden_layers": 52,
        "num_key_value_heads": 8, "ssm_state_size": 128},
    "Granite 4.0 H Tiny": {
        "model_type": "granitemoehybrid", "attention_multiplier": 0.0078125, "hidden_size": 1536,
        "layer_types": (["mamba"] * 5 + ["attention"] + ["mamba"] * 4) * 4, "mamba_d_conv": 4, "mamba_d_head": 64,
        "mamba_d_state": 128, "mamba_expand": 2, "mamba_n_groups": 1, "mamba_n_heads": 48,
        "max_position_embeddings": 131072, "num_attention_heads": 12, "num_hidden_layers": 40,
        "num_key_value_heads": 4, "position_embedding_type": "nope", "rope_theta": 10000},
    "LFM2 1.2B": {
        "model_type": "lfm2", "conv_L_cache": 3, "full_attn_idxs": [2, 5, 8, 10, 12, 14], "hidden_size": 2048,
        "max_position_embeddings": 128000, "num_attention_heads": 32, "num_hidden_layers": 16,
        "num_key_value_heads": 8, "rope_theta": 1000000.0},
    "T5 small": {
        "model_type": "t5", "d_kv": 64, "d_model": 512, "n_positions": 512, "num_heads": 8, "num_layers": 6},
    "Flan-T5 XL": {
        "model_type": "t5", "d_kv": 64, "d_model": 2048, "n_positions": 512, "num_decoder_layers": 24, "num_heads": 32,
        "num_layers": 24},
    "Whisper tiny": {
        "model_type": "whisper", "d_model": 384, "decoder_attention_heads": 6, "decoder_layers": 4,
        "encoder_attention_heads": 6, "encoder_layers": 4, "max_source_positions": 1500, "max_target_positions": 448,
        "num_hidden_layers": 4},
    "Whisper large-v3-turbo": {
        "model_type": "whisper", "d_model": 1280, "decoder_attention_heads": 20, "decoder_layers": 4,
        "encoder_attention_heads": 20, "encoder_layers": 32, "max_source_positions": 1500, "max_target_positions": 448,
        "num_hidden_layers": 32},
    "BART large": {
        "model_type": "bart", "d_model": 1024, "decoder_attention_heads": 16, "decoder_layers": 12,
        "encoder_attention_heads": 16, "encoder_layers": 12, "max_position_embeddings": 1024, "num_hidden_layers": 12},
    "Mamba 2 2.7B": {
        "model_type": "mamba2", "conv_kernel": 4, "expand": 2, "head_dim": 64, "hidden_size": 2560, "n_groups": 1,
        "num_heads": 80, "num_hidden_layers": 64, "state_size": 128},
}

# Nothing of a memory.
LEFT_OUT = {
    "transformers_version", "id2label", "label2id", "vision_config", "_name_or_path", "return_dict",
    "output_hidden_states", "output_attentions", "problem_type", "chunk_size_feed_forward", "is_encoder_decoder",
    "dtype", "architectures", "initializer_range", "time_step_limit", "time_step_min", "time_step_max",
    "time_step_floor", "quantization_config"}


def trimmed(config):
    if not isinstance(config, dict):
        return config
    return {key: trimmed(value) for key, value in sorted(config.items()) if key not in LEFT_OUT}


def rope_of(config, parameters, layer_type, head_dim):
    """The frequencies of one kind of layers, and the factor of cosines and sines."""
    kind = parameters.get("rope_type", "default")
    if kind == "default":
        dims = int(head_dim * parameters.get("partial_rotary_factor", 1.0))
        exponents = torch.arange(0, dims, 2, dtype=torch.float64) / dims
        return {"frequencies": (1.0 / parameters["rope_theta"]**exponents).tolist(), "attention_factor": 1.0}
    compute = ROPE_INIT_FUNCTIONS[kind]
    options = {"layer_type": layer_type} if layer_type else {}
    frequencies, factor = compute(config, "cpu", **options)
    found = {"frequencies": frequencies.tolist(), "attention_factor": float(factor)}
    if kind == "longrope":
        found["long_frequencies"] = compute(config, "cpu", seq_len=config.max_position_embeddings)[0].tolist()
    return found


def ropes_of(config):
    parameters = getattr(config, "rope_parameters", None)
    if not parameters:
        return {}
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if "full_attention" in parameters:
        return {kind: rope_of(config, own, kind, head_dim) for kind, own in parameters.items()}
    return {"": rope_of(config, parameters, None, head_dim)}


def entry_of(name, file):
    options = dict(file)
    config = AutoConfig.for_model(options.pop("model_type"), **json.loads(json.dumps(options)))
    written = json.loads(config.to_json_string(use_diff=False))
    return {"name": name, "file": file, "written": trimmed(written), "ropes": ropes_of(config.get_text_config())}


def main():
    entries = [entry_of(name, file) for name, file in FILES.items()]
    lines = ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in entries)
    head = json.dumps(f"transformers {transformers.__version__}")
    text = f'{{"written by": {head},\n"models": [\n{lines}\n]}}\n'
    (Path(__file__).parent / "configs.json").write_text(text)


if __name__ == "__main__":
    sys.exit(main())
