// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "words.hpp"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace folder {

/// The tokens of a tokenizer.json that merges pairs of symbols (BPE): of bytes, as in Llama 3, Qwen and SmolLM 2, or of
/// characters, as in Gemma. Text is taken as it is: one that is not in Unicode's normal form C is not changed into it.
class Tokenizer {
public:
    /// Throws `llama::FileError` for a file that is not as expected, or whose rules are not known.
    explicit Tokenizer(const std::string& path);

    /// With the tokens that the file puts around every text. Texts of added tokens ("<bos>") become these tokens.
    std::vector<int> encode(std::string_view text) const;
    /// Special tokens are left out.
    std::string decode(const std::vector<int>& tokens) const;

    int size() const { return static_cast<int>(texts_.size()); }

private:
    struct Merge {
        int rank;
        int token;
    };

    [[noreturn]] void fail(const std::string& what) const;
    void read_vocabulary(const nlohmann::json& model);
    void read_merges(const nlohmann::json& model);
    void read_added(const nlohmann::json& tokens);
    void read_rules(const nlohmann::json& json);
    void read_split(const nlohmann::json& step);
    void read_frame(const nlohmann::json& processor);

    int token_of(const std::string& text) const;
    void encode_plain(std::string_view text, std::vector<int>& tokens) const;
    void encode_word(const std::u32string& word, std::vector<int>& tokens) const;
    std::vector<int> symbols_of(const std::u32string& word) const;
    void merge(std::vector<int>& symbols) const;

    std::string path_;
    std::vector<std::string> texts_; // by token
    std::unordered_map<std::string, int> tokens_;
    std::unordered_map<std::uint64_t, Merge> merges_; // by the pair
    std::vector<std::pair<std::string, int>> added_;  // the longest first
    std::vector<bool> special_;                       // by token
    std::vector<int> before_, after_;                 // every text
    WordRules rules_;
    bool of_bytes_ = false;
    bool whole_words_first_ = false;
};

} // namespace folder
