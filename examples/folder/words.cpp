// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "words.hpp"

#include "unicode_classes.hpp"

#include <algorithm>
#include <cstddef>

namespace folder {

namespace {

/// Tries the alternatives of the regular expressions, in their order, at one place of a text.
class Word {
public:
    Word(std::u32string_view rest, const WordRules& rules) : rest_{rest}, rules_{rules} {}

    /// At least 1.
    std::size_t length() const {
        for (const std::size_t length : {contraction(), letters(), digits(), punctuation(), white_space()})
            if (length != 0) return length;
        return 1;
    }

private:
    char32_t at(std::size_t i) const { return i < rest_.size() ? rest_[i] : U'\0'; }
    bool ends(std::size_t i) const { return i >= rest_.size(); }

    template <class Is>
    std::size_t run(std::size_t begin, Is is) const {
        while (!ends(begin) && is(rest_[begin])) ++begin;
        return begin;
    }
    static bool is_newline(char32_t c) { return c == '\r' || c == '\n'; }
    static bool is_other(char32_t c) { return !is_space(c) && !is_letter(c) && !is_number(c); }

    std::size_t contraction() const {
        if (at(0) != '\'') return 0;
        for (const std::u32string_view ending : {U"s", U"t", U"re", U"ve", U"m", U"ll", U"d"}) {
            const auto matches = [&](char32_t letter, char32_t c) {
                return c == letter || (rules_.any_case && c + 32 == letter);
            };
            const std::u32string_view found = rest_.substr(1, ending.size());
            if (found.size() == ending.size() && std::equal(ending.begin(), ending.end(), found.begin(), matches))
                return 1 + ending.size();
        }
        // Case folding also makes an s of U+017F.
        return rules_.any_case && at(1) == 0x17f ? 2 : 0;
    }

    std::size_t letters() const {
        const bool prefix = rules_.any_prefix
                                ? !ends(0) && !is_newline(rest_[0]) && !is_letter(rest_[0]) && !is_number(rest_[0])
                                : at(0) == ' ';
        const std::size_t begin = prefix ? 1 : 0;
        const std::size_t end = run(begin, is_letter);
        return end > begin ? end : 0;
    }

    std::size_t digits() const {
        const std::size_t begin = rules_.digits == 0 && at(0) == ' ' ? 1 : 0;
        const std::size_t end = run(begin, is_number);
        if (end == begin) return 0;
        return rules_.digits == 0 ? end : std::min(end, static_cast<std::size_t>(rules_.digits));
    }

    std::size_t punctuation() const {
        const std::size_t begin = at(0) == ' ' ? 1 : 0;
        const std::size_t end = run(begin, is_other);
        if (end == begin) return 0;
        return rules_.newlines ? run(end, is_newline) : end;
    }

    std::size_t white_space() const {
        const std::size_t end = run(0, is_space);
        if (rules_.newlines)
            for (std::size_t i = end; i > 0; --i)
                if (is_newline(rest_[i - 1])) return i;
        // The last space before a word belongs to that word.
        return !ends(end) && end > 1 ? end - 1 : end;
    }

    std::u32string_view rest_;
    const WordRules& rules_;
};

void add_words(std::u32string_view text, const WordRules& rules, std::vector<std::u32string>& words) {
    while (!text.empty()) {
        const std::size_t length = Word{text, rules}.length();
        words.emplace_back(text.substr(0, length));
        text.remove_prefix(length);
    }
}

} // namespace

std::u32string code_points(std::string_view text) {
    std::u32string all;
    for (std::size_t i = 0; i < text.size();) {
        const auto byte = [&](std::size_t n) { return n < text.size() ? static_cast<unsigned char>(text[n]) : 0U; };
        const unsigned first = byte(i);
        const std::size_t length = first < 0x80   ? 1
                                   : first < 0xc2 ? 0
                                   : first < 0xe0 ? 2
                                   : first < 0xf0 ? 3
                                   : first < 0xf5 ? 4
                                                  : 0;
        char32_t c = length == 1 ? first : length == 2 ? first & 0x1fU : length == 3 ? first & 0xfU : first & 0x7U;
        bool valid = length != 0;
        for (std::size_t n = 1; valid && n < length; ++n) {
            valid = (byte(i + n) & 0xc0U) == 0x80;
            c = c << 6 | (byte(i + n) & 0x3fU);
        }
        valid = valid && c <= 0x10ffff && !(c >= 0xd800 && c <= 0xdfff) && (length < 3 || c >= 0x800)
                && (length < 4 || c >= 0x10000);
        all += valid ? c : U'\ufffd';
        i += valid ? length : 1;
    }
    return all;
}

std::string utf8(char32_t c) {
    const auto tail = [&](int shift) { return static_cast<char>(0x80 | (c >> shift & 0x3f)); };
    if (c < 0x80) return {static_cast<char>(c)};
    if (c < 0x800) return {static_cast<char>(0xc0 | c >> 6), tail(0)};
    if (c < 0x10000) return {static_cast<char>(0xe0 | c >> 12), tail(6), tail(0)};
    return {static_cast<char>(0xf0 | c >> 18), tail(12), tail(6), tail(0)};
}

std::vector<std::u32string> words_of(std::u32string_view text, const WordRules& rules) {
    std::vector<std::u32string> words;
    if (rules.whole) {
        if (!text.empty()) words.emplace_back(text);
        return words;
    }
    while (rules.digits_are_apart && !text.empty()) {
        const auto digit = std::find_if(text.begin(), text.end(), is_number);
        const auto before = static_cast<std::size_t>(digit - text.begin());
        add_words(text.substr(0, before), rules, words);
        add_words(text.substr(before, 1), rules, words);
        text.remove_prefix(std::min(before + 1, text.size()));
    }
    add_words(text, rules, words);
    return words;
}

} // namespace folder
