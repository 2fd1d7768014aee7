// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Descriptions from a config.json, against the config classes of transformers and the entries of models.hpp.
#include "configs.hpp"
#include "every_model.hpp"
#include "same_memory.hpp"
#include <cellar/models/config.hpp>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace test_config {

using namespace cellar;
using namespace cellar::models;
using nlohmann::json;

namespace {

RunTimeDescription described(const json& config) {
    const auto found = from_config(config);
    REQUIRE_MESSAGE(found, found.error().message);
    return *found;
}

void check_rope(const RunTimeRope& rope, const json& expected) {
    CHECK(rope.attention_factor == doctest::Approx(expected.at("attention_factor").get<double>()).epsilon(1e-6));
    const auto check = [](const std::vector<double>& found, const json& by_transformers) {
        REQUIRE(found.size() == by_transformers.size());
        for (std::size_t i = 0; i < found.size(); ++i)
            CHECK(found[i] == doctest::Approx(by_transformers[i].get<double>()).epsilon(1e-5));
    };
    check(frequencies(rope), expected.at("frequencies"));
    if (expected.contains("long_frequencies")) check(frequencies(rope, INT32_MAX), expected.at("long_frequencies"));
}

/// Of a config with one change.
std::string refusal_of(const std::string& name, const json& change) {
    json file = config_of(name).at("file");
    file.merge_patch(change);
    const auto found = from_config(file);
    return found ? "none" : found.error().message;
}

json one_layer(const char* type) {
    return {{"model_type", type}, {"num_hidden_layers", 1}, {"num_attention_heads", 4}, {"hidden_size", 64}};
}

} // namespace

TEST_CASE("a published configuration, and what its class in transformers writes, are read alike") {
    CHECK(configs().size() >= 30);
    for (const json& model : configs()) {
        CAPTURE(model.at("name").get<std::string>());
        const RunTimeDescription file = described(model.at("file"));
        const RunTimeDescription written = described(model.at("written"));
        check_same_memory(file, written);
        CHECK(file.architecture == written.architecture);
        CHECK(file.trained_context == written.trained_context);
        for (std::size_t i = 0; i < file.layers.size(); ++i) {
            CHECK(file.layers[i].heads == written.layers[i].heads);
            CHECK(file.layers[i].scale == written.layers[i].scale);
            CHECK(file.layers[i].soft_cap == written.layers[i].soft_cap);
            CHECK(file.layers[i].learned_sinks == written.layers[i].learned_sinks);
            CHECK(file.layers[i].rope.attention_factor == written.layers[i].rope.attention_factor);
        }
    }
}

TEST_CASE("every model of models.hpp that transformers has is what its configuration says") {
    int compared = 0;
    for_each_model([&]<class M>(M) {
        const std::string name{M::description.name};
        CAPTURE(name);
        const json model = config_of(name);
        if (model.is_null()) {
            CHECK(name == "RWKV 7 2.9B"); // not in transformers
            return;
        }
        check_same_memory(described(model.at("written")), at_run_time(M::description));
        ++compared;
    });
    CHECK(compared == 17);
}

TEST_CASE("rotary frequencies and attention factors are those that transformers computes") {
    int compared = 0;
    for (const json& model : configs()) {
        CAPTURE(model.at("name").get<std::string>());
        for (const LayerDescription& layer : described(model.at("file")).layers) {
            if (layer.rope.pairing == Pairing::none) continue;
            const json& ropes = model.at("ropes");
            const char* const kind = layer.kind == LayerKind::sliding ? "sliding_attention" : "full_attention";
            check_rope(layer.rope, ropes.contains("") ? ropes.at("") : ropes.at(kind));
            ++compared;
        }
    }
    CHECK(compared > 800);
}

TEST_CASE("LongRoPE has former names in files of Phi-3") {
    json file = config_of("a Phi-4 mini with made-up factors").at("file");
    const RunTimeDescription expected = described(file);
    CHECK_FALSE(expected.layers[0].rope.long_divisors.empty());
    for (const char* const name : {"su", "yarn"}) {
        CAPTURE(name);
        file["rope_scaling"]["type"] = name;
        const RunTimeDescription found = described(file);
        check_same_memory(found, expected);
        CHECK(found.layers[0].rope.long_divisors == expected.layers[0].rope.long_divisors);
        CHECK(found.layers[0].rope.attention_factor == expected.layers[0].rope.attention_factor);
    }
}

TEST_CASE("scales, soft caps and sinks are those of the model's class") {
    const auto layer = [](const char* name, std::size_t i = 0) {
        return described(config_of(name).at("file")).layers[i];
    };
    CHECK(layer("Llama 3.1 8B").scale == doctest::Approx(1 / std::sqrt(128.0)));
    CHECK(layer("Llama 3.1 8B").heads == 32);
    CHECK(layer("Llama 3.1 8B").soft_cap == 0);
    CHECK(layer("Gemma 2 9B").soft_cap == 50);
    CHECK(layer("Gemma 2 27B").scale == doctest::Approx(1.0 / 12)); // query_pre_attn_scalar is 144
    CHECK(layer("Gemma 3 4B").scale == doctest::Approx(1.0 / 16));
    CHECK(layer("Gemma 3 4B").soft_cap == 0);
    CHECK(layer("Granite 3.3 8B").scale == 0.0078125);
    CHECK(layer("gpt-oss 20b").learned_sinks);
    CHECK_FALSE(layer("Qwen 3 8B").learned_sinks);
    // The rotary part and the other one of a query have 192 elements; YaRN multiplies twice by 0.1 ln 40 + 1.
    const double magnitude = 0.1 * std::log(40.0) + 1;
    CHECK(layer("DeepSeek-V3").scale == doctest::Approx(magnitude * magnitude / std::sqrt(192.0)));
    CHECK(layer("DeepSeek-V3").heads == 128);
}

TEST_CASE("layers without rotary positions, and chunked layers") {
    const RunTimeDescription smollm = described(config_of("SmolLM 3 3B").at("file"));
    for (std::size_t i = 0; i < smollm.layers.size(); ++i)
        CHECK((smollm.layers[i].rope.pairing == Pairing::none) == (i % 4 == 3));

    const RunTimeDescription scout = described(config_of("Llama 4 Scout").at("file"));
    CHECK(scout.architecture == "llama4_text");
    CHECK(scout.trained_context == 10485760);
    CHECK(scout.count(LayerKind::chunked) == 36);
    CHECK(scout.layers[0].window == 8192);
    CHECK((scout.layers[0].rope.pairing == Pairing::interleaved));
    CHECK((scout.layers[3].kind == LayerKind::full));
    CHECK((scout.layers[3].rope.pairing == Pairing::none));

    json listed = one_layer("smollm3");
    listed["num_hidden_layers"] = 2;
    listed["no_rope_layers"] = {0, 1}; // whatever its name says, 1 is a layer with rotary positions
    CHECK((described(listed).layers[0].rope.pairing == Pairing::none));
    CHECK((described(listed).layers[1].rope.pairing == Pairing::neox));
}

TEST_CASE("each layer of a decoder with an encoder is two: one of its own tokens, and one of the encoder's") {
    struct Expected {
        const char* name;
        int layers, heads, dim;
        double scale;
        int context, input;
    };
    const Expected all[] = {{"T5 small", 6, 8, 64, 1, 0, 0},
                            {"Flan-T5 XL", 24, 32, 64, 1, 0, 0},
                            {"Whisper tiny", 4, 6, 64, 0.125, 448, 1500},
                            {"Whisper large-v3-turbo", 4, 20, 64, 0.125, 448, 1500},
                            {"BART large", 12, 16, 64, 0.125, 1024, 1024}};
    for (const Expected& expected : all) {
        CAPTURE(expected.name);
        for (const char* const as : {"file", "written"}) {
            const RunTimeDescription found = described(config_of(expected.name).at(as));
            REQUIRE(std::ssize(found.layers) == 2 * expected.layers);
            for (std::size_t i = 0; i < found.layers.size(); ++i) {
                const LayerDescription& layer = found.layers[i];
                CHECK((layer.kind == (i % 2 == 0 ? LayerKind::full : LayerKind::encoder)));
                CHECK(layer.shape.kv_heads == expected.heads);
                CHECK(layer.shape.key_dim == expected.dim);
                CHECK(layer.shape.value_dim == expected.dim);
                CHECK(layer.heads == expected.heads);
                CHECK(layer.scale == expected.scale);
                CHECK((layer.rope.pairing == Pairing::none));
            }
            CHECK(found.trained_context == expected.context);
            CHECK(found.input_tokens == expected.input);
        }
    }
    CHECK(described(config_of("Llama 3.1 8B").at("file")).input_tokens == 0);
    CHECK(refusal_of("Whisper tiny", {{"decoder_attention_heads", 7}})
          == "config: 'd_model' is 384, and cannot be divided into 7 heads");
    CHECK(refusal_of("Whisper tiny", {{"decoder_layers", 501}})
          == "config: 'decoder_layers' is 501, expected an integer from 1 to 500");
    CHECK(refusal_of("T5 small", {{"num_layers", nullptr}})
          == "config: 'num_layers' is missing, expected an integer from 1 to 500");
    CHECK(refusal_of("T5 small", {{"num_decoder_layers", 2}}) == "none");
}

TEST_CASE("a null is not a missing key: Mistral 7B v0.3 has no window") {
    CHECK(described(config_of("Mistral 7B v0.3").at("file")).count(LayerKind::full) == 32);
    CHECK(described(config_of("Mistral 7B v0.1").at("file")).count(LayerKind::sliding) == 32);
    CHECK(described(one_layer("mistral")).layers[0].window == 4096); // the class has one
    CHECK(described(one_layer("mixtral")).count(LayerKind::full) == 1);
}

TEST_CASE("unknown models are refused with the name and the way out") {
    const std::string sentence = refusal_of("Llama 3.1 8B", {{"model_type", "tomorrow"}});
    CHECK(sentence.starts_with("config: the model_type 'tomorrow' is not known, expected one of llama, mistral, "));
    CHECK(sentence.ends_with("for another model, fill in a RunTimeDescription as docs/models.md shows"));
    CHECK(refusal_of("Llama 3.1 8B", {{"model_type", "\x1b[31m" + std::string(100, 'x')}})
              .starts_with("config: the model_type '?[31mxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...' is not known"));
}

TEST_CASE("configurations that contradict themselves are refused with a sentence") {
    const std::vector<std::pair<json, std::string>> llama{
        {{{"model_type", nullptr}}, "'model_type' is missing, expected a text"},
        {{{"model_type", 3}}, "'model_type' is 3, expected a text"},
        {{{"num_hidden_layers", nullptr}}, "'num_hidden_layers' is missing, expected an integer from 1 to 1000"},
        {{{"num_hidden_layers", 0}}, "'num_hidden_layers' is 0, expected an integer from 1 to 1000"},
        {{{"num_hidden_layers", 1e30}}, "'num_hidden_layers' is 1e+30, expected an integer from 1 to 1000"},
        {{{"num_hidden_layers", "many"}}, "'num_hidden_layers' is 'many', expected an integer from 1 to 1000"},
        {{{"num_hidden_layers", {32}}}, "'num_hidden_layers' is a list, expected an integer from 1 to 1000"},
        {{{"num_hidden_layers", 32.5}}, "'num_hidden_layers' is 32.5, expected an integer from 1 to 1000"},
        {{{"num_attention_heads", -4}}, "'num_attention_heads' is -4, expected an integer from 1 to 262144"},
        {{{"num_attention_heads", 33}}, "'hidden_size' is 4096, and cannot be divided into 33 heads"},
        {{{"num_key_value_heads", 5}}, "layer 0 has 32 heads of queries, expected a multiple of its 5 heads of keys"},
        {{{"head_dim", 7}}, "layer 0 has 7 rotary elements from element 0 on, expected an even number within its 7"},
        {{{"head_dim", 262144}}, "layer 0 has rows of 2097152 elements, expected at most 262144"},
        {{{"rope_theta", -1}}, "'rope_theta' is -1, expected a number above 0"},
        {{{"rope_theta", -1e-9}}, "'rope_theta' is -1e-09, expected a number above 0"},
        {{{"hidden_size", 123456789012345.0}},
         "'hidden_size' is 123456789012345, expected an integer from 1 to 262144"},
        {{{"rope_scaling", {{"rope_type", "dynamic"}}}},
         "rotary positions are scaled by the length of the text ('dynamic'), which keys that are already stored cannot "
         "follow"},
        {{{"rope_scaling", {{"rope_type", "spiral"}}}},
         "rotary positions are scaled by 'spiral', expected 'default', 'linear', 'llama3', 'yarn' or 'longrope'"},
        {{{"rope_scaling", {{"factor", 0}}}}, "'rope_scaling.factor' is 0, expected a number above 0"},
        {{{"rope_scaling", {{"factor", nullptr}}}}, "'rope_scaling.factor' is missing, expected a number above 0"},
        {{{"rope_scaling", {{"high_freq_factor", 1}}}},
         "layer 0 has rotary parameters (base, scaling) of which one is not positive, or not finite"},
        {{{"rope_scaling", {{"rope_type", "longrope"}}}}, "'rope_scaling.short_factor' or 'long_factor' is missing"},
        {{{"rope_scaling", {{"rope_type", "longrope"}, {"short_factor", {1, 2}}, {"long_factor", {1, 2}}}}},
         "layer 0 has 2 divisors of frequencies, expected 64, one for each pair"},
        {{{"rope_scaling", {{"rope_type", nullptr}}}}, "'rope_scaling.rope_type' is missing, expected a text"},
        {{{"rope_scaling", {{"rope_type", 3}}}}, "'rope_scaling.rope_type' is 3, expected a text"},
        {{{"rope_scaling", "yarn"}}, "'rope_scaling' is 'yarn', expected an object"},
        {{{"rope_parameters", {1.0, 2.0}}}, "'rope_parameters' is a list, expected an object"},
        {{{"rope_parameters", {{"type", "spiral"}, {"factor", 8}}}},
         "rotary positions are scaled by 'spiral', expected 'default', 'linear', 'llama3', 'yarn' or 'longrope'"},
        {{{"partial_rotary_factor", 1.5}}, "'partial_rotary_factor' is 1.5, expected at most 1"},
        {{{"layer_types", {"full_attention"}}}, "'num_hidden_layers' is 32, and 1 layer types are listed"},
        {{{"layer_types", {1, 2}}}, "'layer_types' is a list, expected a list of texts"},
        {{{"use_bidirectional_attention", true}},
         "the model attends to later tokens ('use_bidirectional_attention'), expected causal attention"},
    };
    for (const auto& [change, sentence] : llama) CHECK(refusal_of("Llama 3.1 8B", change) == "config: " + sentence);

    json typed = one_layer("llama");
    typed["layer_types"] = {"telepathy"};
    CHECK(from_config(typed).error().message == "config: a layer is of the type 'telepathy', which is not known");
    typed["layer_types"] = {"sliding_attention"};
    CHECK(from_config(typed).error().message == "config: layer 0 has a window of 0, expected at least 1");
    typed["layer_types"] = {"mamba"};
    CHECK(from_config(typed).error().message == "config: a layer is recurrent, expected none in this model_type");
    typed["layer_types"] = {"mlp"};
    CHECK(described(typed).count(LayerKind::nothing) == 1);

    CHECK(refusal_of("Gemma 3 4B", {{"text_config", {{"sliding_window", -3}}}})
          == "config: 'text_config.sliding_window' is -3, expected an integer from 0 to 1073741824");
    CHECK(refusal_of("SmolLM 3 3B", {{"no_rope_layers", {1, 1}}})
          == "config: 'no_rope_layers' has 2 values, expected for layer 2 an integer from 0 to 1");
    CHECK(refusal_of("Granite 4.0 H Tiny", {{"mamba_n_heads", 7}})
          == "config: 3072 channels of a recurrent layer cannot be divided into its 7 heads");
    CHECK(refusal_of("Mamba 2 2.7B", {{"head_dim", 32}})
          == "config: 'head_dim' is 32, expected 64 for 5120 channels in 80 heads");
    CHECK(refusal_of("Mamba 2 2.7B", {{"state_size", 262144}, {"n_groups", 80}})
          == "config: a recurrent layer has 41948160 channels, expected at most 16777216");
    CHECK(refusal_of("Mamba 2 2.7B", {{"n_groups", 3}})
          == "config: 80 heads of a recurrent layer cannot be divided into its 3 groups");
    CHECK(refusal_of("Qwen3-Next 80B-A3B", {{"linear_num_key_heads", 5}})
          == "config: a recurrent layer has 32 heads of values, expected a multiple of its 5 heads of keys");
    CHECK(refusal_of("Jamba 1.5 Mini", {{"attn_layer_offset", 8}})
          == "config: 'attn_layer_offset' is 8, expected less than 'attn_layer_period', which is 8");
    CHECK(refusal_of("Jamba 1.5 Mini", {{"attn_layer_offset", nullptr}, {"attn_layer_period", 4}})
          == "config: 'attn_layer_offset' is 4, expected less than 'attn_layer_period', which is 4");
    CHECK(refusal_of("LFM2 1.2B", {{"full_attn_idxs", {2, 16}}})
          == "config: 'full_attn_idxs' has 16, expected integers from 0 to 15");
    CHECK(refusal_of("LFM2 1.2B", {{"full_attn_idxs", {2.5}}})
          == "config: 'full_attn_idxs' has 2.5, expected integers from 0 to 15");
    CHECK(refusal_of("Nemotron-H 8B", {{"hybrid_override_pattern", "M-M?"}, {"num_hidden_layers", 4}})
          == "config: a layer is of the type '?', which is not known");
    CHECK(refusal_of("Nemotron-H 8B", {{"hybrid_override_pattern", nullptr}})
          == "config: 'hybrid_override_pattern' is missing, expected a text");
    CHECK(refusal_of("gpt-oss 20b", {{"rope_scaling", nullptr}})
          == "config: 'rope_scaling.factor' is missing, expected a number above 0");
}

TEST_CASE("anything that JSON can hold is refused or read, and never ends the program") {
    const std::vector<json> values{nullptr,    true, 0,        -1,     1,        3.5,           1e300,
                                   UINT64_MAX, "",   "x",      {1, 2}, {"a"},    json::array(), json::object(),
                                   {{1}, {2}}, 2,    {0, "a"}, 100000, INT64_MIN};
    std::set<std::pair<std::string, std::string>> done; // keys of each type of model, of which there are several models
    for (const json& model : configs()) {
        for (const char* const of : {"file", "written"}) {
            for (const auto& [key, old] : model.at(of).items()) {
                json changed = model.at(of);
                if (!done.emplace(changed.value("model_type", ""), key).second) continue;
                for (const json& value : values) {
                    changed[key] = value;
                    const auto found = from_config(changed);
                    if (found) CHECK(check(*found));
                    if (!found) CHECK(found.error().message.starts_with("config: "));
                }
            }
        }
    }
    for (const json& value : values) CHECK_FALSE(from_config(value.is_object() ? value : json{{"a", value}}));
}

TEST_CASE("keys may come from any library") {
    const auto found = from_config([](const std::string& key) -> std::optional<ConfigValue> {
        if (key == "model_type") return "llama";
        if (key == "num_hidden_layers") return std::int64_t{2};
        if (key == "num_attention_heads") return std::int64_t{4};
        if (key == "hidden_size") return 64.0;
        return std::nullopt;
    });
    REQUIRE(found);
    CHECK(found->layers.size() == 2);
    CHECK(found->layers[1].shape.key_dim == 16);
}

} // namespace test_config
