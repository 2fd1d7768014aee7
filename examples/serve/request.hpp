// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "generate/sampler.hpp"
#include "pool/text_model.hpp"
#include "trace.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace serve {

using Clock = std::chrono::steady_clock;

/// A user's conversation, and the turn that is being served.
class Request {
public:
    Request(const User& user, int index, const llama::TextModel& model, double temperature)
        : user_{&user}, index_{index}, model_{&model}, temperature_{temperature}, arrival_{user.at}, sample_{0, 0} {
        append(user.system);
        system_length_ = length();
        begin_turn();
    }

    /// Tokens of the user's whole conversation.
    static std::int64_t length(const User& user, const llama::TextModel& model) {
        auto length = static_cast<std::int64_t>(model.tokens(user.system).size());
        for (const Turn& turn : user.turns)
            length += static_cast<std::int64_t>(model.tokens(turn.say).size()) + turn.reply;
        return length;
    }

    int index() const { return index_; }
    /// The step at which the turn's prompt arrives.
    int arrival() const { return arrival_; }
    const std::string& system() const { return user_->system; }
    int system_length() const { return system_length_; }

    int length() const { return static_cast<int>(tokens_.size()); }
    std::span<const int> tokens() const { return tokens_; }
    std::span<const int> first(int count) const { return tokens().first(static_cast<std::size_t>(count)); }

    /// Where the tree should keep what was computed: the end of the shared prompt, and the prompt but for its last
    /// token, whose output is needed.
    bool is_boundary(int length) const { return length == system_length() || length == prompt_end_ - 1; }

    /// How many tokens may follow the first `done` in one pass, at most `budget`.
    int piece(int done, int budget) const {
        int end = std::min(length(), done + budget);
        for (const int boundary : {prompt_end_ - 1, system_length()})
            if (done < boundary && boundary < end) end = boundary;
        return end - done;
    }

    /// Draws the next token of the reply.
    void draw(const llama::Matrix& logits, Eigen::Index row) { tokens_.push_back(sample_(logits, row)); }
    bool has_one_token() const { return length() == prompt_end_ + 1; }
    bool is_answered() const { return length() == prompt_end_ + turn().reply; }

    /// Goes on to the next turn, whose prompt arrives after `step`. Returns false if there is none.
    bool next_turn(int step) {
        if (++turn_ == user_->turns.size()) return false;
        arrival_ = step + 1 + turn().wait;
        begin_turn();
        return true;
    }

    std::string text() const { return forgotten_.empty() ? model_->text(tokens_) : whole_text(); }

    /// Tokens [begin, end) no longer fit, and those after them move down.
    void forget(int begin, int end) {
        forgotten_.push_back({begin, {tokens_.begin() + begin, tokens_.begin() + end}});
        tokens_.erase(tokens_.begin() + begin, tokens_.begin() + end);
        prompt_end_ -= end - begin;
        system_length_ = std::min(system_length_, begin);
    }

    int text_number = -1;      ///< in the pool; -1 while it waits
    bool is_shifted = false;   ///< what the pool has of it saw tokens that were forgotten
    Clock::time_point since{}; ///< when the prompt arrived

private:
    const Turn& turn() const { return user_->turns[turn_]; }

    void append(const std::string& text) {
        const std::vector<int> tokens = model_->tokens(text);
        tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    }

    std::string whole_text() const {
        std::vector<int> whole = tokens_;
        for (auto part = forgotten_.rbegin(); part != forgotten_.rend(); ++part)
            whole.insert(whole.begin() + part->begin, part->tokens.begin(), part->tokens.end());
        return model_->text(whole);
    }

    void begin_turn() {
        append(turn().say);
        prompt_end_ = length();
        sample_ = llama::Sampler{user_->seed + turn_ * 0x9e3779b97f4a7c15U, temperature_};
    }

    const User* user_;
    int index_;
    const llama::TextModel* model_;
    double temperature_;
    int arrival_;
    std::size_t turn_ = 0;
    int system_length_ = 0;
    int prompt_end_ = 0; // at most 0 once the prompt is forgotten
    std::vector<int> tokens_;
    struct Forgotten {
        int begin;
        std::vector<int> tokens;
    };
    std::vector<Forgotten> forgotten_; // in this order
    llama::Sampler sample_;
};

} // namespace serve
