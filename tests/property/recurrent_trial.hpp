// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "../recurrent/folding.hpp"
#include "recurrent_step.hpp"
#include "trace.hpp"

#include <climits>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace property::recurrent {

using cellar::Refusal;
using recurrent_test::Token;

/// The state after one more word, reckoned without the library.
inline naive::StateRef fold(const naive::StateRef& before, int word) {
    auto after = std::make_shared<naive::FoldedState>();
    after->numbers = before ? before->numbers : recurrent_test::numbers_after({});
    constexpr int wide = recurrent_test::rows * recurrent_test::columns;
    constexpr int of_layer = wide + recurrent_test::small;
    for (int n = 0; n < static_cast<int>(after->numbers.size()); ++n) {
        const int i = n % of_layer;
        const int modulus = i < wide ? recurrent_test::wide_modulus : recurrent_test::small_modulus;
        int& value = after->numbers[static_cast<std::size_t>(n)];
        value = recurrent_test::folded(value, word, n / of_layer, i < wide ? i : i - wide, modulus);
    }
    return after;
}

inline Refusal refusal(naive::NoState no) {
    switch (no) {
    case naive::NoState::batch_too_long:
        return Refusal::batch_too_long;
    case naive::NoState::not_next:
        return Refusal::not_next;
    case naive::NoState::unequal_batch:
        return Refusal::unequal_batch;
    case naive::NoState::cannot_rewind:
        return Refusal::cannot_rewind;
    default:
        return Refusal::cannot_cut;
    }
}

/// Does each step with a recurrent memory and with the naive model, and compares the two.
template <class Backend>
class Trial {
public:
    Trial(const naive::StateSetup& setup, int look_every)
        : look_every_{look_every},
          model_{setup, fold},
          memory_{recurrent_test::shape(),
                  {.sequences = setup.sequences,
                   .batch = setup.batch,
                   .rollback = setup.rollback,
                   .checkpoint_interval = setup.interval,
                   .checkpoint_bytes = setup.checkpoints * recurrent_test::state_bytes,
                   .unequal = setup.refuses_unequal ? cellar::Unequal::refuse : cellar::Unequal::split}} {
        const int kept = setup.sequences * (setup.rollback + 1);
        const int slots = kept + std::min(kept, setup.batch) + setup.checkpoints;
        trace_.expect(memory_.slots() == slots, memory_.slots(), " slots, expected ", slots);
    }

    void run(const std::vector<Step>& steps) {
        for (const Step& step : steps) {
            trace_.add("  ", step, '\n');
            take(step);
            check_counts();
            if (++done_ % look_every_ == 0) check_contents();
        }
        check_contents();
    }

private:
    using Memory = recurrent_test::Folding<Backend>;

    void take(const Step& step) {
        const int next = model_.next(step.sequence);
        const int begin = std::max(0, next - step.back);
        switch (step.verb) {
        case Verb::pass:
            return take_pass(step);
        case Verb::remove: {
            const int end = step.length == 0 ? INT_MAX : begin + step.length - 1;
            expect_answer(memory_.remove({step.sequence}, {begin}, {end}), model_.remove(step.sequence, begin, end));
            return;
        }
        case Verb::copy_prefix: {
            const int length = step.back == 0 ? next + 3 : begin;
            expect_answer(memory_.copy_prefix({step.sequence}, {step.target}, length),
                          model_.copy_prefix(step.sequence, step.target, length));
            return;
        }
        case Verb::checkpoint:
            if (model_.setup().checkpoints == 0) return;
            memory_.checkpoint({step.sequence});
            return model_.checkpoint(step.sequence);
        case Verb::schedule:
            if (model_.setup().checkpoints == 0) return;
            memory_.schedule({step.sequence}, {next + 1 + step.length});
            return model_.schedule(step.sequence, next + 1 + step.length);
        case Verb::reserve: {
            const auto tokens = std::min(step.length, model_.setup().batch);
            auto pass = memory_.reserve(tokens);
            recurrent_test::fold(pass, std::vector<Token>(static_cast<std::size_t>(tokens), Token{0, 0, step.back}),
                                 step.in_place());
            pass.commit();
            return;
        }
        }
    }

    void take_pass(const Step& step) {
        const auto [batch, tokens] = placed(step.tokens);
        const recurrent_test::Batch given{tokens};
        auto pass = memory_.begin(given);
        expect_answer(pass, model_.refuses(batch));
        if (!pass) return;
        check_parts(pass->parts(), batch);
        if (!step.committed()) {
            const auto parts = std::min(pass->parts().size(), static_cast<std::size_t>(step.style / 5));
            for (std::size_t i = 0; i < parts; ++i)
                recurrent_test::fold_part(*pass, tokens, 0, pass->parts()[i], step.in_place());
            return pass->drop();
        }
        recurrent_test::fold(*pass, tokens, step.in_place());
        pass->commit();
        model_.commit(batch);
        for (const naive::NewWord& w : batch) {
            if (handles_.size() == 20) handles_.erase(handles_.begin());
            handles_.push_back({memory_.state({w.sequence}), model_.kept(w.sequence).rbegin()->second.state});
        }
    }

    std::pair<std::vector<naive::NewWord>, std::vector<Token>> placed(const std::vector<Placed>& list) {
        std::pair<std::vector<naive::NewWord>, std::vector<Token>> batch;
        std::map<int, int> last;
        for (const Placed& t : list) {
            const bool is_first = !last.contains(t.sequence);
            const int before = is_first ? model_.next(t.sequence) - 1 : last[t.sequence];
            const int offset = is_first && t.offset == 0 ? 1 : t.offset;
            const int position = std::max(0, before + offset);
            last[t.sequence] = position;
            const int word = next_word_++ % 1000;
            batch.first.push_back({t.sequence, position, word});
            batch.second.push_back({t.sequence, position, word});
        }
        return batch;
    }

    // The parts that the cuts lead to, all tokens once and in order, and no slot written that is needed.
    void check_parts(std::span<const cellar::Part> parts, const std::vector<naive::NewWord>& batch) const {
        const auto cuts = model_.cuts(batch);
        std::map<int, std::vector<int>> own; // tokens of each sequence
        for (int i = 0; i < static_cast<int>(batch.size()); ++i)
            own[batch[static_cast<std::size_t>(i)].sequence].push_back(i);
        std::map<int, int> done;
        std::map<int, cellar::Slot> state;
        std::set<cellar::Slot> needed = needed_slots();
        for (const cellar::Part& part : parts) {
            const int length = length_of(batch, own, done, cuts);
            trace_.expect(part.length() == length, "a part of length ", part.length(), ", expected ", length);
            std::set<int> seen;
            std::set<cellar::Slot> targets;
            for (std::int32_t i = 0; i < part.sequences(); ++i) {
                const int s = part.sequence(i).value;
                const auto at = static_cast<std::size_t>(i);
                seen.insert(s);
                for (const std::int32_t token : part.tokens(i))
                    trace_.expect(token == own[s][static_cast<std::size_t>(done[s]++)], "s", s, " has token ", token);
                const cellar::Slot source = part.sources()[at];
                const cellar::Slot target = part.targets()[at];
                const bool starts = !state.contains(s) && model_.next(s) == 0;
                const cellar::Slot before = state.contains(s) ? state[s] : starts ? target : current(s);
                trace_.expect(source == before, "s", s, " is read from slot ", source, ", expected ", before);
                trace_.expect(!needed.contains(target), "slot ", target, " is written and needed");
                trace_.expect(targets.insert(target).second, "slot ", target, " is written twice");
                state[s] = target;
                const int last =
                    batch[static_cast<std::size_t>(own[s][static_cast<std::size_t>(done[s] - 1)])].position;
                const bool ends =
                    done[s] == static_cast<int>(own[s].size())
                    || batch[static_cast<std::size_t>(own[s][static_cast<std::size_t>(done[s])])].position > last;
                if (ends && cuts.at(s).contains(last + 1)) needed.insert(target);
            }
            trace_.expect(static_cast<int>(seen.size()) == part.sequences(), "a sequence is twice in a part");
        }
        for (const auto& [s, tokens] : own)
            trace_.expect(done[s] == static_cast<int>(tokens.size()), "s", s, " has tokens left");
    }

    static int length_of(const std::vector<naive::NewWord>& batch, const std::map<int, std::vector<int>>& own,
                         const std::map<int, int>& done, const std::map<int, std::map<int, bool>>& cuts) {
        int least = INT_MAX;
        for (const auto& [s, tokens] : own) {
            const int fed = done.contains(s) ? done.at(s) : 0;
            for (const auto& [p, is_checkpoint] : cuts.at(s)) {
                const auto before = std::count_if(tokens.begin(), tokens.end(), [&](int token) {
                    return batch[static_cast<std::size_t>(token)].position < p;
                });
                if (before <= fed) continue;
                least = std::min(least, static_cast<int>(before) - fed);
                break;
            }
        }
        return least;
    }

    cellar::Slot current(int s) const { return memory_.kept({s}).back().slot; }

    std::set<cellar::Slot> needed_slots() const {
        std::set<cellar::Slot> slots;
        for (int s = 0; s < model_.setup().sequences; ++s)
            for (const cellar::KeptState& kept : memory_.kept({s})) slots.insert(kept.slot);
        return slots;
    }

    void check_counts() const {
        const cellar::StateStatistics found = memory_.statistics();
        trace_.expect(found.used == model_.used(), found.used, " slots used, expected ", model_.used());
        const auto checkpoints = static_cast<int>(model_.checkpoints().size());
        trace_.expect(found.checkpoints == checkpoints, found.checkpoints, " checkpoints, expected ", checkpoints);
        trace_.expect(static_cast<int>(needed_slots().size()) == found.used, "slots are shared that should not be");
        for (int s = 0; s < model_.setup().sequences; ++s) {
            const auto& expected = model_.kept(s);
            const auto kept = memory_.kept({s});
            trace_.expect(kept.size() == expected.size(), "s", s, " keeps ", kept.size(), " states, expected ",
                          expected.size());
            for (const cellar::KeptState& state : kept) {
                const auto at = expected.find(state.next.value);
                trace_.expect(at != expected.end() && at->second.is_checkpoint == state.is_checkpoint, "s", s,
                              " keeps a state at ", state.next.value, " that it should not");
            }
            for (int p = 0; p<model_.next(s) + 3; p += model_.setup().sequences> 8 ? 7 : 1) {
                const int expected_prefix = model_.resumable_prefix(s, p);
                trace_.expect(memory_.can_resume({s}, {p}) == model_.can_resume(s, p), "can_resume(s", s, ", ", p, ")");
                trace_.expect(memory_.resumable_prefix({s}, {p}).value == expected_prefix, "resumable_prefix(s", s,
                              ", ", p, "), expected ", expected_prefix);
            }
        }
    }

    void check_contents() const {
        for (int s = 0; s < model_.setup().sequences; ++s)
            for (const auto& [p, kept] : model_.kept(s))
                trace_.expect(numbers(memory_, recurrent_test::handle_at(memory_, s, p)) == kept.state->numbers, "s", s,
                              " has the wrong state at ", p);
        for (const auto& [handle, state] : handles_) {
            const naive::StateRef alive = state.lock();
            trace_.expect(memory_.ledger().slots().is_current(handle) == (alive != nullptr), "a handle is ",
                          alive ? "lost" : "alive whose state is gone");
            if (alive) trace_.expect(numbers(memory_, handle) == alive->numbers, "a handle leads to the wrong state");
        }
    }

    void expect_answer(const auto& answer, std::optional<naive::NoState> no) const {
        const std::string_view expected = no ? to_string(refusal(*no)) : "yes";
        const std::string_view found = answer ? "yes" : to_string(answer.error());
        trace_.expect(found == expected, "the answer is ", found, ", expected ", expected);
    }

    Trace trace_;
    int look_every_;
    naive::States model_;
    Memory memory_;
    std::vector<std::pair<cellar::StateHandle, std::weak_ptr<naive::FoldedState>>> handles_;
    int next_word_ = 0;
    int done_ = 0;
};

/// True if a recurrent memory and the naive model agree after every step of random series of up to `length` steps.
template <class Backend>
bool agrees_with_model(int length) {
    return rc::check("recurrent states agree with the naive model", [=] {
        const naive::StateSetup setup = *setups();
        Trial<Backend>{setup, 3}.run(*steps(length, setup.sequences, setup.batch));
    });
}

} // namespace property::recurrent
