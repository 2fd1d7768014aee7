#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the folders in tests/examples/folders: tiny models with random weights, made and run by `transformers`, and
tokenizers trained by `tokenizers`.

usage: scripts/sandbox --with "python3-torch python3-transformers" tests/examples/write_folders.py [NAME...]

With names, only these models.

The tokens of words-llama3 are also those of the model llama. A model's folder has config.json, the weights in bf16, in
one file or in several, and expected.safetensors: for each step of one text its `tokens` and `logits`, and the keys and
values of each layer of transformers' own cache after it, [heads, tokens, dim]; of a convolution its `inputs`,
[taps, width], of which ours are the last ones, and the `state` of a recurrence. Some recurrent layers of transformers
take single tokens after the first step.
"""
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM, DynamicCache, Gemma3ForCausalLM, Gemma3TextConfig, GptOssConfig, GptOssForCausalLM
from transformers import Gemma2Config, Gemma2ForCausalLM, JambaConfig, JambaForCausalLM, Mamba2Config, Mamba2ForCausalLM
from transformers import GraniteMoeHybridConfig, GraniteMoeHybridForCausalLM, Qwen3NextConfig, Qwen3NextForCausalLM
from transformers import Lfm2Config, Lfm2ForCausalLM, LlamaConfig, LlamaForCausalLM, NemotronHConfig, NemotronHForCausalLM
from transformers import Phi3Config, Phi3ForCausalLM
from transformers import MistralConfig, MistralForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

FOLDERS = Path(__file__).parent / "folders"
COMMON = {"vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4,
          "num_key_value_heads": 2, "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 2,
          "pad_token_id": 0, "initializer_range": 0.4}
MODELS = {
    "llama": (LlamaForCausalLM, LlamaConfig(
        **{**COMMON, "vocab_size": 400}, num_hidden_layers=3, tie_word_embeddings=False, rope_theta=10000.0,
        rope_scaling={"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                      "original_max_position_embeddings": 16})),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config(
        **COMMON, num_hidden_layers=2, head_dim=16, tie_word_embeddings=True, rope_theta=1000000.0)),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(**COMMON, num_hidden_layers=1, rope_theta=10000.0)),
    "mistral": (MistralForCausalLM, MistralConfig(
        **{**COMMON, "max_position_embeddings": 32}, num_hidden_layers=1, sliding_window=6, rope_theta=10000.0)),
    "gemma3": (Gemma3ForCausalLM, Gemma3TextConfig(
        **COMMON, num_hidden_layers=5, head_dim=8, sliding_window=8, sliding_window_pattern=3,
        query_pre_attn_scalar=12, rope_scaling={"rope_type": "linear", "factor": 2.0})),
    "gpt_oss": (GptOssForCausalLM, GptOssConfig(
        **COMMON, num_hidden_layers=2, head_dim=8, sliding_window=8, num_local_experts=4, num_experts_per_tok=2,
        rope_parameters={"rope_type": "yarn", "rope_theta": 150000.0, "factor": 4.0, "beta_fast": 32.0,
                         "beta_slow": 1.0, "truncate": False, "original_max_position_embeddings": 16})),
    "deepseek_v3": (DeepseekV3ForCausalLM, DeepseekV3Config(
        **{**COMMON, "num_key_value_heads": 4}, num_hidden_layers=2, moe_intermediate_size=16, n_routed_experts=8,
        n_group=4, topk_group=2, num_experts_per_tok=3, first_k_dense_replace=1, q_lora_rank=12, kv_lora_rank=16,
        qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=6,
        rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "mscale": 1.0,
                         "mscale_all_dim": 0.7, "original_max_position_embeddings": 16})),
    "lfm2": (Lfm2ForCausalLM, Lfm2Config(
        **COMMON, num_hidden_layers=3, conv_L_cache=3, layer_types=["conv", "conv", "full_attention"],
        block_multiple_of=16, rope_parameters={"rope_type": "default", "rope_theta": 10000.0})),
    "granite4": (GraniteMoeHybridForCausalLM, GraniteMoeHybridConfig(
        **{**COMMON, "intermediate_size": 24}, num_hidden_layers=3, layer_types=["mamba", "attention", "mamba"],
        shared_intermediate_size=40, num_local_experts=6, num_experts_per_tok=2, mamba_n_heads=8, mamba_n_groups=2,
        mamba_d_state=6, mamba_d_conv=4, mamba_expand=2, attention_multiplier=0.2, embedding_multiplier=3.0,
        residual_multiplier=0.6, logits_scaling=2.0, tie_word_embeddings=True)),
    "gemma2": (Gemma2ForCausalLM, Gemma2Config(
        **COMMON, num_hidden_layers=4, head_dim=8, sliding_window=8, query_pre_attn_scalar=12,
        attn_logit_softcapping=5.0, final_logit_softcapping=8.0)),
    # All tokens of phi3 are within its original context, and those of phi3_long beyond it, from the first step on.
    "phi3": (Phi3ForCausalLM, Phi3Config(
        **COMMON, num_hidden_layers=2, sliding_window=8, original_max_position_embeddings=32,
        rope_scaling={"type": "longrope", "short_factor": [1.0, 1.25, 1.5, 2.0], "long_factor": [1.0, 2.0, 5.0, 9.0]})),
    "phi3_long": (Phi3ForCausalLM, Phi3Config(
        **COMMON, num_hidden_layers=2, original_max_position_embeddings=6, partial_rotary_factor=0.5,
        rope_scaling={"type": "longrope", "short_factor": [1.0, 1.5], "long_factor": [1.5, 4.0]})),
    # With larger weights, float and double differ by more than the tests' bound in this model.
    "jamba": (JambaForCausalLM, JambaConfig(
        **{**COMMON, "initializer_range": 0.25}, num_hidden_layers=4, attn_layer_period=4, attn_layer_offset=2, expert_layer_period=2,
        expert_layer_offset=1, num_experts=4, num_experts_per_tok=2, mamba_d_state=6, mamba_d_conv=4, mamba_expand=2,
        mamba_dt_rank=5, use_mamba_kernels=False)),
    "nemotron_h": (NemotronHForCausalLM, NemotronHConfig(
        **COMMON, hybrid_override_pattern="M-M*-", head_dim=8, mamba_num_heads=8, mamba_head_dim=6, n_groups=2,
        ssm_state_size=5, conv_kernel=4, use_mamba_kernels=False)),
    "mamba2": (Mamba2ForCausalLM, Mamba2Config(
        vocab_size=96, hidden_size=32, initializer_range=0.4, bos_token_id=1, eos_token_id=2, pad_token_id=0,
        num_hidden_layers=2, num_heads=8, head_dim=8, expand=2, n_groups=2, state_size=6, conv_kernel=4)),
    # With larger weights, transformers' own two algorithms for a delta net differ by more than the tests' bound.
    "qwen3_next": (Qwen3NextForCausalLM, Qwen3NextConfig(
        **{**COMMON, "initializer_range": 0.25}, num_hidden_layers=4, head_dim=16, linear_conv_kernel_dim=4, linear_key_head_dim=6,
        linear_value_head_dim=8, linear_num_key_heads=2, linear_num_value_heads=4, moe_intermediate_size=12,
        shared_expert_intermediate_size=20, num_experts=6, num_experts_per_tok=2, mlp_only_layers=[1],
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25})),
}
STEPS = [7, 1, 1, 12, 1, 3, 5]
SINGLE = {"lfm2": 23, "granite4": 12, "jamba": 12, "nemotron_h": 12, "mamba2": 12}  # steps after the first one, of a token each


def write_model(name, model_class, config):
    torch.manual_seed(7)
    config._attn_implementation = "eager"
    model = model_class(config).eval()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter.dim() == 1 or "bias" in parameter_name:  # norms are not all alike
                parameter.add_(torch.rand_like(parameter) - 0.5)
            parameter.copy_(parameter.to(torch.bfloat16).float())
        for buffer_name, buffer in model.named_buffers():
            if "correction" in buffer_name:
                buffer.copy_((torch.rand_like(buffer) - 0.5).to(torch.bfloat16).float())
    folder = FOLDERS / name
    expected = {}
    cache = DynamicCache(config=config)
    steps = [7] + SINGLE[name] * [1] if name in SINGLE else STEPS
    tokens = torch.randint(3, config.vocab_size, (1, sum(steps)))
    begin = 0
    with torch.no_grad():
        for step, count in enumerate(steps):
            batch = tokens[:, begin:begin + count]
            begin += count
            argument = "cache_params" if name == "mamba2" else "past_key_values"
            logits = model(batch, use_cache=True, **{argument: cache}).logits
            expected[f"step{step}.tokens"] = batch[0].float()
            expected[f"step{step}.logits"] = logits[0].clone()
            for index, layer in enumerate(cache.layers):
                at = f"step{step}.layer{index}."
                if getattr(layer, "keys", None) is not None:
                    expected[at + "keys"] = layer.keys[0].clone().contiguous()
                    expected[at + "values"] = layer.values[0].clone().contiguous()
                elif getattr(layer, "conv_states", None) is not None:
                    expected[at + "inputs"] = layer.conv_states[0].T.clone().contiguous()
                    if layer.recurrent_states is not None:
                        expected[at + "state"] = layer.recurrent_states[0].clone().contiguous()
    folder.mkdir(parents=True, exist_ok=True)
    model.to(torch.bfloat16).save_pretrained(folder, max_shard_size="30KB" if name == "gemma3" else "1GB")
    (folder / "generation_config.json").unlink(missing_ok=True)
    save_file(expected, folder / "expected.safetensors")


LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
TEXTS = [
    "", "Hello world", "  two  spaces   and more ", "It's I'LL we've they'D 'tis", "12345 and 1,000,000.50",
    "line\n\nbreaks\r\n \n  indented\n", "tabs\t\tand\ttrailing\t", "na\u00efve caf\u00e9 stra\u00dfe \u65e5\u672c\u8a9e \u041f\u0440\u0438\u0432\u0435\u0442",
    "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 emoji", "<|begin|>a<|end|><|begin|>", "a<|end|>b", "x=1;y+=2;// c++",
    "\u0967\u0968\u0969 \u00bd \u2167 digits", "\u00a0nbsp\u3000wide", "...!!!\n\n???", "a\u2581b", "don\u2019t", "'\u017f", "\ufffd", "abc123def4",
    " ", "\n", "   x", "word " * 20,
]


def byte_level(split):
    steps = [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split is None)]
    if split is None:
        steps.insert(0, pre_tokenizers.Digits(individual_digits=True))
    else:
        steps.insert(0, pre_tokenizers.Split(Regex(split), "isolated"))
    tokenizer = Tokenizer(models.BPE(ignore_merges=split == LLAMA3))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer, trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<|begin|>", "<|end|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet())


def by_character():
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    special = ["<unk>", "<|begin|>", "<|end|>", *[f"<0x{byte:02X}>" for byte in range(256)]]
    return tokenizer, trainers.BpeTrainer(vocab_size=600, special_tokens=special, show_progress=False,
                                          max_token_length=12)


def write_tokenizer(name, tokenizer, trainer, adds_begin, corpus):
    tokenizer.train_from_iterator(corpus, trainer)
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = [token for token in data["added_tokens"] if not token["content"].startswith("<0x")]
    tokenizer = Tokenizer.from_str(json.dumps(data))
    if adds_begin:
        begin = tokenizer.token_to_id("<|begin|>")
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<|begin|> $A", special_tokens=[("<|begin|>", begin)])
    folder = FOLDERS / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(json.loads(tokenizer.to_str()), separators=(",", ":")) + "\n")
    cases = []
    for text in TEXTS:
        ids = tokenizer.encode(text).ids
        cases.append({"text": text, "tokens": ids, "decoded": tokenizer.decode(ids)})
    (folder / "cases.json").write_text(json.dumps({"cases": cases}, separators=(",", ":")) + "\n")


def main():
    for name, (model_class, config) in MODELS.items():
        if not sys.argv[1:] or name in sys.argv[1:]:
            write_model(name, model_class, config)
    if sys.argv[1:]:
        return
    corpus = (Path(__file__).parents[2] / "LICENSE").read_text().splitlines()
    corpus.append("\u65e5\u672c\u8a9e \u65e5\u672c \u041f\u0440\u0438\u0432\u0435\u0442 caf\u00e9 \n\n\n    ")
    for name, split, adds_begin in [("words-llama3", LLAMA3, True), ("words-qwen", QWEN, False), ("words-smollm", None, False)]:
        write_tokenizer(name, *byte_level(split), adds_begin, corpus)
    write_tokenizer("words-gemma", *by_character(), True, [line.replace("\u0441", "") for line in corpus])


if __name__ == "__main__":
    sys.exit(main())
