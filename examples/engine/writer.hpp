// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "generate/sampler.hpp"
#include "pool/text_model.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace engine {

struct WriterOptions {
    int sinks = 4; ///< first tokens that stay when the text outgrows the context
    std::uint64_t seed = 1;
    double temperature = 0;
};

/// What writing took.
struct Written {
    int prompt = 0;   ///< tokens that were computed before the first one was drawn
    int attached = 0; ///< tokens of the prompt that the memory had
    int tokens = 0;   ///< drawn
    int shifts = 0;   ///< times that the context was full
    double prompt_seconds = 0;
    double seconds = 0; ///< from the first drawn token on
};

/// Writes one text. When the context is full, the older half of it is removed, but for its first tokens, and the rest
/// moves down.
class Writer {
public:
    Writer(llama::TextModel& model, llama::Texts& memory, int text, const WriterOptions& options)
        : model_{model}, memory_{memory}, text_{text}, options_{options}, sample_{options.seed, options.temperature} {}

    /// Goes on from `tokens`, which begin with what the memory has of the text, by up to `count` tokens. Ends after a
    /// token for which `write` returns false. Appends them to `tokens`.
    Written write(std::vector<int>& tokens, int count, const std::function<bool(int token)>& write);

private:
    const llama::Matrix& feed(std::span<const int> tokens);
    void make_room(int tokens);

    llama::TextModel& model_;
    llama::Texts& memory_;
    int text_;
    WriterOptions options_;
    llama::Sampler sample_;
    int shifts_ = 0;
};

} // namespace engine
