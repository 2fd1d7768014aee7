// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "generate/sampler.hpp"
#include "pool/text_model.hpp"
#include "trace.hpp"
#include <cellar/serve/request.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace serve {

using Clock = std::chrono::steady_clock;

/// Tokens [begin, end) of a conversation.
struct Range {
    int begin;
    int end;
};

/// A user's conversation, and the turn that is being served.
class Conversation {
public:
    Conversation(const User& user, int index, const llama::TextModel& model, double temperature)
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

    int length() const { return static_cast<int>(tokens_.size()); }

    /// The turn. Others may go on from the end of the shared prompt, and from the prompt but for its last token, whose
    /// output is needed.
    cellar::serve::Request request() const {
        return {.tokens = tokens_,
                .answer = prompt_end_ + turn().reply - length(),
                .keep = {system_length_, prompt_end_ - 1}};
    }

    /// Draws the next token of the reply.
    int draw(const llama::Matrix& logits, Eigen::Index row) {
        tokens_.push_back(sample_(logits, row));
        return tokens_.back();
    }
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

    /// What is forgotten when there are more tokens than `context`: the older half of those behind the first `sinks`, or
    /// more if they still do not fit.
    Range older_half(int sinks, int context) const {
        const int begin = std::min(sinks, context - 1);
        return {begin, begin + std::max((length() - begin) / 2, length() - context)};
    }
    /// These tokens no longer fit, and those after them move down.
    void forget(Range range) {
        const auto begin = tokens_.begin() + range.begin;
        const auto end = tokens_.begin() + range.end;
        forgotten_.push_back({range.begin, {begin, end}});
        tokens_.erase(begin, end);
        prompt_end_ -= range.end - range.begin;
        system_length_ = std::min(system_length_, range.begin);
    }

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
