// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cstdint>
#include <functional>
#include <ggml.h>
#include <gguf.h>
#include <memory>
#include <string>

/// A small model of random weights, as a GGUF file that libllama and the engine read. It has no vocabulary.
struct RandomModel {
    std::string architecture = "llama";
    ggml_type type = GGML_TYPE_F32; ///< of matrices
    int layers = 3;
    int width = 64;
    int heads = 4;
    int kv_heads = 2;
    int head_dim = 32;
    int feed_forward = 96;
    int vocabulary = 160;
    int window = 12; ///< of Gemma 3's sliding layers
    int taps = 4;    ///< of LFM2's convolutions, which are in all layers but each third
    bool ties_classifier = true;
    bool biases = false;        ///< of queries, keys and values
    bool rope_divisors = false; ///< as Llama 3.1 has them
    std::uint64_t seed = 1;
    /// Called before the file is written, to change what it says.
    std::function<void(gguf_context*)> change = {};
};

void write_gguf(const std::string& path, const RandomModel& model);

/// A model of each architecture that the engine knows, with what is particular about it.
RandomModel random_model(const std::string& architecture, ggml_type type = GGML_TYPE_F32);
