// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "writer.hpp"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>

namespace engine {

namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

} // namespace

Written Writer::write(std::vector<int>& tokens, int count, const std::function<bool(int token)>& write) {
    Written done;
    shifts_ = 0;
    const std::span<const int> given{tokens};
    const auto piece = static_cast<std::size_t>(memory_.limits().batch);
    if (memory_.length(text_) == 0) done.attached = memory_.attach(text_, given.first(given.size() - 1));
    auto begin = Clock::now();
    const llama::Matrix* logits = nullptr;
    for (auto at = static_cast<std::size_t>(memory_.length(text_)); at < given.size(); at += piece) {
        logits = &feed(given.subspan(at, std::min(piece, given.size() - at)));
        done.prompt += static_cast<int>(std::min(piece, given.size() - at));
    }
    if (logits == nullptr) throw std::runtime_error{"there is no new token to go on from, expected at least one"};
    if (shifts_ == 0) memory_.keep(text_, given);
    done.prompt_seconds = since(begin);
    begin = Clock::now();
    while (done.tokens < count) {
        const int token = sample_(*logits);
        tokens.push_back(token);
        ++done.tokens;
        if (!write(token) || done.tokens == count) break;
        logits = &feed({&token, 1});
    }
    done.seconds = since(begin);
    done.shifts = shifts_;
    return done;
}

const llama::Matrix& Writer::feed(std::span<const int> tokens) {
    make_room(static_cast<int>(tokens.size()));
    const llama::NewTokens batch{text_, tokens};
    cellar::Refusal refusal;
    const llama::Matrix* const logits = model_.run({&batch, 1}, refusal);
    if (logits == nullptr) throw std::runtime_error{"the memory refused a pass: " + to_string(refusal)};
    return *logits;
}

void Writer::make_room(int tokens) {
    const int length = memory_.length(text_);
    if (length + tokens <= memory_.limits().context) return;
    const int sinks = std::min(options_.sinks, length);
    const int removed = std::max((length - sinks) / 2, length + tokens - memory_.limits().context);
    if (const auto done = memory_.remove(text_, sinks, sinks + removed); !done)
        throw std::runtime_error{"the memory refused to remove old tokens: " + to_string(done.error())};
    ++shifts_;
}

} // namespace engine
