// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "conversation.hpp"
#include "manner.hpp"
#include "pool/text_model.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace chat {

struct SpeechOptions {
    int tokens = 200; ///< of a reply at most
    std::uint64_t seed = 1;
    double temperature = 0.8;
};

/// Tokens that conversations needed in the memory.
struct Work {
    std::int64_t computed = 0;
    std::int64_t attached = 0; ///< the tree had them
};

/// What a reply does besides growing the conversation.
struct Listener {
    std::function<void(const std::string&)> write; ///< called for the text of each token
    std::function<bool()> is_interrupted;          ///< asked before each token
};

/// Computes replies. The seed, the length of the conversation and the attempt determine the random numbers of a reply.
/// So a conversation that was saved goes on as it would have.
class Speaker {
public:
    Speaker(llama::TextModel& model, llama::Texts& pool, const Manner& manner, const SpeechOptions& options)
        : model_{model}, pool_{pool}, manner_{manner}, options_{options} {}

    // All of these throw `std::runtime_error` if the memory has no room. The conversation is then as it was.

    /// Appends what the user says, as the first part of a turn, and the reply. Returns false if it was interrupted; the
    /// conversation then has a part of the reply.
    bool say(Conversation& c, const std::string& line, const Listener& listener);

    /// Replaces the last reply by another one.
    bool retry(Conversation& c, const Listener& listener);

    /// Takes the last turn back.
    void undo(Conversation& c);

    /// Makes the memory follow the conversation: attaches what the tree has, and computes the rest.
    void remember(Conversation& c);

    const Work& work() const { return work_; }

private:
    template <class F>
    auto all_or_nothing(Conversation& c, F change);
    bool reply(Conversation& c, const Listener& listener);
    void fit(Conversation& c);
    const llama::Matrix& feed(const Conversation& c, std::span<const int> tokens);

    llama::TextModel& model_;
    llama::Texts& pool_;
    const Manner& manner_;
    SpeechOptions options_;
    Work work_;
};

} // namespace chat
