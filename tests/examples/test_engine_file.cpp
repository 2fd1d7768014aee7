// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Files that are damaged, or of models that the engine does not know.
#include "commands.hpp"
#include "engine/model.hpp"
#include "engine/vocabulary.hpp"
#include "random_gguf.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace test_engine_file {

namespace {

/// The sentence with which a file is refused; empty if it is not.
std::string refusal(const std::string& path) {
    try {
        const engine::Model read{path, 1};
    } catch (const engine::FileError& error) {
        return error.what();
    }
    return "";
}

void write_bytes(const std::string& path, const std::string& bytes) {
    std::ofstream{path, std::ios::binary | std::ios::trunc} << bytes;
}

} // namespace

TEST_CASE("engine: a file that is cut anywhere is refused, with a sentence") {
    llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
    const Scratch folder;
    const std::string path = folder.path("model.gguf");
    write_gguf(path, random_model("llama"));
    REQUIRE(refusal(path).empty());
    const std::string whole = content(path);
    for (std::size_t i = 1; i <= 60; ++i) {
        const std::size_t size = i <= 40 ? i * 97 : whole.size() - 1 - (i - 41) * 4096;
        CAPTURE(size);
        write_bytes(path, whole.substr(0, size));
        const std::string words = refusal(path);
        CHECK(words.find(path + ": ") == 0);
    }
    write_bytes(path, "");
    CHECK(refusal(path) == path + ": is no file with contents");
    CHECK(refusal(folder.path("none")).find(": cannot be opened: ") != std::string::npos);
}

TEST_CASE("engine: files of different models have different fingerprints") {
    llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
    const Scratch folder;
    const std::string path = folder.path("model.gguf");
    RandomModel random = random_model("llama");
    write_gguf(path, random);
    const std::string first = engine::GgufFile{path}.fingerprint();
    CHECK(first.size() == 16);
    CHECK(engine::GgufFile{path}.fingerprint() == first);
    const std::string whole = content(path);
    random.seed = 2; // other weights
    write_gguf(path, random);
    CHECK(content(path).size() == whole.size());
    CHECK(engine::GgufFile{path}.fingerprint() != first);
    random.seed = 1;
    random.change = [](gguf_context* file) { gguf_set_val_str(file, "general.name", "another"); };
    write_gguf(path, random);
    CHECK(engine::GgufFile{path}.fingerprint() != first);
}

TEST_CASE("engine: files that contradict themselves, or are of unknown models, are refused") {
    llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
    const Scratch folder;
    const std::string path = folder.path("model.gguf");
    const auto number = [](const char* key, std::uint32_t value) {
        return [=](gguf_context* file) { gguf_set_val_u32(file, key, value); };
    };
    const std::vector<std::pair<std::function<void(gguf_context*)>, std::string>> changes{
        {[](gguf_context* file) { gguf_set_val_str(file, "general.architecture", "mamba"); },
         "the architecture is 'mamba', expected one of llama, qwen2, qwen3, gemma3, lfm2"},
        {[](gguf_context* file) { gguf_remove_key(file, "llama.block_count"); },
         "GGUF file: 'llama.block_count' is missing, expected an integer from 1 to 1000"},
        {number("llama.block_count", 0), "GGUF file: 'llama.block_count' is 0, expected an integer from 1 to 1000"},
        {number("llama.block_count", 2),
         "the tensor blk.2.attn_norm.weight is unknown, expected those of a dense model of this architecture"},
        {number("llama.block_count", 4), "the tensor blk.3.attn_norm.weight is missing"},
        {number("llama.embedding_length", 32), "the tensor token_embd.weight is [64, 160], expected [32, 160]"},
        {number("llama.attention.head_count_kv", 3),
         "GGUF file: layer 0 has 4 heads of queries, expected a multiple of its 3 heads of keys"},
        {number("llama.attention.value_length", 16), "the tensor blk.0.attn_v.weight is [64, 64], expected [64, 32]"},
        {number("llama.rope.dimension_count", 34),
         "GGUF file: layer 0 has 34 rotary elements from element 0 on, expected an even number within its 32"},
        {[](gguf_context* file) { gguf_set_val_str(file, "llama.rope.scaling.type", "yarn"); },
         "the rotary positions are scaled by YaRN, expected a linear scale or none"},
        {[](gguf_context* file) { gguf_set_val_str(file, "llama.context_length", "long"); },
         "GGUF file: 'llama.context_length' is 'long', expected an integer from 0 to 1073741824"},
        {number("llama.feed_forward_length", 95), "the tensor blk.0.ffn_gate.weight is [64, 96], expected [64, 95]"},
    };
    for (const auto& [change, words] : changes) {
        RandomModel changed = random_model("llama");
        changed.change = change;
        write_gguf(path, changed);
        CHECK(refusal(path) == path + ": " + words);
    }
}

TEST_CASE("engine: an altered byte of a file's description is refused with a sentence that names the file, or the file "
          "is read") {
    llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
    const Scratch folder;
    const std::string path = folder.path("model.gguf");
    write_gguf(path, random_model("llama"));
    const std::string whole = content(path);
    int refused = 0;
    for (std::size_t at = 0; at < 1200; at += 7) {
        std::string altered = whole;
        altered[at] = static_cast<char>(altered[at] ^ 0x5a);
        write_bytes(path, altered);
        const std::string words = refusal(path);
        refused += words.empty() ? 0 : 1;
        CHECK((words.empty() || words.find(path + ": ") == 0));
    }
    CHECK(refused > 100);
}

} // namespace test_engine_file
