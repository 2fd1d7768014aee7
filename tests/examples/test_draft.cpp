// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Drafts from the text so far, and removal of the tokens that were drafted wrong.
#include "generate/draft.hpp"
#include "generate/memory.hpp"
#include "generate/sampler.hpp"
#include "generate/session.hpp"
#include "tiny_model.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace test_draft {

namespace {

std::vector<int> draft(const std::string& text, int count) {
    const std::vector<int> tokens(text.begin(), text.end());
    return llama::draft(tokens, count);
}

std::vector<int> tokens(const std::string& text) {
    return {text.begin(), text.end()};
}

} // namespace

TEST_CASE("draft: repeats what followed the longest earlier occurrence of the end") {
    CHECK(draft("to be or not to be", 4) == tokens(" or "));
    CHECK(draft("to be or not to be", 3) == tokens(" or"));
    CHECK(draft("abcX abcY abc", 1) == tokens("Y"));    // the latest of two equally long
    CHECK(draft("1abcX 2abcY 1abc", 1) == tokens("X")); // the longer one
    CHECK(draft("aaaaaa", 2) == tokens("a"));           // not beyond the end of the text
    CHECK(draft("abc abc", 9) == tokens(" abc"));
}

TEST_CASE("draft: is empty without a long enough occurrence") {
    CHECK(draft("", 4).empty());
    CHECK(draft("abc", 4).empty());
    CHECK(draft("ab ab", 4).empty()); // fewer than three tokens
    CHECK(draft("to be or not to be", 0).empty());
    CHECK(draft("to be or not to be", -1).empty());
    CHECK(draft("key1" + std::string(5000, '-') + "key", 1).empty());
    CHECK(draft("key1" + std::string(4000, '-') + "key", 1) == tokens("1"));
}

TEST_CASE("session: tokens that were tried and removed leave no trace") {
    for (const llama::Config& config : {tiny_config(), tiny_hybrid_config(), tiny_shakespeare_hybrid_config()}) {
        llama::Llama model{RandomWeights{5}(config)};
        std::mt19937 random{11};
        for (const int context : {16, 33, 64}) {
            const llama::TextLimits limits{.context = context, .batch = 8, .rollback = 5};
            const auto memory = llama::make_memory(config, limits);
            const auto plain_memory = llama::make_memory(config, {.context = context, .batch = 8});
            llama::Session session{model, *memory};
            llama::Session plain{model, *plain_memory};
            int removed = 0;
            for (int fed = 0; fed < 150;) {
                const int max = std::min(session.room(), limits.rollback + 1);
                std::vector<int> tried(1 + random() % static_cast<unsigned>(max));
                for (int& token : tried) token = static_cast<int>(random() % 32);
                const llama::Matrix logits = session.try_out(tried);
                const auto kept = 1 + static_cast<int>(random() % tried.size());
                session.keep(kept);
                for (int i = 0; i < kept; ++i) {
                    const llama::Matrix& expected = plain.feed({&tried[static_cast<std::size_t>(i)], 1});
                    // After a shift, the sliding layers of the two keep different tokens. `check` compares those.
                    if (session.shifts() == 0) CHECK((logits.row(i) - expected.row(0)).cwiseAbs().maxCoeff() < 1e-4F);
                }
                fed += kept;
                removed += static_cast<int>(tried.size()) - kept;
            }
            CHECK(removed > 20);
            CHECK(session.shifts() == plain.shifts());
            CHECK(session.shifts() > 0);
            CHECK(session.check().passed());
            CHECK(plain.check().passed());
        }
    }
}

} // namespace test_draft
