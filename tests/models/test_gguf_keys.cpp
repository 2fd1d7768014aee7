// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Descriptions from the keys of GGUF files, against those from the models' config.json.
#include "configs.hpp"
#include "same_memory.hpp"
#include <cellar/models/config.hpp>
#include <cellar/models/gguf_keys.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace test_gguf_keys {

using namespace cellar;
using namespace cellar::models;

namespace {

using Map = std::map<std::string, ConfigValue>;

/// The keys of a file; those of the architecture are without its name.
Map file_of(const std::string& architecture, const Map& own) {
    Map all{{"general.architecture", architecture}};
    for (const auto& [key, value] : own) all[architecture + "." + key] = value;
    return all;
}

ModelResult<RunTimeDescription> read(const Map& file, const std::vector<float>& divisors = {},
                                     const std::vector<float>& long_divisors = {}) {
    const ConfigKeys keys = [&](const std::string& key) {
        const auto found = file.find(key);
        return found == file.end() ? std::nullopt : std::optional{found->second};
    };
    return from_gguf_keys(keys, divisors, long_divisors);
}

RunTimeDescription described(const Map& file, const std::vector<float>& divisors = {}) {
    const auto found = read(file, divisors);
    REQUIRE_MESSAGE(found, found.error().message);
    return *found;
}

ConfigValue number(std::int64_t value) {
    return value;
}

/// The keys that every file has.
Map common(int layers, int heads, int kv_heads, int width, int context, double base) {
    return {{"block_count", number(layers)},     {"attention.head_count", number(heads)},
            {"embedding_length", number(width)}, {"attention.head_count_kv", number(kv_heads)},
            {"context_length", number(context)}, {"rope.freq_base", base}};
}

/// With more keys, or others.
Map with(Map map, const Map& more) {
    for (const auto& [key, value] : more) map[key] = value;
    return map;
}

/// llama.cpp permutes the keys of some architectures, so that their rotary pairs are neighbours.
void check_as_config(const Map& file, const char* name, bool same_pairs = true) {
    CAPTURE(name);
    const auto expected = from_config(config_of(name).at("file"));
    REQUIRE(expected);
    const RunTimeDescription found = described(file);
    check_same_memory(found, *expected, same_pairs);
    CHECK(found.trained_context == expected->trained_context);
    for (std::size_t i = 0; i < found.layers.size(); ++i) {
        CHECK(found.layers[i].heads == expected->layers[i].heads);
        CHECK(found.layers[i].scale == doctest::Approx(expected->layers[i].scale));
        CHECK(found.layers[i].soft_cap == expected->layers[i].soft_cap);
        CHECK(found.layers[i].learned_sinks == expected->layers[i].learned_sinks);
        CHECK(found.layers[i].rope.attention_factor == doctest::Approx(expected->layers[i].rope.attention_factor));
    }
}

/// For each layer, `value` where the letter of the pattern is `letter`, else 0.
ConfigValue listed(const std::string& pattern, char letter, double value) {
    std::vector<double> list;
    for (const char c : pattern) list.push_back(c == letter ? value : 0);
    return list;
}

const Map gemma3 = with(common(34, 8, 4, 2560, 131072, 1e6), {{"attention.key_length", number(256)},
                                                              {"attention.value_length", number(256)},
                                                              {"attention.sliding_window", number(1024)},
                                                              {"rope.scaling.type", "linear"},
                                                              {"rope.scaling.factor", 8.0}});

} // namespace

TEST_CASE("attention models are described as by their config.json") {
    const RunTimeDescription llama = described(file_of("llama", common(30, 9, 3, 576, 8192, 100000)));
    CHECK((llama.layers[0].rope.pairing == Pairing::interleaved));
    check_as_config(file_of("llama", common(30, 9, 3, 576, 8192, 100000)), "SmolLM 2 135M", false);
    const Map head{{"attention.key_length", number(128)}, {"attention.value_length", number(128)}};
    check_as_config(file_of("qwen2", common(28, 28, 4, 3584, 32768, 1e6)), "Qwen 2.5 7B");
    check_as_config(file_of("qwen3", with(common(36, 32, 8, 4096, 40960, 1e6), head)), "Qwen 3 8B");
    check_as_config(file_of("qwen3moe", with(common(48, 32, 4, 2048, 40960, 1e6), head)), "Qwen 3 30B-A3B");
    check_as_config(file_of("phi3", common(40, 40, 10, 5120, 16384, 250000)), "Phi-4");
    check_as_config(file_of("smollm3", common(36, 16, 4, 2048, 65536, 5e6)), "SmolLM 3 3B", false);
    check_as_config(file_of("granite", with(common(40, 32, 8, 4096, 131072, 1e7), {{"attention.scale", 0.0078125}})),
                    "Granite 3.3 8B", false);
}

TEST_CASE("scaling by YaRN, and a file without rotary positions") {
    const Map yarn{{"attention.key_length", number(128)},
                   {"attention.value_length", number(128)},
                   {"rope.scaling.type", "yarn"},
                   {"rope.scaling.factor", 4.0},
                   {"rope.scaling.original_context_length", number(32768)}};
    check_as_config(file_of("qwen3", with(common(36, 32, 8, 4096, 131072, 1e6), yarn)), "Qwen 3 8B with YaRN");
    const Map plain = with(common(4, 4, 4, 64, 100, 1e4), {{"rope.scaling.finetuned", false}});
    CHECK((described(file_of("granite", plain)).layers[0].rope.pairing == Pairing::none));
    CHECK((described(file_of("llama", plain)).layers[0].rope.pairing == Pairing::interleaved)); // only Granite's switch
}

TEST_CASE("models with windows are described as by their config.json") {
    check_as_config(file_of("gemma3", gemma3), "Gemma 3 4B");
    const Map gemma2{{"attention.key_length", number(256)},
                     {"attention.value_length", number(256)},
                     {"attention.sliding_window", number(4096)},
                     {"attn_logit_softcapping", 50.0}};
    check_as_config(file_of("gemma2", with(common(42, 16, 8, 3584, 8192, 1e4), gemma2)), "Gemma 2 9B");
    const Map largest = with(gemma2, {{"attention.key_length", number(128)}, {"attention.value_length", number(128)}});
    check_as_config(file_of("gemma2", with(common(46, 32, 16, 4608, 8192, 1e4), largest)), "Gemma 2 27B");

    // The windows of a file are a period, or a list.
    const auto third_is_full =
        described(file_of("gemma3", with(gemma3, {{"attention.sliding_window_pattern", number(3)}})));
    CHECK((third_is_full.layers[2].kind == LayerKind::full));
    CHECK((third_is_full.layers[5].kind == LayerKind::full));
    CHECK(third_is_full.count(LayerKind::full) == 11);
    std::vector<double> pattern(34, 1.0);
    pattern[7] = 0;
    const auto one_is_full =
        described(file_of("gemma3", with(gemma3, {{"attention.sliding_window_pattern", pattern}})));
    CHECK((one_is_full.layers[7].kind == LayerKind::full));
    CHECK(one_is_full.count(LayerKind::full) == 1);
    CHECK(frequencies(one_is_full.layers[0].rope) == rope_frequencies(256, 10000));
    const auto no_window = described(file_of("gemma3", with(gemma3, {{"attention.sliding_window", number(0)}})));
    CHECK(no_window.count(LayerKind::full) == 34);
}

TEST_CASE("gpt-oss is scaled as ggml does it, at whole pairs") {
    const Map keys =
        with(common(24, 64, 8, 2880, 131072, 150000), {{"attention.key_length", number(64)},
                                                       {"attention.value_length", number(64)},
                                                       {"attention.sliding_window", number(128)},
                                                       {"rope.scaling.type", "yarn"},
                                                       {"rope.scaling.factor", 32.0},
                                                       {"rope.scaling.original_context_length", number(4096)}});
    const RunTimeDescription found = described(file_of("gpt-oss", keys));
    RunTimeDescription expected = *from_config(config_of("gpt-oss 20b").at("file"));
    for (LayerDescription& layer : expected.layers) std::get<YarnScaling>(layer.rope.scaling).whole_pairs = true;
    check_same_memory(found, expected);
    CHECK(found.layers[0].learned_sinks);
    CHECK(found.layers[0].rope.attention_factor == doctest::Approx(0.1 * std::log(32.0) + 1));
}

TEST_CASE("chunked layers of Llama 4, and a file that has none") {
    const Map keys = with(common(48, 40, 8, 5120, 10485760, 5e5),
                          {{"attention.key_length", number(128)}, {"attention.value_length", number(128)}});
    const RunTimeDescription found = described(file_of("llama4", keys));
    CHECK(found.count(LayerKind::chunked) == 36);
    CHECK(found.layers[2].window == 8192);
    CHECK((found.layers[3].rope.pairing == Pairing::none));
    const auto full = described(file_of("llama4", with(keys, {{"attention.sliding_window", number(0)}})));
    CHECK(full.count(LayerKind::full) == 48);
    CHECK((full.layers[3].rope.pairing == Pairing::interleaved));
}

TEST_CASE("a latent is described as by its config.json") {
    const Map keys =
        with(common(61, 128, 1, 7168, 163840, 1e4), {{"attention.key_length", number(576)},
                                                     {"attention.value_length", number(512)},
                                                     {"attention.key_length_mla", number(192)},
                                                     {"attention.value_length_mla", number(128)},
                                                     {"attention.kv_lora_rank", number(512)},
                                                     {"rope.dimension_count", number(64)},
                                                     {"rope.scaling.type", "yarn"},
                                                     {"rope.scaling.factor", 40.0},
                                                     {"rope.scaling.original_context_length", number(4096)},
                                                     {"rope.scaling.yarn_log_multiplier", 0.1}});
    check_as_config(file_of("deepseek2", keys), "DeepSeek-V3");
}

TEST_CASE("hybrids and recurrent models are described as by their config.json") {
    const std::string granite = "MMMMM*MMMMMMMMM*MMMMMMMMM*MMMMMMMMM*MMMM";
    const Map mamba{{"ssm.conv_kernel", number(4)}, {"ssm.state_size", number(128)}};
    const Map tiny = with(mamba, {{"ssm.inner_size", number(3072)},
                                  {"ssm.time_step_rank", number(48)},
                                  {"ssm.group_count", number(1)},
                                  {"attention.head_count_kv", listed(granite, '*', 4)},
                                  {"attention.scale", 0.0078125},
                                  {"rope.scaling.finetuned", false}});
    check_as_config(file_of("granitehybrid", with(common(40, 12, 4, 1536, 131072, 1e4), tiny)), "Granite 4.0 H Tiny");

    const std::string nemotron = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-";
    const Map nvidia = with(mamba, {{"ssm.inner_size", number(8192)},
                                    {"ssm.time_step_rank", number(128)},
                                    {"ssm.group_count", number(8)},
                                    {"attention.key_length", number(128)},
                                    {"attention.value_length", number(128)},
                                    {"attention.head_count_kv", listed(nemotron, '*', 8)},
                                    {"feed_forward_length", listed(nemotron, '-', 21504)}});
    check_as_config(file_of("nemotron_h", with(common(52, 32, 8, 4096, 8192, 1e4), nvidia)), "Nemotron-H 8B");

    const Map jamba{{"ssm.conv_kernel", number(4)},
                    {"ssm.state_size", number(16)},
                    {"ssm.inner_size", number(8192)},
                    {"attention.head_count_kv", listed("MMMM*MMMMMMM*MMMMMMM*MMMMMMM*MMM", '*', 8)}};
    check_as_config(file_of("jamba", with(common(32, 32, 8, 4096, 262144, 1e4), jamba)), "Jamba 1.5 Mini");

    const Map lfm2{{"shortconv.l_cache", number(3)}, {"attention.head_count_kv", listed("CC*CC*CC*C*C*C*C", '*', 8)}};
    check_as_config(file_of("lfm2", with(common(16, 32, 8, 2048, 128000, 1e6), lfm2)), "LFM2 1.2B");

    const Map qwen = with(mamba, {{"ssm.inner_size", number(4096)},
                                  {"ssm.time_step_rank", number(32)},
                                  {"ssm.group_count", number(16)},
                                  {"attention.key_length", number(256)},
                                  {"attention.value_length", number(256)},
                                  {"rope.dimension_count", number(64)},
                                  {"full_attention_interval", number(4)}});
    check_as_config(file_of("qwen3next", with(common(48, 16, 2, 2048, 262144, 1e7), qwen)), "Qwen3-Next 80B-A3B");

    const Map mamba2 = with(mamba, {{"block_count", number(64)},
                                    {"ssm.inner_size", number(5120)},
                                    {"ssm.time_step_rank", number(80)},
                                    {"ssm.group_count", number(1)}});
    check_as_config(file_of("mamba2", mamba2), "Mamba 2 2.7B");
}

TEST_CASE("the divisors of a file's tensors divide the frequencies") {
    const Map llama = file_of("llama", common(2, 4, 4, 32, 131072, 1e4)); // heads of 8 elements
    const RunTimeDescription found = described(llama, {1, 1, 2, 8});
    std::vector<double> expected = rope_frequencies(8);
    expected[2] /= 2;
    expected[3] /= 8;
    CHECK(frequencies(found.layers[0].rope) == expected);
    CHECK(read(llama, {1, 2}).error().message
          == "GGUF file: layer 0 has 2 divisors of frequencies, expected 4, one for each pair");

    const Map phi = file_of(
        "phi3", with(common(2, 4, 4, 32, 131072, 1e4), {{"rope.scaling.type", "longrope"},
                                                        {"rope.scaling.attn_factor", 1.25},
                                                        {"rope.scaling.original_context_length", number(4096)}}));
    CHECK(read(phi).error().message
          == "GGUF file: rotary positions are scaled by LongRoPE, expected the tensors rope_factors_short.weight and "
             "rope_factors_long.weight as divisors");
    const auto both = read(phi, {1, 1, 1, 1}, {1, 2, 4, 8});
    REQUIRE(both);
    CHECK(both->layers[0].rope.attention_factor == 1.25);
    CHECK(frequencies(both->layers[0].rope, 4096) == rope_frequencies(8));
    CHECK(frequencies(both->layers[0].rope, 4097)[3] == doctest::Approx(rope_frequencies(8)[3] / 8));
}

TEST_CASE("layers that only predict drafts are left out") {
    const Map keys = with(common(5, 4, 4, 32, 100, 1e4), {{"nextn_predict_layers", number(1)}});
    CHECK(described(file_of("qwen3", keys)).layers.size() == 4);
}

TEST_CASE("files that are not known, or contradict themselves, are refused with a sentence") {
    const auto refusal = [](const Map& changes, const char* architecture = "llama") {
        const auto found = read(file_of(architecture, with(common(2, 4, 4, 32, 100, 1e4), changes)));
        return found ? "none" : found.error().message;
    };
    CHECK(refusal({}) == "none");
    CHECK(read({}).error().message == "GGUF file: 'general.architecture' is missing, expected a text");
    CHECK(refusal({}, "gpt9").starts_with("GGUF file: the architecture 'gpt9' is not known, expected one of llama, "));
    CHECK(refusal({{"block_count", number(0)}})
          == "GGUF file: 'llama.block_count' is 0, expected an integer from 1 to 1000");
    CHECK(refusal({{"nextn_predict_layers", number(2)}}) == "GGUF file: the model has 0 layers, expected 1 to 1000");
    CHECK(refusal({{"attention.head_count", number(3)}})
          == "GGUF file: layer 0 has 3 heads of queries, expected a multiple of its 4 heads of keys");
    CHECK(
        refusal({{"attention.head_count_kv", std::vector<double>{4}}})
        == "GGUF file: 'llama.attention.head_count_kv' has 1 values, expected for layer 1 an integer from 1 to 262144");
    CHECK(refusal({{"rope.scaling.type", "spiral"}})
          == "GGUF file: 'rope.scaling.type' is 'spiral', expected 'none', 'linear', 'yarn' or 'longrope'");
    CHECK(refusal({{"rope.freq_base", -1.0}}) == "GGUF file: 'llama.rope.freq_base' is -1, expected a number above 0");
    CHECK(refusal({{"rope.dimension_count", number(64)}})
          == "GGUF file: layer 0 has 64 rotary elements from element 0 on, expected an even number within its 8");
    CHECK(refusal({{"ssm.inner_size", number(10)},
                   {"ssm.state_size", number(4)},
                   {"ssm.conv_kernel", number(4)},
                   {"ssm.time_step_rank", number(3)},
                   {"ssm.group_count", number(1)}},
                  "mamba2")
          == "GGUF file: 'ssm.inner_size' is 10, and cannot be divided into 3 heads");
}

TEST_CASE("anything that a file can hold is refused or read, and never ends the program") {
    const std::vector<ConfigValue> values{std::monostate{},
                                          true,
                                          number(0),
                                          number(-1),
                                          number(7),
                                          number(INT64_MAX),
                                          0.5,
                                          std::nan(""),
                                          INFINITY,
                                          "x",
                                          std::vector<double>{},
                                          std::vector<double>{1, -1e300},
                                          std::vector<std::string>{"y"}};
    const Map all = with(gemma3, {{"attention.kv_lora_rank", number(16)},
                                  {"attention.key_length_mla", number(24)},
                                  {"rope.dimension_count", number(8)},
                                  {"rope.scaling.yarn_log_multiplier", 0.1},
                                  {"attention.sliding_window_pattern", number(2)},
                                  {"ssm.inner_size", number(64)},
                                  {"ssm.state_size", number(4)},
                                  {"ssm.conv_kernel", number(4)},
                                  {"ssm.time_step_rank", number(8)},
                                  {"ssm.group_count", number(1)},
                                  {"shortconv.l_cache", number(3)},
                                  {"feed_forward_length", number(0)}});
    for (const auto& known : models::detail::gguf_architectures) {
        for (const auto& [key, old] : all) {
            for (const ConfigValue& value : values) {
                const auto found = read(file_of(std::string{known.name}, with(all, {{key, value}})));
                if (found) CHECK(check(*found));
                if (!found) CHECK(found.error().message.starts_with("GGUF file: "));
            }
        }
    }
}

} // namespace test_gguf_keys
