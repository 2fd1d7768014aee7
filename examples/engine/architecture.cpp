// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "architecture.hpp"

#include <cellar/interop/ggml_model.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>

namespace engine {

namespace {

constexpr Architecture table[] = {
    {.name = "llama"}, // Mistral and SmolLM2, too
    {.name = "qwen2"},
    {.name = "qwen3", .head_norms = true},
    {.name = "gemma3",
     .head_norms = true,
     .post_norms = true,
     .gelu = true,
     .scaled_embedding = true,
     .scaled_queries = true},
    {.name = "lfm2", .head_norms = true, .final_norm = "token_embd_norm.weight"},
};

const Architecture& architecture_of(const GgufFile& file) {
    const auto value = file.value("general.architecture");
    const auto* const name = value ? std::get_if<std::string>(&*value) : nullptr;
    std::string known;
    for (const Architecture& a : table) {
        if (name != nullptr && a.name == *name) return a;
        known += (known.empty() ? "" : ", ") + std::string{a.name};
    }
    file.fail("the architecture is '" + (name == nullptr ? "" : *name) + "', expected one of " + known);
}

/// A number that has nothing to do with the memory. If there is one for each layer, that of a layer.
double number(const GgufFile& file, const std::string& key, std::size_t layer = 0) {
    const auto value = file.value(key);
    if (!value) file.fail(key + " is missing");
    if (const auto* n = std::get_if<std::int64_t>(&*value)) return static_cast<double>(*n);
    if (const auto* n = std::get_if<double>(&*value)) return *n;
    const auto* const list = std::get_if<std::vector<double>>(&*value);
    if (list == nullptr || layer >= list->size())
        file.fail(key + " has no number for layer " + std::to_string(layer) + ", expected one");
    return (*list)[layer];
}

int whole_number(const GgufFile& file, const std::string& key, std::size_t layer = 0) {
    constexpr double most = 1 << 24;
    const double found = number(file, key, layer);
    if (found >= 1 && found <= most && found == std::floor(found)) return static_cast<int>(found);
    file.fail(key + " is " + std::to_string(found) + ", expected a whole number from 1 to 2^24");
}

/// What the layers store, as far as the engine computes it.
cellar::models::RunTimeDescription described_memory(const GgufFile& file) {
    const ggml_tensor* const t = file.tensor("rope_freqs.weight");
    std::span<const float> divisors;
    if (t != nullptr && t->type == GGML_TYPE_F32)
        divisors = {static_cast<const float*>(t->data), static_cast<std::size_t>(ggml_nelements(t))};
    auto found = cellar::models::from_gguf(file.metadata(), divisors);
    if (!found) file.fail(found.error().message);
    if (found->trained_context == 0) file.fail("the length of the texts that it was trained with is missing");
    for (const LayerDescription& layer : found->layers)
        if (std::holds_alternative<cellar::YarnScaling>(layer.rope.scaling))
            file.fail("the rotary positions are scaled by YaRN, expected a linear scale or none");
    return *std::move(found);
}

} // namespace

std::vector<std::string_view> architectures() {
    std::vector<std::string_view> names;
    for (const Architecture& a : table) names.push_back(a.name);
    return names;
}

Shape read_shape(const GgufFile& file) {
    Shape s{.architecture = architecture_of(file), .memory = described_memory(file)};
    const std::string prefix = s.memory.architecture + ".";
    s.width = whole_number(file, prefix + "embedding_length");
    for (std::size_t i = 0; i < s.memory.layers.size(); ++i)
        s.feed_forward.push_back(whole_number(file, prefix + "feed_forward_length", i));
    const double epsilon = number(file, prefix + "attention.layer_norm_rms_epsilon");
    if (!(epsilon >= 0 && epsilon < 1))
        file.fail(prefix + "attention.layer_norm_rms_epsilon is " + std::to_string(epsilon)
                  + ", expected a number from 0 to 1");
    s.epsilon = static_cast<float>(epsilon);
    return s;
}

} // namespace engine
