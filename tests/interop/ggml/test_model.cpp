// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Descriptions from GGUF files. What the keys mean is tested in tests/models/test_gguf_keys.cpp.
#include "../../files/folder.hpp"
#include <cellar/interop/ggml_model.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <ggml-cpp.h>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

namespace test_model {

using namespace cellar;
using namespace cellar::models;

namespace {

using File = gguf_context_ptr;

/// The keys of a Llama with heads of 8 elements.
File llama() {
    File file{gguf_init_empty()};
    gguf_set_val_str(file.get(), "general.architecture", "llama");
    gguf_set_val_u32(file.get(), "llama.block_count", 2);
    gguf_set_val_u32(file.get(), "llama.context_length", 100);
    gguf_set_val_u32(file.get(), "llama.embedding_length", 32);
    gguf_set_val_u32(file.get(), "llama.attention.head_count", 4);
    gguf_set_val_f32(file.get(), "llama.rope.freq_base", 500000.0F);
    return file;
}

/// A file with one tensor, in a folder of its own.
class Written {
public:
    Written(const File& file, const char* tensor, ggml_type type) : path{(folder_.path / "model.gguf").string()} {
        const ggml_context_ptr context{ggml_init({1 << 16, nullptr, false})};
        ggml_tensor* const divisors = ggml_new_tensor_1d(context.get(), type, 4);
        ggml_set_name(divisors, tensor);
        const std::vector<float> numbers{1, 2, 4, 8};
        if (type == GGML_TYPE_F32) std::copy(numbers.begin(), numbers.end(), static_cast<float*>(divisors->data));
        gguf_add_tensor(file.get(), divisors);
        REQUIRE(gguf_write_to_file(file.get(), path.c_str(), false));
    }

private:
    Folder folder_;

public:
    const std::string path;
};

std::string bytes_of(const std::string& path) {
    std::ifstream in{path, std::ios::binary};
    return {std::istreambuf_iterator<char>{in}, {}};
}

} // namespace

TEST_CASE("gguf: a description follows from the keys of a file") {
    const File file = llama();
    const auto found = from_gguf(file.get());
    REQUIRE_MESSAGE(found, found.error().message);
    CHECK(found->architecture == "llama");
    CHECK(found->trained_context == 100);
    CHECK(found->layers.size() == 2);
    CHECK(found->layers[1].shape.kv_heads == 4);
    CHECK(frequencies(found->layers[0].rope) == rope_frequencies(8, 500000));
    CHECK(from_gguf(file.get(), std::vector<float>{1, 2}).error().message
          == "GGUF file: layer 0 has 2 divisors of frequencies, expected 4, one for each pair");
}

TEST_CASE("gguf: every type of a value is read") {
    const File file = llama();
    gguf_context* const f = file.get();
    const ConfigKeys keys = gguf_keys(f);
    const auto number = [&](const char* key) { return std::get<std::int64_t>(keys(key).value()); };
    const auto list = [&](const char* key) { return std::get<std::vector<double>>(keys(key).value()); };
    gguf_set_val_u8(f, "a", 255);
    CHECK(number("a") == 255);
    gguf_set_val_i8(f, "a", -1);
    CHECK(number("a") == -1);
    gguf_set_val_u16(f, "a", 65535);
    CHECK(number("a") == 65535);
    gguf_set_val_i16(f, "a", -2);
    CHECK(number("a") == -2);
    gguf_set_val_i32(f, "a", -3);
    CHECK(number("a") == -3);
    gguf_set_val_i64(f, "a", INT64_MIN);
    CHECK(number("a") == INT64_MIN);
    gguf_set_val_u64(f, "a", UINT64_MAX);
    CHECK(std::get<double>(keys("a").value()) == 18446744073709551615.0);
    gguf_set_val_f64(f, "a", 0.1);
    CHECK(std::get<double>(keys("a").value()) == 0.1);
    gguf_set_val_bool(f, "a", true);
    CHECK(std::get<bool>(keys("a").value()));
    CHECK(std::get<std::string>(keys("general.architecture").value()) == "llama");
    CHECK_FALSE(keys("b"));

    const std::uint32_t counts[] = {4, 0};
    gguf_set_arr_data(f, "list", GGUF_TYPE_UINT32, counts, 2);
    CHECK(list("list") == std::vector<double>{4, 0});
    const bool flags[] = {true, false, true};
    gguf_set_arr_data(f, "list", GGUF_TYPE_BOOL, flags, 3);
    CHECK(list("list") == std::vector<double>{1, 0, 1});
    const std::int16_t small[] = {-7};
    gguf_set_arr_data(f, "list", GGUF_TYPE_INT16, small, 1);
    CHECK(list("list") == std::vector<double>{-7});
    const float real[] = {0.5F};
    gguf_set_arr_data(f, "list", GGUF_TYPE_FLOAT32, real, 1);
    CHECK(list("list") == std::vector<double>{0.5});
    const char* texts[] = {"x", "y"};
    gguf_set_arr_str(f, "list", texts, 2);
    CHECK(std::get<std::vector<std::string>>(keys("list").value()) == std::vector<std::string>{"x", "y"});
    const std::int64_t wide[] = {1};
    gguf_set_arr_data(f, "list", GGUF_TYPE_INT64, wide, 1);
    CHECK_FALSE(keys("list"));
}

TEST_CASE("gguf: a file at a path has its own divisors of frequencies") {
    const File file = llama();
    const Written written{file, "rope_freqs.weight", GGML_TYPE_F32};
    const auto found = from_gguf(written.path);
    REQUIRE_MESSAGE(found, found.error().message);
    CHECK(found->layers[0].rope.divisors == std::vector<float>{1, 2, 4, 8});
    CHECK(frequencies(found->layers[0].rope)[2] == rope_frequencies(8, 500000)[2] / 4);
}

TEST_CASE("gguf: divisors for short and for long texts") {
    const File file = llama();
    const Written written{file, "rope_factors_long.weight", GGML_TYPE_F32};
    CHECK(
        from_gguf(written.path).error().message
        == "GGUF file: layer 0 has divisors for long sequences, expected also those for short ones, and the length of "
           "these");
}

TEST_CASE("gguf: files that are missing, cut off or not as expected are refused with a sentence") {
    CHECK(from_gguf("no such file.gguf").error().message
          == "GGUF file: no such file.gguf cannot be opened, or is not one");
    const File half = llama();
    {
        const Written written{half, "rope_freqs.weight", GGML_TYPE_F16};
        CHECK(from_gguf(written.path).error().message
              == "GGUF file: the tensor rope_freqs.weight cannot be read as floats");
    }
    const File file = llama();
    const Written written{file, "rope_freqs.weight", GGML_TYPE_F32};
    const std::string whole = bytes_of(written.path);
    for (std::size_t length = 0; length + 16 < whole.size(); ++length) { // the last bytes are padding
        std::ofstream{written.path, std::ios::binary} << whole.substr(0, length);
        CHECK_FALSE(from_gguf(written.path));
    }
}

TEST_CASE("gguf: a file with an altered byte is read or refused, and never ends the program") {
    const File file = llama();
    const Written written{file, "rope_freqs.weight", GGML_TYPE_F32};
    const std::string whole = bytes_of(written.path);
    int refused = 0;
    for (std::size_t i = 0; i < whole.size(); ++i) {
        for (const char change : {'\x01', '\x80'}) {
            std::string altered = whole;
            altered[i] = static_cast<char>(altered[i] ^ change);
            std::ofstream{written.path, std::ios::binary} << altered;
            const auto found = from_gguf(written.path);
            if (found) CHECK(check(*found));
            if (!found) ++refused;
        }
    }
    CHECK(refused > 100);
}

} // namespace test_model
