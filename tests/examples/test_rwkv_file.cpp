// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "generate/file.hpp"
#include "little_endian.hpp"
#include "rwkv/checkpoint.hpp"
#include "rwkv_files.hpp"
#include "skip.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace test_rwkv_file {

TEST_CASE("rwkv: a file that is not a model is refused") {
    if (!has_rwkv()) CELLAR_SKIP("no RWKV model in ../shared");
    const std::vector<char> valid = llama::read_file(tiny_rwkv).bytes;
    const auto failure = [](const std::vector<char>& bytes) -> std::string {
        try {
            (void)rwkv::read_checkpoint({"f", bytes});
        } catch (const llama::FileError& error) {
            return error.what();
        }
        return "none";
    };
    const auto with = [&](std::size_t at, std::uint32_t word) {
        std::vector<char> bytes = valid;
        replace(bytes, at, word);
        return failure(bytes);
    };
    const auto cut = [&](std::size_t size) { return failure({valid.begin(), valid.begin() + std::ptrdiff_t(size)}); };
    CHECK(failure(valid) == "none");
    CHECK(cut(0) == "f: not a file of rwkv.cpp: it has 0 bytes, expected at least 24");
    CHECK(with(0, 7) == "f: not a file of rwkv.cpp: it begins with 7, expected 1734831462");
    CHECK(with(4, 100) == "f: version 100 of the format, expected 101");
    CHECK(with(8, 255) == "f: tensor 'emb.weight' is [256, 64], expected [255, 64]");
    CHECK(with(8, 0) == "f: n_vocab is 0, expected 1 to 1048576");
    CHECK(with(12, 65) == "f: tensor 'emb.weight' is [256, 64], expected [256, 65]");
    CHECK(with(16, 13) == "f: tensor 'blocks.12.ln1.weight' is missing");
    CHECK(with(16, 11) == "f: tensor 'blocks.11.att.a0' does not belong to this model");
    CHECK(with(20, 1) == "f: the file has the data type 1, expected 0, which is float");
    // The first entry: extents, length of the name, type, extents 64 and 256, "emb.weight", data
    CHECK(with(24, 5) == "f: a tensor of 5 extents at byte 36, expected 1 to 4");
    CHECK(with(28, 4000000) == "f: cut off: it ends at byte 3332716, within a name");
    CHECK(with(32, 1) == "f: tensor 'emb.weight' has the data type 1, expected 0, which is float");
    CHECK(with(36, 0) == "f: tensor 'emb.weight' is empty");
    CHECK(with(40, 4000000) == "f: cut off: it ends at byte 3332716, within tensor 'emb.weight'");
    CHECK(with(54, 0x7fc00000) == "f: tensor 'emb.weight' holds values that are not finite numbers");
    CHECK(cut(24) == "f: tensor 'blocks.0.att.r_k' is missing");
    CHECK(cut(30) == "f: cut off: it ends at byte 30, within length of a name");
    CHECK(cut(valid.size() - 1) == "f: cut off: it ends at byte 3332715, within tensor 'head.weight'");
    std::vector<char> two_heads = valid;
    const std::string name = "blocks.0.att.r_k"; // follows its extents, 64 and 1
    const auto found = std::search(two_heads.begin(), two_heads.end(), name.begin(), name.end());
    *(found - 8) = 32;
    *(found - 4) = 2;
    CHECK(failure(two_heads) == "f: tensor 'blocks.1.att.r_k' is [1, 64], expected [2, 32]");
    two_heads[12] = 65; // n_embed
    CHECK(failure(two_heads) == "f: 2 heads cannot share 65 channels equally");
    std::vector<char> twice = valid;
    twice.insert(twice.end(), valid.begin() + 24, valid.begin() + 54 + 4 * 64 * 256);
    CHECK(failure(twice) == "f: tensor 'emb.weight' occurs twice");
}

} // namespace test_rwkv_file
