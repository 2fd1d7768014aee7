// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "generate/memory.hpp"
#include "generate/model.hpp"
#include "generate/sampler.hpp"
#include "little_endian.hpp"
#include "llama2c/checkpoint.hpp"
#include "paths.hpp"
#include "skip.hpp"
#include "tiny_model.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace test_checkpoint {

namespace {

std::vector<char> tiny_checkpoint() {
    return checkpoint_of(RandomWeights{1}(llama2c_config()));
}

std::string failure(const std::vector<char>& bytes) {
    try {
        (void)llama::read_checkpoint({"f", bytes});
    } catch (const llama::FileError& error) {
        return error.what();
    }
    return "none";
}

/// The same for a valid checkpoint with one number of its header replaced.
std::string failure(std::size_t field, std::int32_t value) {
    std::vector<char> bytes = tiny_checkpoint();
    replace(bytes, field * sizeof value, value);
    return failure(bytes);
}

} // namespace

TEST_CASE("llama2.c: a checkpoint is read as it was written") {
    for (const bool tied : {true, false}) {
        llama::Config c = llama2c_config();
        c.tie_word_embeddings = tied;
        const llama::Weights written = RandomWeights{2}(c);
        const llama::Weights read = llama::read_checkpoint({"f", checkpoint_of(written)});
        CHECK(same(read, written));
        CHECK(read.config.vocab_size == c.vocab_size);
        CHECK(read.config.head_dim == c.head_dim);
        CHECK(read.config.rope_pairing == llama::Pairing::interleaved);
    }
}

TEST_CASE("llama2.c: a file that is not a checkpoint is refused") {
    CHECK(failure(std::vector<char>(27)) == "f: not a llama2.c checkpoint: it has 27 bytes, expected at least 28");
    CHECK(failure(0, -16) == "f: not a llama2.c checkpoint: dim is -16, expected 1 to 65536");
    CHECK(failure(2, 0) == "f: not a llama2.c checkpoint: n_layers is 0, expected 1 to 1024");
    CHECK(failure(3, 3) == "f: not a llama2.c checkpoint: dim 16 is not a multiple of n_heads 3");
    CHECK(failure(3, 16) == "f: the head dimension is 1, expected an even number, for rotary positions");
    CHECK(failure(4, 3) == "f: 4 attention heads cannot share 3 key-value heads equally");
    CHECK(failure(5, INT32_MIN) == "f: not a llama2.c checkpoint: vocab_size is -2147483648, expected 1 to 16777216");
    const std::string wrong_length = failure(6, 65);
    CHECK(wrong_length.find("f: not a llama2.c checkpoint, or cut off: it has ") == 0);
    std::vector<char> bytes = tiny_checkpoint();
    bytes.pop_back();
    CHECK(failure(bytes).find("cut off") != std::string::npos);
    bytes = tiny_checkpoint();
    std::memset(bytes.data() + 28, 0xff, 4);
    CHECK(failure(bytes) == "f: the tensor at byte 28 holds values that are not finite numbers");
}

TEST_CASE("llama2.c: a corrupted checkpoint is read or refused, and nothing else happens") {
    const std::vector<char> valid = tiny_checkpoint();
    std::mt19937 random{3};
    int refused = 0;
    constexpr int rounds = 4000;
    for (int round = 0; round < rounds; ++round) {
        std::vector<char> bytes = valid;
        const std::size_t reach = round % 4 == 0 ? bytes.size() : 28;
        for (int flips = 1 + round % 3; flips > 0; --flips) {
            bytes[random() % reach] ^= static_cast<char>(1 << random() % 8);
        }
        refused += failure(bytes) != "none";
    }
    CHECK(refused > rounds / 2);
    CHECK(refused < rounds);
}

TEST_CASE("llama2.c: 200 greedy tokens of stories260K and their logits equal the reference") {
    const std::filesystem::path folder = std::filesystem::path{cellar_test::shared_dir()} / "models";
    if (!std::filesystem::exists(folder / "stories260K.bin")) CELLAR_SKIP("no file ", folder / "stories260K.bin");
    std::ifstream file{folder / "stories260k_reference.json"};
    const auto reference = nlohmann::json::parse(file);
    const auto expected = reference.at("greedy_tokens").get<std::vector<int>>();

    llama::Llama model{llama::read_checkpoint(llama::read_file((folder / "stories260K.bin").string()))};
    for (const char* layout : {"standard", "permuted"}) {
        CAPTURE(std::string{layout});
        const auto memory = llama::make_memory(model.config(), {.context = 200, .batch = 1}, {.layout = layout});
        llama::Sampler most_likely{0, 0.0};
        int token = 1;
        const int last = 0;
        float difference = 0;
        for (int position = 0; position < 200; ++position) {
            REQUIRE(memory->begin(position, 1).has_value());
            const llama::Matrix& logits = model.forward(std::span{&token, 1}, *memory, std::span{&last, 1});
            memory->commit();
            const auto known = reference.at("logits_fp64").find(std::to_string(position));
            if (known != reference.at("logits_fp64").end()) {
                const auto values = known->get<std::vector<float>>();
                const Eigen::Map<const llama::RowVector> row(values.data(), static_cast<Eigen::Index>(values.size()));
                REQUIRE(row.size() == logits.cols());
                difference = std::max(difference, (logits.row(0) - row).cwiseAbs().maxCoeff());
            }
            token = most_likely(logits);
            REQUIRE(token == expected.at(static_cast<std::size_t>(position)));
        }
        MESSAGE(std::string{layout}, ": largest difference of the logits ", difference);
        CHECK(difference < 5e-5F); // float logits up to 13; llama2.c itself is off by 7e-6
    }
}

} // namespace test_checkpoint
