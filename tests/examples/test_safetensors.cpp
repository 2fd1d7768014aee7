// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "generate/huggingface.hpp"
#include "little_endian.hpp"
#include "tiny_model.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace test_safetensors {

namespace {

const llama::Weights& tiny() {
    static const llama::Weights weights = RandomWeights{1}(tiny_config());
    return weights;
}

llama::Weights load(std::vector<char> bytes) {
    return llama::read_weights(llama::Safetensors{llama::File{"f", std::move(bytes)}});
}

/// The error message of loading these bytes, or "none".
std::string failure(std::vector<char> bytes) {
    try {
        (void)load(std::move(bytes));
    } catch (const llama::FileError& error) {
        return error.what();
    }
    return "none";
}

/// The same for the file of the tiny model after `corrupt` has changed it.
std::string failure(const std::function<void(SafetensorsWriter&)>& corrupt) {
    SafetensorsWriter file = file_of(tiny());
    corrupt(file);
    return failure(file.bytes());
}

std::string failure_with_metadata(const std::string& key, const nlohmann::json& value) {
    return failure([&](SafetensorsWriter& file) {
        if (value.is_null()) {
            file.header["__metadata__"].erase(key);
        } else {
            file.header["__metadata__"][key] = value;
        }
    });
}

constexpr const char* norm = "model.norm.weight";

} // namespace

TEST_CASE("safetensors: a file is read as it was written") {
    llama::Config c = tiny_config(llama::Pairing::interleaved);
    c.tie_word_embeddings = false;
    const llama::Weights written = RandomWeights{2}(c);
    const llama::Weights read = load(file_of(written).bytes());
    CHECK(same(read, written));
    CHECK(read.config.layer_types == c.layer_types);
    CHECK(read.config.sliding_window == c.sliding_window);
    CHECK(read.config.rope_theta == c.rope_theta);
    CHECK(read.config.rope_pairing == c.rope_pairing);
    CHECK(read.config.rms_norm_eps == c.rms_norm_eps);
    CHECK(read.parameters() == written.parameters());
}

TEST_CASE("safetensors: a model with recurrent layers is read") {
    const llama::Weights written = RandomWeights{2}(tiny_hybrid_config());
    const llama::Weights read = load(file_of(written).bytes());
    CHECK(same(read, written));
    CHECK(read.config.layer_types == written.config.layer_types);
    CHECK(read.config.lru_width == 12);
    CHECK(read.config.lru_blocks == 3);
    CHECK(read.config.conv1d_width == 4);
    CHECK(read.parameters() == written.parameters());
    const std::int64_t attention =
        2 * (24 * 16 + 12 * 16) + 16 + 24 * 16 * 3 + 16; // with norms and feed-forward network
    const std::int64_t recurrent = 12 * 16 * 3 + 12 * 4 + 12 * 4 * 2 + 12 * 4 + 16 + 24 * 16 * 3 + 16;
    CHECK(read.parameters() == 32 * 16 + 16 + 2 * attention + 2 * recurrent);
}

TEST_CASE("safetensors: half and bfloat16 become float") {
    SafetensorsWriter file;
    const std::uint16_t bits[] = {0x3c00, 0xc000, 0x0001, 0x3f80, 0xc000, 0x0080};
    file.data = little_endian(std::span<const std::uint16_t>{bits});
    file.header["a"] = {{"dtype", "F16"}, {"shape", {3}}, {"data_offsets", {0, 6}}};
    file.header["b"] = {{"dtype", "BF16"}, {"shape", {1, 3}}, {"data_offsets", {6, 12}}};
    const llama::Safetensors read{llama::File{"f", file.bytes()}};
    CHECK(read.tensor("a", {3}) == std::vector<float>{1, -2, 0x1p-24F});
    CHECK(read.tensor("b", {1, 3}) == std::vector<float>{1, -2, 0x1p-126F});
}

TEST_CASE("safetensors: a file that is cut off is refused") {
    const std::vector<char> whole = file_of(tiny()).bytes();
    CHECK(failure(std::vector<char>{}) == "f: not a safetensors file: it has 0 bytes, expected at least 8");
    for (std::size_t size = 0; size < whole.size(); size += size < 2048 ? 7 : 911) {
        CHECK(failure({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)}) != "none");
    }
    CHECK(failure({whole.begin(), whole.begin() + 100}).find("cut off") != std::string::npos);
    CHECK(failure({whole.begin(), whole.end() - 1}).find("of the data, which has only") != std::string::npos);
    std::vector<char> longer = whole;
    longer.push_back(0);
    CHECK(failure(longer).find("the tensors end at byte") != std::string::npos);
}

TEST_CASE("safetensors: a file of another format is refused") {
    const std::string text = "#!/usr/bin/env python3\nprint('no model')\n";
    CHECK(failure({text.begin(), text.end()}).find("not a safetensors file, or cut off: its header should have")
          != std::string::npos);
    const SafetensorsWriter empty;
    CHECK(failure(empty.bytes("{]")) == "f: the header is not a JSON object");
    CHECK(failure(empty.bytes("[1, 2]")) == "f: the header is not a JSON object");
    CHECK(failure(empty.bytes("\xff\xfe")) == "f: the header is not a JSON object");
    CHECK(failure(empty.bytes("{}")) == "f: metadata 'format' is missing");
    CHECK(failure(empty.bytes(std::string(100000, '['))) == "f: the header is not a JSON object");
    CHECK(failure(empty.bytes(R"({"__metadata__": 1})")) == "f: __metadata__ is not a JSON object");
    CHECK(failure(empty.bytes(R"({"__metadata__": {"a": 1}})")) == "f: metadata 'a' is not a string");
}

TEST_CASE("safetensors: a wrong description of a tensor is refused") {
    const auto with = [](const char* key, const nlohmann::json& value) {
        return failure([&](SafetensorsWriter& file) { file.header[norm][key] = value; });
    };
    CHECK(failure([](SafetensorsWriter& file) { file.header[norm] = 3; })
          == "f: tensor 'model.norm.weight' is not a JSON object");
    CHECK(with("dtype", "I64") == "f: tensor 'model.norm.weight' has the dtype 'I64', expected F16, BF16 or F32");
    CHECK(with("dtype", 7) == "f: tensor 'model.norm.weight' has no dtype");
    CHECK(with("shape", "16") == "f: tensor 'model.norm.weight' has no shape");
    CHECK(with("shape", {-16}) == "f: tensor 'model.norm.weight': shape has an entry that is not a size");
    CHECK(with("shape", {1.5}) == "f: tensor 'model.norm.weight': shape has an entry that is not a size");
    CHECK(with("shape", {UINT64_MAX}) == "f: tensor 'model.norm.weight': shape has an entry that is not a size");
    CHECK(with("shape", {INT64_MAX, INT64_MAX}) == "f: tensor 'model.norm.weight' is larger than the file");
    CHECK(with("data_offsets", {0}) == "f: tensor 'model.norm.weight': data_offsets are not a begin and an end");
    CHECK(with("data_offsets", {64, 0}) == "f: tensor 'model.norm.weight': data_offsets are not a begin and an end");
    CHECK(with("data_offsets", {0, 1 << 30}).find("ends at byte 1073741824 of the data, which has only")
          != std::string::npos);
    CHECK(with("shape", {15})
          == "f: tensor 'model.norm.weight' occupies 64 bytes, expected 60 from its type and the shape [15]");
    CHECK(with("data_offsets", {0, 64}).find("overlaps another") != std::string::npos);
    CHECK(failure([](SafetensorsWriter& file) {
              file.data += "12345678";
              const std::uint64_t end = file.data.size();
              file.header[norm]["data_offsets"] = {end - 64, end};
          }).find("there is a gap before it")
          != std::string::npos);
}

TEST_CASE("safetensors: missing, additional and wrong tensors are refused") {
    CHECK(failure([](SafetensorsWriter& file) {
              file.header["model.spare.weight"] = file.header[norm];
              file.header.erase(norm);
          })
          == "f: tensor 'model.norm.weight' is missing");
    CHECK(failure([](SafetensorsWriter& file) { file.add("extra", llama::Matrix::Ones(1, 1)); })
          == "f: tensor 'extra' does not belong to this model");
    CHECK(failure([](SafetensorsWriter& file) {
              file.header[norm]["shape"] = {4, 4};
          })
          == "f: tensor 'model.norm.weight' has the shape [4, 4], expected [16]");
    CHECK(failure([](SafetensorsWriter& file) { file.data.replace(file.data.size() - 4, 4, "\xff\xff\xff\xff"); })
          == "f: tensor 'model.norm.weight' holds values that are not finite numbers");
}

TEST_CASE("safetensors: metadata of another model is refused") {
    const auto with = failure_with_metadata;
    CHECK(with("format", "pt") == "f: metadata 'format' is 'pt', expected 'cellar-example-1'");
    CHECK(with("architecture", "mamba") == "f: metadata 'architecture' is 'mamba', expected 'llama' or 'griffin'");
    CHECK(with("tokenizer", nullptr) == "f: metadata 'tokenizer' is missing");
    CHECK(with("hidden_size", "-1") == "f: metadata 'hidden_size' is '-1', expected a number from 1 to 1048576");
    CHECK(with("hidden_size", "16x") == "f: metadata 'hidden_size' is '16x', expected a number from 1 to 1048576");
    CHECK(with("hidden_size", "") == "f: metadata 'hidden_size' is '', expected a number from 1 to 1048576");
    CHECK(with("head_dim", "99999999999")
          == "f: metadata 'head_dim' is '99999999999', expected a number from 2 to 1024");
    CHECK(with("head_dim", "5") == "f: the head dimension is 5, expected an even number, for rotary positions");
    CHECK(with("num_key_value_heads", "3") == "f: 4 attention heads cannot share 3 key-value heads equally");
    CHECK(with("num_hidden_layers", "4") == "f: metadata 'layer_types' names 3 layers, expected num_hidden_layers = 4");
    CHECK(with("layer_types", "full_attention,,full_attention")
          == "f: metadata 'layer_types' has '', expected 'sliding_attention', 'full_attention' or 'recurrent'");
    CHECK(with("layer_types", "recurrent,full_attention,full_attention")
          == "f: metadata 'layer_types' has 'recurrent', expected none in a 'llama'");
    CHECK(with("layer_types", std::string(1000, 'x')).size() < 200);
    CHECK(with("rope_theta", "nan") == "f: metadata 'rope_theta' is 'nan', expected a positive number");
    CHECK(with("rope_pairing", "both") == "f: metadata 'rope_pairing' is 'both', expected 'neox' or 'interleaved'");
    CHECK(with("tie_word_embeddings", "True")
          == "f: metadata 'tie_word_embeddings' is 'True', expected 'true' or 'false'");
    CHECK(with("format", "a\nb\x1b[31m") == "f: metadata 'format' is 'a?b?[31m', expected 'cellar-example-1'");
}

TEST_CASE("safetensors: inconsistent recurrent layers are refused") {
    const auto with = [](const char* key, const char* value) {
        SafetensorsWriter file = file_of(RandomWeights{2}(tiny_hybrid_config()));
        file.header["__metadata__"][key] = value;
        return failure(file.bytes());
    };
    CHECK(with("lru_blocks", "5") == "f: 5 blocks cannot share 12 recurrent channels equally");
    CHECK(with("lru_width", "0") == "f: metadata 'lru_width' is '0', expected a number from 1 to 1048576");
    CHECK(with("conv1d_width", "1") == "f: metadata 'conv1d_width' is '1', expected a number from 2 to 1024");
    CHECK(with("lru_width", "15")
          == "f: tensor 'model.layers.0.recurrent.linear_x.weight' has the shape [12, 16], expected [15, 16]");
}

TEST_CASE("safetensors: a corrupted file is read or refused, and nothing else happens") {
    const std::vector<char> valid = file_of(tiny()).bytes();
    std::mt19937 random{3};
    int refused = 0;
    constexpr int rounds = 1500;
    for (int round = 0; round < rounds; ++round) {
        std::vector<char> bytes = valid;
        // Mostly in the header, which has most of the structure.
        const std::size_t reach = round % 4 == 0 ? bytes.size() : bytes.size() / 4;
        for (int flips = 1 + round % 5; flips > 0; --flips) {
            bytes[random() % reach] ^= static_cast<char>(1 << random() % 8);
        }
        if (round % 7 == 0) bytes.resize(random() % bytes.size());
        refused += failure(bytes) != "none";
    }
    CHECK(refused > rounds / 10);
    CHECK(refused < rounds);
}

TEST_CASE("a file that cannot be read is refused") {
    const auto failure_of = [](const std::string& path) -> std::string {
        try {
            (void)llama::read_file(path);
        } catch (const llama::FileError& error) {
            return error.what();
        }
        return "none";
    };
    CHECK(failure_of("/no/such/file") == "/no/such/file: cannot be opened: No such file or directory");
    const std::string folder = std::filesystem::temp_directory_path().string();
    CHECK(failure_of(folder) == folder + ": cannot be read: Is a directory");
}

} // namespace test_safetensors
