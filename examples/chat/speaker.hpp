// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "conversation.hpp"
#include "generate/model.hpp"
#include "pool/text_pool.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace chat {

struct SpeechOptions {
    std::string user = "ROMEO";
    std::string speaker = "JULIET";
    std::string stop = "\n\n"; ///< ends a reply; empty: only `tokens` does
    int tokens = 200;          ///< of a reply at most
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
    std::function<void(char)> write;      ///< called for each byte
    std::function<bool()> is_interrupted; ///< asked before each byte
};

/// Computes replies. The seed, the length of the conversation and the attempt determine the random numbers of a reply.
/// So a conversation that was saved goes on as it would have.
class Speaker {
public:
    Speaker(llama::Llama& model, llama::TextPool& pool, SpeechOptions options)
        : model_{model}, pool_{pool}, options_{std::move(options)} {}

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
    bool reply(Conversation& c, const Listener& listener);
    void fit(Conversation& c);
    const llama::Matrix& feed(const Conversation& c, std::span<const int> tokens);
    bool ends_with_stop(const Conversation& c) const;

    llama::Llama& model_;
    llama::TextPool& pool_;
    SpeechOptions options_;
    Work work_;
};

} // namespace chat
