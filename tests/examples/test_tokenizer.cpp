// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Tokens and texts against what the Python package `tokenizers` returned: see write_folders.py.
#include "commands.hpp"
#include "folder/tokenizer.hpp"
#include "paths.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <folder/model_folder.hpp>
#include <fstream>
#include <generate/file.hpp>
#include <string>
#include <vector>

namespace test_tokenizer {

using folder::Tokenizer;

namespace {

std::string folder_of(const std::string& name) {
    return cellar_test::source_dir() + "/tests/examples/folders/" + name;
}

/// With a change of a file.
std::string refusal_of(const std::string& name, const nlohmann::json& change) {
    nlohmann::json json = folder::read_json(folder_of(name) + "/tokenizer.json");
    json.merge_patch(change);
    const Scratch scratch;
    const std::string path = scratch.path("tokenizer.json");
    std::ofstream{path} << json;
    std::string message = "none";
    try {
        const Tokenizer tokenizer{path};
    } catch (const llama::FileError& error) {
        message = error.what();
        CHECK(message.starts_with(path));
        message.replace(0, path.size(), "changed_tokenizer.json");
    }
    return message;
}

} // namespace

TEST_CASE("tokenizer: texts become the tokens of the library, and become texts again") {
    for (const char* const name : {"words-llama3", "words-qwen", "words-smollm", "words-gemma"}) {
        CAPTURE(name);
        const Tokenizer tokenizer{folder_of(name) + "/tokenizer.json"};
        const nlohmann::json cases = folder::read_json(folder_of(name) + "/cases.json").at("cases");
        CHECK(cases.size() >= 20);
        for (const nlohmann::json& one : cases) {
            const auto text = one.at("text").get<std::string>();
            CAPTURE(text);
            const auto tokens = one.at("tokens").get<std::vector<int>>();
            CHECK(tokenizer.encode(text) == tokens);
            CHECK(tokenizer.decode(tokens) == one.at("decoded").get<std::string>());
        }
    }
}

TEST_CASE("tokenizer: bytes that are no UTF-8 are replaced, and never end the program") {
    const Tokenizer tokenizer{folder_of("words-llama3") + "/tokenizer.json"};
    CHECK(tokenizer.decode(tokenizer.encode("a\xff\x80z")) == "a\ufffd\ufffdz");
    CHECK(tokenizer.decode(tokenizer.encode("\xe2\x82")) == "\ufffd\ufffd");
    CHECK(tokenizer.decode(tokenizer.encode("\xed\xa0\x80")) == "\ufffd\ufffd\ufffd"); // half of a surrogate pair
    CHECK(tokenizer.decode({-1, 1 << 30}).empty());
}

TEST_CASE("tokenizer: files that are not known, or are wrong, are refused") {
    const std::string at = "changed_tokenizer.json: ";
    CHECK(refusal_of("words-qwen", nlohmann::json::object()) == "none");
    CHECK(refusal_of("words-qwen", {{"model", {{"type", "WordPiece"}}}}) == at + "the model is not of the type BPE");
    CHECK(refusal_of("words-qwen", {{"model", {{"vocab", nullptr}}}}) == at + "the model has no vocab");
    CHECK(refusal_of("words-qwen", {{"model", {{"vocab", {{"x", -1}}}}}}) == at + "token 'x' has no number");
    CHECK(refusal_of("words-qwen", {{"model", {{"merges", {"a zzz"}}}}}) == at + "merge 0 is not of tokens");
    CHECK(refusal_of("words-qwen", {{"model", {{"merges", 3}}}}) == at + "the model has no merges");
    CHECK(refusal_of("words-qwen", {{"normalizer", {{"type", "Lowercase"}}}}) == at + "its normalizer is not known");
    CHECK(refusal_of("words-qwen", {{"normalizer", {{"type", "NFC"}}}}) == "none");
    CHECK(refusal_of("words-qwen", {{"pre_tokenizer", {{"type", "Whitespace"}, {"pretokenizers", nullptr}}}})
          == at + "its pre_tokenizer is not known");
    CHECK(refusal_of("words-qwen", {{"pre_tokenizer", nullptr}})
          == at + "its tokens are neither of bytes nor of characters");
    CHECK(refusal_of("words-qwen", {{"added_tokens", {{{"id", 5}}}}})
          == at + "an added token has no number, or no text");
    CHECK(refusal_of("words-gemma", {{"model", {{"byte_fallback", false}}}})
          == at + "it has no tokens for single bytes");
    CHECK(refusal_of("words-llama3", {{"added_tokens", nlohmann::json::array()}})
          == at + "its template has a token that was not added");
}

} // namespace test_tokenizer
