// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "drafts.hpp"

#include <algorithm>
#include <cstddef>
#include <stdexcept>

namespace engine {

namespace {

std::size_t common_prefix(std::span<const int> a, std::span<const int> b) {
    return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

} // namespace

// ---- the smaller model

void Guesser::find(std::span<Guess> guesses) {
    std::vector<std::vector<int>> next; // tokens that the smaller model has not seen
    for (const Guess& g : guesses) next.push_back(g.count > 0 ? follow(g.text, g.tokens) : std::vector<int>{});
    while (true) {
        std::vector<llama::NewTokens> batch;
        std::vector<std::size_t> of; // which guess each part belongs to
        auto left = static_cast<std::size_t>(engine_.memory().limits().batch);
        for (std::size_t i = 0; i < guesses.size(); ++i) {
            const std::size_t count = std::min(left, next[i].size());
            if (count == 0) continue;
            batch.push_back({guesses[i].text, std::span{next[i]}.first(count)});
            of.push_back(i);
            left -= count;
        }
        cellar::Refusal refusal;
        const llama::Matrix* const logits = batch.empty() ? nullptr : engine_.run(batch, refusal);
        if (logits == nullptr) return;
        for (std::size_t row = 0; row < batch.size(); ++row) {
            Guess& g = guesses[of[row]];
            std::vector<int>& rest = next[of[row]];
            const auto end = rest.begin() + std::ssize(batch[row].tokens);
            held(g.text).insert(held(g.text).end(), rest.begin(), end);
            rest.erase(rest.begin(), end);
            if (!rest.empty()) continue; // of a prompt
            Eigen::Index best = 0;
            logits->row(static_cast<Eigen::Index>(row)).maxCoeff(&best);
            g.found.push_back(static_cast<int>(best));
            if (std::ssize(g.found) < g.count) rest.push_back(g.found.back());
        }
    }
}

/// Makes the memory hold nothing but a part of these tokens. Returns the others, at least one.
std::vector<int> Guesser::follow(int text, std::span<const int> tokens) {
    const auto before = tokens.first(tokens.size() - 1);
    std::vector<int>& own = held(text);
    if (!cut(text, common_prefix(own, before))) clear(text);
    if (own.empty() && !before.empty()) {
        const int attached = engine_.memory().attach(text, before);
        own.assign(before.begin(), before.begin() + attached);
    }
    return {tokens.begin() + std::ssize(own), tokens.end()};
}

/// False if the memory cannot go back that far.
bool Guesser::cut(int text, std::size_t length) {
    std::vector<int>& own = held(text);
    if (own.size() > length && !engine_.memory().remove(text, static_cast<int>(length), static_cast<int>(own.size())))
        return false;
    own.resize(length);
    return true;
}

void Guesser::clear(int text) {
    engine_.memory().clear(text);
    held(text).clear();
}

void Guesser::remove(int text, int begin, int end) {
    std::vector<int>& own = held(text);
    if (end <= std::ssize(own) && engine_.memory().remove(text, begin, end))
        own.erase(own.begin() + begin, own.begin() + end); // else it is computed again
}

void Guesser::keep(int text, std::span<const int> tokens) {
    const std::size_t length = common_prefix(held(text), tokens);
    if (length > 0 && cut(text, length)) engine_.memory().keep(text, tokens.first(length));
}

// ---- the engine with drafts

Drafts::Drafts(const llama::TextModel& words, Engine& engine, Engine& smaller, int count)
    : words_{words},
      engine_{engine},
      guesser_{smaller},
      count_{count},
      texts_(static_cast<std::size_t>(engine.memory().limits().texts)) {
    const int own = engine.model().shape().vocabulary;
    const int other = smaller.model().shape().vocabulary;
    if (own != other)
        throw std::runtime_error{"the model of drafts has " + std::to_string(other) + " tokens, expected the "
                                 + std::to_string(own) + " of the model"};
}

const llama::Matrix* Drafts::run(std::span<const llama::NewTokens> batch, cellar::Refusal& refusal) {
    std::vector<llama::NewTokens> others;
    std::vector<int> accepted; // texts
    for (const llama::NewTokens& part : batch)
        if (is_guessed(part)) {
            accepted.push_back(part.text);
        } else {
            others.push_back(part);
        }
    if (!others.empty() && !compute(others, refusal)) return nullptr;
    for (const int text : accepted) {
        Text& t = of(text);
        t.tokens.push_back(t.guessed.front());
        t.guessed.erase(t.guessed.begin());
    }
    counts_.accepted += std::ssize(accepted);
    answer_.resize(std::ssize(batch), vocabulary());
    for (std::size_t i = 0; i < batch.size(); ++i) {
        const Text& t = of(batch[i].text);
        answer_.row(static_cast<Eigen::Index>(i)) = t.logits.row(t.logits.rows() - 1 - std::ssize(t.guessed));
    }
    return &answer_;
}

bool Drafts::is_guessed(const llama::NewTokens& part) {
    const Text& t = of(part.text);
    return part.tokens.size() == 1 && !t.guessed.empty() && t.guessed.front() == part.tokens.front();
}

/// A pass over these tokens, and what is guessed after them. False if it is refused.
bool Drafts::compute(std::span<const llama::NewTokens> batch, cellar::Refusal& refusal) {
    for (const llama::NewTokens& part : batch) take_back(part.text);
    std::vector<Guesser::Guess> drafts = guesses(batch);
    const llama::Matrix* logits = compute_with(batch, drafts, refusal);
    if (logits == nullptr) { // guesses take room
        for (Guesser::Guess& draft : drafts) draft.found.clear();
        logits = compute_with(batch, drafts, refusal);
    }
    if (logits == nullptr) return false;
    Eigen::Index end = 0;
    for (std::size_t i = 0; i < batch.size(); ++i) {
        Text& t = of(batch[i].text);
        t.tokens.insert(t.tokens.end(), batch[i].tokens.begin(), batch[i].tokens.end());
        t.guessed = std::move(drafts[i].found);
        const Eigen::Index rows = 1 + std::ssize(t.guessed);
        end += std::min<Eigen::Index>(std::ssize(batch[i].tokens) + rows - 1, count_ + 1);
        t.logits = logits->middleRows(end - rows, rows);
        counts_.guessed += std::ssize(t.guessed);
    }
    return true;
}

/// One for each part: none after pieces of prompts.
std::vector<Guesser::Guess> Drafts::guesses(std::span<const llama::NewTokens> batch) {
    int room = limits().batch;
    int writing = 0;
    for (const llama::NewTokens& part : batch) {
        room -= static_cast<int>(part.tokens.size());
        writing += part.tokens.size() == 1 ? 1 : 0;
    }
    std::vector<Guesser::Guess> guesses;
    for (const llama::NewTokens& part : batch) {
        Guesser::Guess& g = guesses.emplace_back(part.text);
        if (part.tokens.size() != 1) continue;
        g.count = std::min({count_, room / writing, limits().context - length(part.text) - 1});
        g.tokens = of(part.text).tokens;
        g.tokens.push_back(part.tokens.front());
    }
    guesser_.find(guesses);
    return guesses;
}

/// Logits of at most count_ + 1 tokens of each part.
const llama::Matrix* Drafts::compute_with(std::span<const llama::NewTokens> batch,
                                          std::span<const Guesser::Guess> guesses, cellar::Refusal& refusal) {
    std::vector<std::vector<int>> tokens;
    std::vector<llama::NewTokens> parts;
    for (std::size_t i = 0; i < batch.size(); ++i) {
        tokens.emplace_back(batch[i].tokens.begin(), batch[i].tokens.end());
        tokens.back().insert(tokens.back().end(), guesses[i].found.begin(), guesses[i].found.end());
    }
    for (std::size_t i = 0; i < batch.size(); ++i) parts.push_back({batch[i].text, tokens[i]});
    return engine_.run(parts, refusal, count_ + 1);
}

/// What was guessed leaves the memory.
void Drafts::take_back(int text) {
    const int now = memory().length(text);
    const int seen = length(text);
    if (now == seen) return;
    if (const auto removed = memory().remove(text, seen, now); !removed)
        throw std::runtime_error{"the memory refused to take back what was guessed: " + to_string(removed.error())};
    of(text).guessed.clear();
}

cellar::Result<void> Drafts::begin(std::span<const llama::NewTokens> batch) {
    for (const llama::NewTokens& part : batch) take_back(part.text);
    return memory().begin(batch);
}

int Drafts::length(int text) const {
    return memory().length(text) - static_cast<int>(texts_[static_cast<std::size_t>(text)].guessed.size());
}

void Drafts::clear(int text) {
    memory().clear(text);
    of(text) = {};
    guesser_.clear(text);
}

cellar::Result<void> Drafts::remove(int text, int begin, int end) {
    take_back(text);
    const int unknown = length(text) - static_cast<int>(of(text).tokens.size());
    auto removed = memory().remove(text, begin, end);
    if (!removed) return removed;
    const int first = std::max(0, begin - unknown);
    const int last = std::max(0, end - unknown);
    std::vector<int>& tokens = of(text).tokens;
    tokens.erase(tokens.begin() + first, tokens.begin() + last);
    guesser_.remove(text, first, last);
    return removed;
}

int Drafts::attach(int text, std::span<const int> tokens) {
    const int length = memory().attach(text, tokens);
    of(text).tokens.assign(tokens.begin(), tokens.begin() + length);
    return length;
}

cellar::Result<void> Drafts::enter(const cellar::serve::Admission& admission) {
    auto entered = memory().enter(admission);
    if (!entered) return entered;
    const int text = admission.sequence.value;
    of(text).tokens.assign(admission.known.begin(), admission.known.begin() + memory().length(text));
    return entered;
}
void Drafts::keep(int text, std::span<const int> tokens) {
    take_back(text);
    memory().keep(text, tokens);
    if (std::ssize(of(text).tokens) == length(text)) guesser_.keep(text, tokens);
}

void Drafts::save(const std::string& path, int text, const cellar::SaveOptions& options) {
    take_back(text);
    memory().save(path, text, options);
}

void Drafts::load(const std::string& path, int text, const cellar::LoadOptions& options) {
    take_back(text);
    memory().load(path, text, options);
    of(text) = {}; // the file does not say its tokens: guesses go by what follows
}

} // namespace engine
