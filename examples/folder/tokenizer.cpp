// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tokenizer.hpp"

#include "model_folder.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <generate/file.hpp>
#include <queue>
#include <tuple>

namespace folder {

namespace {

constexpr std::size_t max_tokens = 1 << 24;

/// The regular expressions that are known, and what they mean.
struct KnownSplit {
    const char* expression;
    WordRules rules;
};
const KnownSplit known_splits[] = {
    // Llama 3
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
     "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
     "\\s+(?!\\S)|\\s+",
     {.any_case = true, .any_prefix = true, .newlines = true, .digits = 3}},
    // Qwen 2 and 3
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
     "\\s+(?!\\S)|\\s+",
     {.any_case = true, .any_prefix = true, .newlines = true, .digits = 1}},
};

/// GPT-2's characters for bytes: printable ones stand for themselves, the others for 256 and so on.
std::array<char32_t, 256> characters_of_bytes() {
    std::array<char32_t, 256> found{};
    char32_t next = 256;
    for (unsigned byte = 0; byte < 256; ++byte) {
        const bool is_printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
        found[byte] = is_printable ? byte : next++;
    }
    return found;
}

std::uint64_t pair_of(int left, int right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

const nlohmann::json& member(const nlohmann::json& json, const char* key) {
    static const nlohmann::json none;
    if (!json.is_object()) return none;
    const auto found = json.find(key);
    return found == json.end() ? none : *found;
}

bool is(const nlohmann::json& json, const char* key, const char* text) {
    return member(json, key) == text;
}

/// A step, or the steps of a sequence.
std::vector<nlohmann::json> steps_of(const nlohmann::json& step, const char* list) {
    if (step.is_null()) return {};
    if (!is(step, "type", "Sequence")) return {step};
    return {member(step, list).begin(), member(step, list).end()};
}

} // namespace

Tokenizer::Tokenizer(const std::string& path) : path_{path} {
    const nlohmann::json json = read_json(path);
    const nlohmann::json& model = member(json, "model");
    if (!is(model, "type", "BPE")) fail("the model is not of the type BPE");
    read_vocabulary(model);
    read_added(member(json, "added_tokens"));
    read_merges(model);
    read_rules(json);
    whole_words_first_ = member(model, "ignore_merges") == true;
    for (const nlohmann::json& step : steps_of(member(json, "post_processor"), "processors")) read_frame(step);
}

void Tokenizer::fail(const std::string& what) const {
    throw llama::FileError{path_, what};
}

void Tokenizer::read_vocabulary(const nlohmann::json& model) {
    const nlohmann::json& vocabulary = member(model, "vocab");
    if (!vocabulary.is_object()) fail("the model has no vocab");
    for (const auto& [text, id] : vocabulary.items()) {
        if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= max_tokens)
            fail("token " + llama::in_quotes(text) + " has no number");
        const auto token = id.get<std::size_t>();
        if (token >= texts_.size()) texts_.resize(token + 1);
        texts_[token] = text;
        tokens_[text] = static_cast<int>(token);
    }
}

void Tokenizer::read_added(const nlohmann::json& tokens) {
    for (const nlohmann::json& token : tokens) {
        const nlohmann::json& id = member(token, "id");
        const nlohmann::json& content = member(token, "content");
        if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= max_tokens || !content.is_string()
            || content.get<std::string>().empty())
            fail("an added token has no number, or no text");
        const int number = id.get<int>();
        if (number >= size()) texts_.resize(static_cast<std::size_t>(number) + 1);
        texts_[static_cast<std::size_t>(number)] = content.get<std::string>();
        added_.emplace_back(content.get<std::string>(), number);
        special_.resize(std::max(special_.size(), static_cast<std::size_t>(number) + 1));
        special_[static_cast<std::size_t>(number)] = member(token, "special") == true;
    }
    special_.resize(texts_.size());
    std::stable_sort(added_.begin(), added_.end(),
                     [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
}

/// A merge is a pair of texts, or in older files one text with a space between them.
void Tokenizer::read_merges(const nlohmann::json& model) {
    const nlohmann::json& merges = member(model, "merges");
    if (!merges.is_array()) fail("the model has no merges");
    int rank = 0;
    for (const nlohmann::json& merge : merges) {
        std::string left;
        std::string right;
        if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
            left = merge[0];
            right = merge[1];
        } else if (merge.is_string()) {
            const auto text = merge.get<std::string>();
            left = text.substr(0, text.find(' '));
            right = text.substr(std::min(left.size() + 1, text.size()));
        }
        const int from = token_of(left);
        const int with = token_of(right);
        const int to = token_of(left + right);
        if (from < 0 || with < 0 || to < 0) fail("merge " + std::to_string(rank) + " is not of tokens");
        merges_.emplace(pair_of(from, with), Merge{rank++, to});
    }
}

void Tokenizer::read_rules(const nlohmann::json& json) {
    for (const nlohmann::json& step : steps_of(member(json, "normalizer"), "normalizers")) {
        const bool marks_spaces =
            is(step, "type", "Replace") && is(step, "content", "\u2581") && is(member(step, "pattern"), "String", " ");
        if (!marks_spaces && !is(step, "type", "NFC")) fail("its normalizer is not known");
        rules_.whole = rules_.whole || marks_spaces;
    }
    for (const nlohmann::json& step : steps_of(member(json, "pre_tokenizer"), "pretokenizers")) {
        if (is(step, "type", "Split")) {
            read_split(step);
        } else if (is(step, "type", "Digits") && member(step, "individual_digits") == true) {
            rules_.digits_are_apart = true;
        } else if (is(step, "type", "ByteLevel") && member(step, "add_prefix_space") != true) {
            of_bytes_ = true;
        } else {
            fail("its pre_tokenizer is not known");
        }
    }
    if (of_bytes_ == rules_.whole) fail("its tokens are neither of bytes nor of characters");
    if (!of_bytes_ && member(member(json, "model"), "byte_fallback") != true) fail("it has no tokens for single bytes");
}

void Tokenizer::read_split(const nlohmann::json& step) {
    const nlohmann::json& pattern = member(step, "pattern");
    if (rules_.whole && is(pattern, "String", " ")) return; // spaces have been replaced
    for (const KnownSplit& known : known_splits) {
        if (!is(pattern, "Regex", known.expression)) continue;
        rules_ = known.rules;
        return;
    }
    fail("it splits texts by an expression that is not known");
}

void Tokenizer::read_frame(const nlohmann::json& processor) {
    std::vector<int>* side = &before_;
    if (!is(processor, "type", "TemplateProcessing")) return;
    for (const nlohmann::json& piece : member(processor, "single")) {
        if (piece.contains("Sequence")) side = &after_;
        if (!piece.contains("SpecialToken")) continue;
        const auto name = member(piece.at("SpecialToken"), "id");
        const auto found = std::find_if(added_.begin(), added_.end(), [&](const auto& a) { return name == a.first; });
        if (found == added_.end()) fail("its template has a token that was not added");
        side->push_back(found->second);
    }
}

int Tokenizer::token_of(const std::string& text) const {
    const auto found = tokens_.find(text);
    return found == tokens_.end() ? -1 : found->second;
}

std::vector<int> Tokenizer::encode(std::string_view text) const {
    std::vector<int> tokens = before_;
    std::size_t plain = 0; // where the text since the last added token begins
    for (std::size_t i = 0; i < text.size();) {
        const auto found = std::find_if(added_.begin(), added_.end(),
                                        [&](const auto& a) { return text.substr(i, a.first.size()) == a.first; });
        if (found == added_.end()) {
            ++i;
            continue;
        }
        encode_plain(text.substr(plain, i - plain), tokens);
        tokens.push_back(found->second);
        plain = i += found->first.size();
    }
    encode_plain(text.substr(plain), tokens);
    tokens.insert(tokens.end(), after_.begin(), after_.end());
    return tokens;
}

void Tokenizer::encode_plain(std::string_view text, std::vector<int>& tokens) const {
    std::u32string characters = code_points(text);
    if (rules_.whole) std::replace(characters.begin(), characters.end(), U' ', U'\u2581');
    for (const std::u32string& word : words_of(characters, rules_)) encode_word(word, tokens);
}

void Tokenizer::encode_word(const std::u32string& word, std::vector<int>& tokens) const {
    static const auto of_byte = characters_of_bytes();
    std::u32string symbols = word;
    if (of_bytes_) {
        symbols.clear();
        for (const char32_t c : word)
            for (const char byte : utf8(c)) symbols += of_byte[static_cast<unsigned char>(byte)];
    }
    if (whole_words_first_) {
        std::string whole;
        for (const char32_t c : symbols) whole += utf8(c);
        if (const int token = token_of(whole); token >= 0) return tokens.push_back(token);
    }
    std::vector<int> found = symbols_of(symbols);
    merge(found);
    tokens.insert(tokens.end(), found.begin(), found.end());
}

/// A token for each character; for one that has none, the tokens of its bytes.
std::vector<int> Tokenizer::symbols_of(const std::u32string& word) const {
    std::vector<int> symbols;
    for (const char32_t c : word) {
        const std::string text = utf8(c);
        if (const int token = token_of(text); token >= 0) {
            symbols.push_back(token);
            continue;
        }
        for (const char byte : text) {
            char name[8];
            std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned char>(byte));
            const int token = token_of(name);
            if (token < 0) fail("it has no token for the byte " + std::string{name});
            symbols.push_back(token);
        }
    }
    return symbols;
}

/// Merges the pair of the lowest rank, the leftmost one first, until there is none.
void Tokenizer::merge(std::vector<int>& symbols) const {
    const int count = static_cast<int>(symbols.size());
    const auto at = [&](int i) -> int& { return symbols[static_cast<std::size_t>(i)]; };
    std::vector<int> next(symbols.size());
    std::vector<int> previous(symbols.size());
    for (int i = 0; i < count; ++i) {
        next[static_cast<std::size_t>(i)] = i + 1;
        previous[static_cast<std::size_t>(i)] = i - 1;
    }
    using Candidate = std::tuple<int, int, int, int, int>; // rank, left, right, and the symbols there
    std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
    const auto add = [&](int left, int right) {
        if (left < 0 || right >= count) return;
        const auto found = merges_.find(pair_of(at(left), at(right)));
        if (found != merges_.end()) candidates.emplace(found->second.rank, left, right, at(left), at(right));
    };
    for (int i = 0; i + 1 < count; ++i) add(i, i + 1);
    while (!candidates.empty()) {
        const auto [rank, left, right, left_symbol, right_symbol] = candidates.top();
        candidates.pop();
        if (at(left) != left_symbol || at(right) != right_symbol || next[static_cast<std::size_t>(left)] != right)
            continue;
        at(left) = merges_.at(pair_of(left_symbol, right_symbol)).token;
        at(right) = -1;
        const int after = next[static_cast<std::size_t>(right)];
        next[static_cast<std::size_t>(left)] = after;
        if (after < count) previous[static_cast<std::size_t>(after)] = left;
        add(previous[static_cast<std::size_t>(left)], left);
        add(left, after);
    }
    symbols.erase(std::remove(symbols.begin(), symbols.end(), -1), symbols.end());
}

std::string Tokenizer::decode(const std::vector<int>& tokens) const {
    static const auto of_byte = characters_of_bytes();
    std::string text;
    for (const int token : tokens) {
        const auto index = static_cast<std::size_t>(token);
        if (token < 0 || index >= texts_.size() || special_[index]) continue;
        const std::string& own = texts_[index];
        unsigned byte = 0;
        char end = 0;
        if (!of_bytes_ && own.size() == 6 && std::sscanf(own.c_str(), "<0x%2X%c", &byte, &end) == 2 && end == '>') {
            text += static_cast<char>(byte);
            continue;
        }
        for (const char32_t c : code_points(own)) {
            const auto found = of_bytes_ ? std::find(of_byte.begin(), of_byte.end(), c) : of_byte.end();
            text += found != of_byte.end()         ? std::string{static_cast<char>(found - of_byte.begin())}
                    : c == U'\u2581' && !of_bytes_ ? std::string{" "}
                                                   : utf8(c);
        }
    }
    return text;
}

} // namespace folder
