// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace folder {

/// How a text is cut into words before pairs of symbols are merged. The regular expressions of published tokenizers
/// differ in these points.
struct WordRules {
    bool whole = false;            ///< the text is one word
    bool any_case = false;         ///< contractions ("'s") also in capitals
    bool any_prefix = false;       ///< letters may follow any other character, not only a space
    bool newlines = false;         ///< newlines end what comes before them: punctuation, or white space
    int digits = 0;                ///< the longest run of digits, without a space; 0: any, and a space may come first
    bool digits_are_apart = false; ///< the text is first cut at every digit
};

/// UTF-8 as code points. Bytes that are not UTF-8 become U+FFFD, as in the library of these tokenizers.
std::u32string code_points(std::string_view text);
/// The UTF-8 of a code point.
std::string utf8(char32_t c);

/// The words of a text, in its order; together they are the text.
std::vector<std::u32string> words_of(std::u32string_view text, const WordRules& rules);

} // namespace folder
