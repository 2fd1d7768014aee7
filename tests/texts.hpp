// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <set>
#include <string>

/// The texts of an enumeration of reasons.
struct Texts {
    int count = 0; ///< of reasons that have one, from the first reason on
    std::set<std::string> distinct;
};

template <class Reason, class TextOf>
Texts texts_of_reasons(TextOf text_of) {
    Texts found;
    for (;; ++found.count) {
        const std::string text = text_of(static_cast<Reason>(found.count));
        if (text == "unknown reason") return found;
        found.distinct.insert(text);
    }
}
