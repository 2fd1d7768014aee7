// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "generate/memory.hpp"
#include "generate/model.hpp"
#include "generate/sampler.hpp"
#include "generate/session.hpp"

#include <span>
#include <vector>

struct SessionOutcome {
    llama::Check check;
    int shifts = 0;
    std::vector<int> text;
};

/// Feeds a prompt of `prompt` tokens, then generates `tokens` more.
inline SessionOutcome run_session(llama::Llama& speaker, llama::TextMemory& memory, int prompt, int tokens) {
    llama::Session session{speaker, memory};
    llama::Sampler sample{7, 1.0};
    std::vector<int> text;
    for (int i = 0; i < prompt; ++i) text.push_back(i * i % speaker.config().vocab_size);
    const llama::Matrix* logits = &session.feed(text);
    for (int i = 0; i < tokens; ++i) {
        text.push_back(sample(*logits));
        logits = &session.feed(std::span{&text.back(), 1});
    }
    return {session.check(), session.shifts(), text};
}
