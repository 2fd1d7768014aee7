// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "../prefix/reader.hpp"
#include <cellar/serve/plain_memory.hpp>
#include <cellar/serve/scheduler.hpp>
#include <cellar/serve/tree_memory.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <span>

// Schedulers over memories whose tokens are numbers: see ../prefix/reader.hpp. The model's next token is a hash of all
// tokens before it.

namespace serve_test {

using namespace prefix_test;
using cellar::serve::Admit;
using cellar::serve::Candidate;
using cellar::serve::Part;
using cellar::serve::PlainMemory;
using cellar::serve::PutBack;
using cellar::serve::Request;
using cellar::serve::RequestId;
using cellar::serve::Scheduler;
using cellar::serve::SchedulerLimits;
using cellar::serve::TreeMemory;

inline List list(std::span<const std::int32_t> tokens) {
    return {tokens.begin(), tokens.end()};
}

inline std::int32_t next_token(const List& tokens) {
    return toy::folded({tokens.begin(), tokens.end()}) % 50;
}
/// The prompt and its answer, when nobody else is served.
inline List answered(List tokens, std::int32_t answer) {
    for (; answer > 0; --answer) tokens.push_back(next_token(tokens));
    return tokens;
}

/// What the requests of a scheduler came to.
struct Answers {
    std::map<RequestId, List> texts = {};
    int steps = 0;
    int computed = 0; ///< tokens
};

/// Computes the step of a pass that is open.
template <class S, class M, class Pass>
void compute(const S& scheduler, const M& memory, Pass&& pass) {
    toy::Text text;
    for (const Part& part : scheduler.parts())
        for (const std::int32_t token : part.tokens) text.push_back({part.sequence.value, 0, token});
    REQUIRE(pass.tokens() == static_cast<std::int32_t>(text.size()));
    for (int layer = 0; layer < memory.layers(); ++layer) pass.visit(layer, toy::Work{text});
    pass.commit();
}

/// Draws the next token of each request that is computed. What is complete ends.
template <class S, class M>
void draw(S& scheduler, M& memory, Answers& answers) {
    ++answers.steps;
    for (const Part& part : scheduler.parts()) {
        answers.computed += static_cast<int>(part.tokens.size());
        if (!part.at_end) continue;
        const List tokens = list(scheduler.tokens(part.request));
        REQUIRE(lacks(memory, part.sequence.value, tokens) == "");
        if (scheduler.append(part.request, next_token(tokens)))
            answers.texts[part.request] = scheduler.finish(part.request);
    }
}

/// A step. Returns false if it was refused.
template <class S, class M>
bool step(S& scheduler, M& memory, Answers& answers) {
    auto pass = scheduler.begin();
    if (!pass) return false;
    compute(scheduler, memory, *pass);
    draw(scheduler, memory, answers);
    return true;
}

template <class S, class M>
Answers serve_all(S& scheduler, M& memory) {
    Answers answers;
    while (!scheduler.empty()) REQUIRE(step(scheduler, memory, answers));
    return answers;
}

} // namespace serve_test
