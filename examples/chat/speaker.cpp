// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "speaker.hpp"

#include "generate/sampler.hpp"

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <utility>

namespace chat {

namespace {

/// Mixes numbers to a seed. (The constants are those of splitmix64.)
std::uint64_t mixed(std::uint64_t seed, std::uint64_t a, std::uint64_t b) {
    return seed + a * 0x9e3779b97f4a7c15U + b * 0xbf58476d1ce4e5b9U;
}

} // namespace

/// What `change` throws leaves the conversation as it was. What it had in the memory is computed again, as far as the
/// tree does not have it.
template <class F>
auto Speaker::all_or_nothing(Conversation& c, F change) {
    Conversation before = c;
    try {
        return change();
    } catch (...) {
        c = std::move(before);
        pool_.clear(c.text);
        try {
            remember(c);
        } catch (const std::runtime_error&) { // then when it is needed next
        }
        throw;
    }
}

bool Speaker::say(Conversation& c, const std::string& line, const Listener& listener) {
    return all_or_nothing(c, [&] {
        Turn turn{.begin = c.begin, .first = static_cast<int>(c.tokens.size())};
        manner_.say(c.tokens, line);
        turn.prompt_end = static_cast<int>(c.tokens.size());
        c.turns.push_back(turn);
        return reply(c, listener);
    });
}

bool Speaker::retry(Conversation& c, const Listener& listener) {
    return all_or_nothing(c, [&] {
        Turn& turn = c.turns.back();
        c.cut(turn.prompt_end, turn.begin);
        ++turn.attempt;
        pool_.clear(c.text);
        return reply(c, listener);
    });
}

void Speaker::undo(Conversation& c) {
    all_or_nothing(c, [&] {
        c.cut(c.turns.back().first, c.turns.back().begin);
        c.turns.pop_back();
        pool_.clear(c.text);
        remember(c);
    });
}

bool Speaker::reply(Conversation& c, const Listener& listener) {
    const Turn& turn = c.turns.back();
    llama::Sampler sample{
        mixed(options_.seed, static_cast<std::uint64_t>(turn.prompt_end), static_cast<std::uint64_t>(turn.attempt)),
        options_.temperature};
    fit(c);
    remember(c); // up to here, others may go on
    bool interrupted = false;
    for (int i = 0; i < options_.tokens; ++i) {
        interrupted = listener.is_interrupted();
        if (interrupted || (i > 0 && manner_.ends(c.reply()))) break;
        fit(c);
        const int token = sample(feed(c, c.visible().last(1)));
        c.tokens.push_back(token);
        listener.write(model_.text({&token, 1}));
    }
    remember(c);
    return !interrupted;
}

/// If the context is full, the model goes on with the newest half of what it sees.
void Speaker::fit(Conversation& c) {
    const auto seen = static_cast<int>(c.visible().size());
    if (seen <= pool_.limits().context) return;
    c.begin += seen - pool_.limits().context / 2;
    pool_.clear(c.text);
    remember(c);
}

void Speaker::remember(Conversation& c) {
    const auto tokens = c.remembered();
    if (tokens.empty()) return;
    if (const int length = pool_.length(c.text); length == 0 || pool_.match(tokens) > length) {
        pool_.clear(c.text);
        work_.attached += pool_.attach(c.text, tokens) - length;
    }
    const auto batch = static_cast<std::size_t>(pool_.limits().batch);
    for (auto done = static_cast<std::size_t>(pool_.length(c.text)); done < tokens.size(); done += batch)
        feed(c, tokens.subspan(done, std::min(batch, tokens.size() - done)));
    pool_.keep(c.text, tokens);
}

const llama::Matrix& Speaker::feed(const Conversation& c, std::span<const int> tokens) {
    const llama::NewTokens batch{c.text, tokens};
    cellar::Refusal refusal;
    const llama::Matrix* const logits = model_.run({&batch, 1}, refusal);
    if (logits == nullptr) {
        const bool is_full = refusal == cellar::Reason::full;
        throw std::runtime_error{"the memory refused " + std::to_string(tokens.size())
                                 + " tokens: " + to_string(refusal) + (is_full ? "; /close another conversation" : "")};
    }
    work_.computed += static_cast<std::int64_t>(tokens.size());
    return *logits;
}

} // namespace chat
