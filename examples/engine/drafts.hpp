// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "engine.hpp"
#include "pool/text_model.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace engine {

/// Guesses how texts go on, by a model whose memory follows the texts.
class Guesser {
public:
    /// The memory of `engine` has as many texts, and a rollback of at least the tokens that are guessed at a time.
    explicit Guesser(Engine& engine)
        : engine_{engine}, held_(static_cast<std::size_t>(engine.memory().limits().texts)) {}

    /// What is wanted, and what was found: up to `count` tokens after these, which are those of the text so far.
    struct Guess {
        int text = 0;
        std::vector<int> tokens = {};
        int count = 0; // 0: nothing is wanted
        std::vector<int> found = {};
    };

    /// Finds fewer where the memory has no room.
    void find(std::span<Guess> guesses);

    /// What the texts lose, and what is kept of them for others.
    void clear(int text);
    void remove(int text, int begin, int end);
    void keep(int text, std::span<const int> tokens);

private:
    std::vector<int>& held(int text) { return held_[static_cast<std::size_t>(text)]; }
    bool cut(int text, std::size_t length);
    std::vector<int> follow(int text, std::span<const int> tokens);

    Engine& engine_;
    std::vector<std::vector<int>> held_; // of each text, the tokens in the memory
};

/// Tokens that were guessed and computed, and those of them that the texts went on with.
struct DraftCounts {
    std::int64_t guessed = 0;
    std::int64_t accepted = 0;
};

/// An engine and its memory, for programs for texts, with drafts (speculative decoding, arXiv:2211.17192): a pass over
/// the next token of a text has also those that a smaller model guesses after it. As long as the program goes on with
/// them, their logits are there already. From the first one on that it does not take, they leave the memory, which has
/// nothing to copy for that. The program sees what it would see without drafts, but for rounding, and draws tokens as
/// it likes.
class Drafts final : public llama::TextModel, public llama::Texts {
public:
    /// Both memories have a rollback of at least `count`, which is how many tokens are guessed at a time, and the second
    /// one has as many texts. `words`: for what has nothing to do with the memory. Throws if the models have different
    /// vocabularies.
    Drafts(const llama::TextModel& words, Engine& engine, Engine& smaller, int count);

    const DraftCounts& counts() const { return counts_; }

    // Of `TextModel`.
    std::vector<int> tokens(const std::string& text) const override { return words_.tokens(text); }
    std::string text(std::span<const int> tokens) const override { return words_.text(tokens); }
    int vocabulary() const override { return words_.vocabulary(); }
    const llama::Matrix* run(std::span<const llama::NewTokens> batch, cellar::Refusal& refusal) override;

    // Of `Texts`. What was guessed is not seen.
    cellar::Result<void> begin(std::span<const llama::NewTokens> batch) override;
    void commit() override { memory().commit(); }
    void drop() override { memory().drop(); }
    int length(int text) const override;
    void clear(int text) override;
    cellar::Result<void> remove(int text, int begin, int end) override;
    int match(std::span<const int> tokens) const override { return memory().match(tokens); }
    int attach(int text, std::span<const int> tokens) override;
    cellar::Result<void> enter(const cellar::serve::Admission& admission) override;
    void keep(int text, std::span<const int> tokens) override;
    void save(const std::string& path, int text, const cellar::SaveOptions& options) override;
    void load(const std::string& path, int text, const cellar::LoadOptions& options) override;
    const llama::PoolLimits& limits() const override { return memory().limits(); }
    llama::PoolUse use() const override { return memory().use(); }
    std::int64_t bytes() const override { return memory().bytes(); }
    cellar::PrefixStatistics prefixes() const override { return memory().prefixes(); }
    std::string map(bool colour) const override { return memory().map(colour); }
    std::string audit() const override { return memory().audit(); }

private:
    struct Text {
        std::vector<int> tokens;  // the newest ones of the program, as many as are known
        std::vector<int> guessed; // in the memory after these
        llama::Matrix logits;     // after the last of the tokens that were computed, and after each guess
    };

    Memory& memory() const { return engine_.memory(); }
    Text& of(int text) { return texts_[static_cast<std::size_t>(text)]; }
    bool is_guessed(const llama::NewTokens& part);
    bool compute(std::span<const llama::NewTokens> batch, cellar::Refusal& refusal);
    std::vector<Guesser::Guess> guesses(std::span<const llama::NewTokens> batch);
    const llama::Matrix* compute_with(std::span<const llama::NewTokens> batch, std::span<const Guesser::Guess> guesses,
                                      cellar::Refusal& refusal);
    void take_back(int text);

    const llama::TextModel& words_;
    Engine& engine_;
    Guesser guesser_;
    int count_;
    std::vector<Text> texts_;
    llama::Matrix answer_;
    DraftCounts counts_;
};

} // namespace engine
