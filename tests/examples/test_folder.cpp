// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Tiny models with random weights, against transformers: logits, and what its own cache holds after each step. See
// write_folders.py.
#include "folder/decoder.hpp"
#include "folder/generate.hpp"
#include "folder/model_folder.hpp"
#include "paths.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <generate/file.hpp>
#include <generate/safetensors.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace test_folder {

using folder::Decoder, folder::Full, folder::Matrix, folder::Memory, folder::ModelFolder, folder::Sliding;
using llama::Safetensors;

namespace {

std::string path_of(const std::string& name) {
    return cellar_test::source_dir() + "/tests/examples/folders/" + name;
}

/// More cells than tokens, so that a window's cells are in the order of positions.
const cellar::models::MemoryLimits roomy{.attention = {.sequences = 2, .capacity = 64, .batch = 16},
                                         .sliding = cellar::CacheLimits{.capacity = 64, .cells = 256}};

double largest_difference(const std::vector<float>& found, const std::vector<float>& expected) {
    REQUIRE(found.size() == expected.size());
    double largest = 0;
    for (std::size_t i = 0; i < found.size(); ++i) largest = std::fmax(largest, std::fabs(found[i] - expected[i]));
    return largest;
}

/// Of the largest number.
double largest_error(const std::vector<float>& found, const std::vector<float>& expected) {
    double largest = 0;
    for (const float number : expected) largest = std::fmax(largest, std::fabs(number));
    return largest_difference(found, expected) / largest;
}

std::vector<int> tokens_of(const Safetensors& expected, const std::string& step, int count) {
    std::vector<int> tokens;
    for (const float token : expected.tensor(step + "tokens", {count})) tokens.push_back(static_cast<int>(token));
    return tokens;
}

/// The rows of cells in the order of a tensor of transformers: [heads, tokens, dim].
template <class View>
std::vector<float> rows_of(const View& view, const std::vector<cellar::Cell>& cells, cellar::Cell first) {
    std::vector<float> rows;
    for (std::int64_t head = 0; head < view.extent(1); ++head)
        for (const cellar::Cell cell : cells)
            for (std::int64_t d = 0; d < view.extent(2); ++d) rows.push_back(view(cell - first, head, d));
    return rows;
}

/// Compares what a token of a pass sees, besides itself, with a layer of transformers' cache.
template <class Pass>
void check_layer(Pass& pass, int layer, const cellar::LayerShape& shape, const Safetensors& expected,
                 const std::string& at) {
    pass.mark_put(layer);
    std::vector<cellar::Cell> cells;
    for (const cellar::CellRange& run : pass.visible(0))
        for (cellar::Cell cell = run.first; cell < run.first + run.count; ++cell) cells.push_back(cell);
    cells.pop_back(); // the token's own
    const std::vector<std::int64_t> extents{shape.kv_heads, std::ssize(cells), shape.key_dim};
    const cellar::Cell first = pass.history().first;
    CHECK(largest_error(rows_of(pass.keys(layer), cells, first), expected.tensor(at + "keys", extents)) < 1e-5);
    CHECK(largest_error(rows_of(pass.values(layer), cells, first), expected.tensor(at + "values", extents)) < 1e-5);
}

/// The same for a layer of DeepSeek, whose stored latents become what transformers stores: for each head the elements of
/// keys that are not rotated, the rotated ones, those of even places first, and values.
template <class Pass>
void check_latents(Pass& pass, int layer, const cellar::models::LayerDescription& description, const Matrix& expand,
                   const Safetensors& expected, const std::string& at) {
    pass.mark_put(layer);
    std::vector<cellar::Cell> cells;
    for (const cellar::CellRange& run : pass.visible(0))
        for (cellar::Cell cell = run.first; cell < run.first + run.count; ++cell) cells.push_back(cell);
    cells.pop_back(); // the token's own
    const int latent = description.rope.begin;
    const int rotary = description.rope.dims;
    const auto rows = rows_of(pass.keys(layer), cells, pass.history().first);
    const Eigen::Map<const Matrix> stored{rows.data(), std::ssize(cells), latent + rotary};
    constexpr int plain = 8, value = 6;
    std::vector<float> keys, values;
    for (int head = 0; head < description.heads; ++head) {
        const Matrix expanded =
            stored.leftCols(latent) * expand.middleRows(head * (plain + value), plain + value).transpose();
        for (Eigen::Index row = 0; row < stored.rows(); ++row) {
            for (int i = 0; i < plain; ++i) keys.push_back(expanded(row, i));
            for (const int odd : {0, 1})
                for (int i = odd; i < rotary; i += 2) keys.push_back(stored(row, latent + i));
            for (int i = 0; i < value; ++i) values.push_back(expanded(row, plain + i));
        }
    }
    CHECK(largest_error(keys, expected.tensor(at + "keys", {description.heads, std::ssize(cells), plain + rotary}))
          < 1e-5);
    CHECK(largest_error(values, expected.tensor(at + "values", {description.heads, std::ssize(cells), value})) < 1e-5);
}

/// Compares what a recurrent layer remembers with transformers' cache, which has one input of its convolution more.
template <class Pass>
void check_state(Pass& pass, int layer, const std::vector<cellar::models::StateDescription>& stored,
                 const Safetensors& expected, const std::string& at) {
    const auto& micro_batch = pass.micro_batches()[0];
    const auto inputs = pass.template get<folder::RecentInputs>(layer, micro_batch);
    const int taps = stored[0].extents[0] + 1;
    const int width = stored[0].extents[1];
    const std::vector<float> found(&inputs(0, 0, 0), &inputs(0, 0, 0) + (taps - 1) * width);
    const std::vector<float> all = expected.tensor(at + "inputs", {taps, width});
    CHECK(largest_error(found, {all.begin() + width, all.end()}) < 1e-5);
    CHECK(expected.has(at + "state") == (stored.size() == 2));
    const float* state = nullptr;
    if constexpr (std::is_same_v<Pass, cellar::PassOf<folder::Recurrences>>)
        state = &pass.template get<folder::Matrices>(layer, micro_batch)(0, 0, 0, 0);
    if constexpr (std::is_same_v<Pass, cellar::PassOf<folder::ByChannel>>)
        state = &pass.template get<folder::Channels>(layer, micro_batch)(0, 0, 0);
    REQUIRE((state != nullptr) == (stored.size() == 2));
    if (state == nullptr) return;
    const auto& n = stored[1].extents;
    CHECK(largest_error({state, state + stored[1].elements()}, expected.tensor(at + "state", {n, n + stored[1].rank()}))
          < 1e-5);
}

/// The same for all layers, before the next token.
void check_memory(Memory& memory, const Decoder& decoder, const ModelFolder& folder, const Safetensors& expected,
                  const std::string& step) {
    auto pass = memory.begin(cellar::BatchBuilder{cellar::Sequence{0}, memory.next(cellar::Sequence{0}), 1});
    REQUIRE(pass);
    int compared = 0;
    for (int layer = 0; layer < memory.layers(); ++layer) {
        CAPTURE(layer);
        const auto& description = decoder.description().layers[static_cast<std::size_t>(layer)];
        const std::string at = step + "layer" + std::to_string(layer) + ".";
        if (description.kind == cellar::models::LayerKind::nothing) {
            CHECK_FALSE((expected.has(at + "keys") || expected.has(at + "inputs")));
            ++compared;
            continue;
        }
        pass->visit(layer, [&](auto& own, int index) {
            if constexpr (requires { own.history(); }) {
                if (description.shape.value_dim == 0) {
                    const std::string name = "model.layers." + std::to_string(layer) + ".self_attn.kv_b_proj.weight";
                    check_latents(own, index, description, folder.matrix(name, std::int64_t{4} * 14, 16), expected, at);
                } else {
                    check_layer(own, index, description.shape, expected, at);
                }
                ++compared;
            } else if constexpr (requires { own.micro_batches(); }) {
                check_state(own, index, description.state, expected, at);
                ++compared;
            }
        });
    }
    CHECK(compared == memory.layers());
} // the pass is dropped

/// All steps of the text, in a sequence.
void check_text(const char* name, cellar::Sequence sequence, bool contents) {
    const std::string_view model{name};
    std::vector<int> steps{7, 1, 1, 12, 1, 3, 5};
    // Some of transformers' recurrent layers go on by single tokens.
    if (model == "lfm2") steps.assign(24, 1);
    if (model == "granite4" || model == "jamba" || model == "nemotron_h" || model == "mamba2") steps.assign(13, 1);
    steps[0] = 7;
    const ModelFolder folder{path_of(name)};
    // LongRoPE has other frequencies for sequences that are planned to be longer than this.
    cellar::models::MemoryLimits limits = roomy;
    if (model == "phi3") limits.attention.capacity = 32;
    const Decoder decoder{folder, limits.attention.capacity};
    const Safetensors expected = Safetensors::read(path_of(name) + "/expected.safetensors");
    Memory memory = decoder.make_memory(limits);
    CHECK(memory.bytes() == decoder.memory_bytes(limits).data);
    int number = 0;
    for (const int count : steps) {
        const std::string step = "step" + std::to_string(number++) + ".";
        CAPTURE(step);
        const auto logits = decoder.forward(memory, sequence, memory.next(sequence), tokens_of(expected, step, count));
        REQUIRE(logits);
        const std::vector<float> found(logits->data(), logits->data() + logits->size());
        CHECK(largest_difference(found, expected.tensor(step + "logits", {count, decoder.vocabulary()})) < 1e-4);
        if (contents) check_memory(memory, decoder, folder, expected, step);
    }
}

/// A copy of a folder that can be changed.
class ChangedFolder {
public:
    explicit ChangedFolder(const char* name) : path_{std::string{"changed_"} + name} {
        std::filesystem::remove_all(path_);
        std::filesystem::copy(path_of(name), path_);
    }
    ~ChangedFolder() { std::filesystem::remove_all(path_); }
    ChangedFolder(const ChangedFolder&) = delete;
    ChangedFolder& operator=(const ChangedFolder&) = delete;

    void change(const nlohmann::json& patch) const {
        nlohmann::json json = folder::read_json(path_ + "/config.json");
        json.merge_patch(patch);
        std::ofstream{path_ + "/config.json"} << json;
    }
    std::string refusal() const {
        try {
            const Decoder decoder{ModelFolder{path_}};
        } catch (const std::runtime_error& error) {
            return error.what();
        }
        return "none";
    }
    const std::string& path() const { return path_; }

private:
    std::string path_; // of this test alone: others run at the same time
};

} // namespace

TEST_CASE("folder: logits are those of transformers, and memories hold what its caches hold, step by step") {
    for (const char* const name :
         {"llama", "mistral", "qwen2", "qwen3", "phi3", "phi3_long", "gemma2", "gemma3", "gpt_oss", "lfm2",
          "deepseek_v3", "granite4", "qwen3_next", "jamba", "nemotron_h", "mamba2"}) {
        CAPTURE(name);
        check_text(name, cellar::Sequence{0}, true);
        check_text(name, cellar::Sequence{1}, false);
    }
}

TEST_CASE("folder: the description of Gemma 3 has two kinds of layers, from files in several parts") {
    const ModelFolder folder{path_of("gemma3")};
    CHECK(std::filesystem::exists(path_of("gemma3") + "/model.safetensors.index.json"));
    const Decoder decoder{folder};
    CHECK(decoder.description().count(cellar::models::LayerKind::sliding) == 4);
    CHECK(decoder.description().count(cellar::models::LayerKind::full) == 1);
    const Memory memory = decoder.make_memory(roomy);
    CHECK(memory.member<Sliding>().layers() == 4);
    CHECK(memory.member<Full>().layers() == 1);
}

TEST_CASE("folder: a pass that is refused changes nothing") {
    const Decoder decoder{ModelFolder{path_of("llama")}};
    Memory memory = decoder.make_memory({.attention = {.capacity = 4, .batch = 8}});
    const std::vector<int> tokens{5, 6, 7};
    REQUIRE(decoder.forward(memory, cellar::Sequence{0}, cellar::Position{0}, tokens));
    const auto refused = decoder.forward(memory, cellar::Sequence{0}, cellar::Position{3}, tokens);
    REQUIRE_FALSE(refused);
    CHECK(refused.error() == cellar::Reason::full);
    CHECK(memory.next(cellar::Sequence{0}) == cellar::Position{3});
}

TEST_CASE("folder: files that are missing or wrong are refused with a sentence") {
    const ChangedFolder changed{"qwen3"};
    CHECK(changed.refusal() == "none");
    changed.change({{"num_hidden_layers", 3}});
    CHECK(changed.refusal() == "config: 'num_hidden_layers' is 3, and 2 layer types are listed");
    changed.change({{"num_hidden_layers", 2}, {"intermediate_size", 49}});
    CHECK(changed.refusal()
          == "changed_qwen3/model.safetensors: tensor 'model.layers.0.mlp.gate_proj.weight' has the shape [48, 32], "
             "expected [49, 32]");
    changed.change({{"intermediate_size", nullptr}});
    CHECK(changed.refusal() == "changed_qwen3/config.json: 'intermediate_size' is missing, or not a positive integer");
    changed.change({{"intermediate_size", 48}, {"model_type", "gpt_oss"}});
    CHECK(changed.refusal() != "none");
    changed.change({{"model_type", "granite"}});
    CHECK(changed.refusal()
          == "the model is a 'granite', expected one of llama, mistral, qwen2, qwen3, phi3, gemma2, gemma3_text, "
             "gpt_oss, deepseek_v3, qwen3_next, granitemoehybrid, jamba, nemotron_h, mamba2, lfm2");
    std::ofstream{changed.path() + "/config.json"} << "{";
    CHECK(changed.refusal() == "changed_qwen3/config.json: not a JSON object");
    std::ofstream{changed.path() + "/model.safetensors.index.json"} << R"({"weight_map": {"a": "../b"}})";
    std::ofstream{changed.path() + "/config.json"} << "{}";
    CHECK(changed.refusal() == "changed_qwen3/model.safetensors.index.json: tensor 'a' has no file name");
}

TEST_CASE("folder: a text is continued with the model and the tokenizer of a folder") {
    const ChangedFolder changed{"llama"};
    folder::Request request{.folder = changed.path(), .prompt = "Hello world", .tokens = 12};
    const auto written = [&] {
        std::ostringstream out;
        folder::generate(request, out);
        return out.str();
    };
    const auto refusal = [&] {
        try {
            return written();
        } catch (const std::runtime_error& error) {
            return std::string{error.what()};
        }
    };
    CHECK(refusal().starts_with("changed_llama/tokenizer.json: cannot be opened"));
    std::filesystem::copy(path_of("words-llama3") + "/tokenizer.json", changed.path());
    const std::string text = written();
    CHECK(text.starts_with("llama, 3 layers; memory: "));
    CHECK(text.find(" bytes\n\nHello world") != std::string::npos);
    CHECK(text.substr(0, text.rfind("\n\n")) == written().substr(0, text.rfind("\n\n"))); // behind it are times
    request.context = 13;
    CHECK(refusal() == "the context is smaller than the prompt and the tokens to generate");
}

} // namespace test_folder
