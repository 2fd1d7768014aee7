// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "recurrent_step.hpp"
#include "series.hpp"
#include "state_inspector.hpp"
#include "trace.hpp"

#include <climits>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace property::recurrent {

using recurrent_test::Token;

/// Does each step with a recurrent memory and with the naive model, and compares the two.
template <class Backend>
class Trial {
public:
    Trial(const naive::StateSetup& setup, int inspect_every)
        : inspect_every_{inspect_every}, model_{setup, fold}, memory_{recurrent_test::shape(), limits_of(setup)} {
        inspector_.check_slots(model_);
    }

    void run(const std::vector<Step>& steps) {
        for (const Step& step : steps) {
            trace_.add("  ", step, '\n');
            run_step(step);
            inspector_.check_counts(model_);
            if (++done_ % inspect_every_ == 0) inspector_.check_contents(model_);
        }
        inspector_.check_contents(model_);
    }

private:
    using Memory = recurrent_test::Folding<Backend>;

    void run_step(const Step& step) {
        const int next = model_.next(step.sequence);
        const int begin = std::max(0, next - step.back);
        switch (step.operation) {
        case Operation::pass:
            return run_pass(step);
        case Operation::remove: {
            const int end = step.length == 0 ? INT_MAX : begin + step.length - 1;
            expect_answer(
                memory_.remove(cellar::Sequence{step.sequence}, cellar::Position{begin}, cellar::Position{end}),
                model_.remove(step.sequence, begin, end));
            return;
        }
        case Operation::copy_prefix: {
            const int length = step.back == 0 ? next + 3 : begin;
            expect_answer(memory_.copy_prefix(cellar::Sequence{step.sequence}, cellar::Sequence{step.target},
                                              cellar::Position{length}),
                          model_.copy_prefix(step.sequence, step.target, length));
            return;
        }
        case Operation::checkpoint:
            if (!expect_checkpoints(memory_.checkpoint(cellar::Sequence{step.sequence}))) return;
            return model_.checkpoint(step.sequence);
        case Operation::schedule:
            if (!expect_checkpoints(
                    memory_.schedule(cellar::Sequence{step.sequence}, cellar::Position{next + 1 + step.length})))
                return;
            return model_.schedule(step.sequence, next + 1 + step.length);
        case Operation::unschedule: {
            const int p = std::max(next + step.length - 2, 0);
            memory_.unschedule(cellar::Sequence{step.sequence}, cellar::Position{p});
            return model_.unschedule(step.sequence, p);
        }
        case Operation::reserve: {
            const auto tokens = std::min(step.length, model_.setup().batch);
            auto pass = memory_.reserve(tokens);
            recurrent_test::fold(pass, std::vector<Token>(static_cast<std::size_t>(tokens), Token{0, 0, step.back}),
                                 step.in_place());
            pass.commit();
            return;
        }
        case Operation::set_initial:
            return set_initial(step.back);
        case Operation::snapshot:
            return snapshot(step.sequence, std::max(0, next - step.back / 4));
        case Operation::restore:
            return restore(step);
        case Operation::offload:
        case Operation::reload:
            return page(step);
        case Operation::merge:
            return merge(step);
        case Operation::split: {
            if (snapshots_.empty()) return;
            auto& snapshot = snapshots_[static_cast<std::size_t>(step.back) % snapshots_.size()];
            return expect_answer(memory_.split(snapshot, cellar::Position{step.length}),
                                 naive::StateReason::cannot_split);
        }
        case Operation::release:
            if (snapshots_.empty()) return;
            const std::size_t chosen = static_cast<std::size_t>(step.back) % snapshots_.size();
            snapshots_.erase(snapshots_.begin() + static_cast<std::ptrdiff_t>(chosen));
            return model_.release(chosen);
        }
    }

    void snapshot(int s, int to) {
        auto made = memory_.snapshot(cellar::Sequence{s}, cellar::Position{0}, cellar::Position{to});
        expect_answer(made, model_.snapshot(s, to));
        if (made) snapshots_.push_back(*std::move(made));
    }

    void page(const Step& step) {
        if (snapshots_.empty()) return;
        const std::size_t chosen = static_cast<std::size_t>(step.back) % snapshots_.size();
        if (step.operation == Operation::reload)
            return expect_answer(memory_.reload(snapshots_[chosen]), model_.reload(chosen));
        memory_.offload(snapshots_[chosen], step.style % 2 == 0 ? cellar::OffloadTo::host : cellar::OffloadTo::backend);
        model_.offload(chosen);
    }

    // Merges the chosen snapshot with the first that can take its place.
    void merge(const Step& step) {
        for (std::size_t child = 0; child < snapshots_.size(); ++child) {
            const std::size_t parent = static_cast<std::size_t>(step.back) % snapshots_.size();
            if (!model_.can_merge(parent, child)) continue;
            expect_answer(memory_.merge(snapshots_[parent], std::move(snapshots_[child])), std::nullopt);
            snapshots_.erase(snapshots_.begin() + static_cast<std::ptrdiff_t>(child));
            return model_.merge(parent, child);
        }
    }

    // From a snapshot, or without one.
    void restore(const Step& step) {
        if (step.style % 4 == 0 || snapshots_.empty()) {
            const int to = std::max(0, model_.next(step.sequence) - step.back);
            auto refused = std::optional{naive::StateReason::cannot_rewind};
            if (model_.can_resume(step.sequence, to)) refused = model_.remove(step.sequence, to, INT_MAX);
            return expect_answer(memory_.rewind(cellar::Sequence{step.sequence}, cellar::Position{to}), refused);
        }
        const std::size_t chosen = static_cast<std::size_t>(step.back) % snapshots_.size();
        const int to = std::max(0, model_.snapshots()[chosen].to - step.length / 6);
        expect_answer(memory_.restore(cellar::Sequence{step.sequence}, snapshots_[chosen], cellar::Position{to}),
                      model_.restore(step.sequence, chosen, to));
    }

    /// Passes on whether a checkpoint was accepted.
    bool expect_checkpoints(cellar::Result<void> answer) const {
        const bool accepted = answer.has_value();
        trace_.expect(accepted == (model_.setup().checkpoints > 0), "a checkpoint was ",
                      accepted ? "accepted" : "refused");
        trace_.expect(accepted || answer.error() == cellar::Reason::no_checkpoints, "for another reason");
        return accepted;
    }

    /// All tensors of a layer start from words of their own.
    void set_initial(int first_word) {
        const naive::StateRef initial = fold(nullptr, first_word);
        auto number = initial->numbers.begin();
        for (int layer = 0; layer < recurrent_test::layers; ++layer) {
            std::vector<float> wide;
            for (int i = 0; i < recurrent_test::rows * recurrent_test::columns; ++i)
                wide.push_back(static_cast<float>(*number++));
            std::vector<cellar::half> small;
            for (int i = 0; i < recurrent_test::small; ++i) small.emplace_back(static_cast<float>(*number++));
            memory_.template set_initial<recurrent_test::Wide>(layer, wide);
            memory_.template set_initial<recurrent_test::Small>(layer, small);
        }
        model_.set_initial(initial);
    }

    void run_pass(const Step& step) {
        const auto [batch, tokens] = batch_of(step.tokens);
        auto pass = memory_.begin(recurrent_test::batch_of(tokens));
        expect_answer(pass, model_.refuses(batch));
        if (!pass) return;
        inspector_.check_micro_batches(model_, pass->micro_batches(), batch);
        if (!step.committed()) {
            const auto count = std::min(pass->micro_batches().size(), static_cast<std::size_t>(step.style / 5));
            for (std::size_t i = 0; i < count; ++i)
                recurrent_test::fold_micro_batch(*pass, tokens, 0, pass->micro_batches()[i], step.in_place());
            return pass->drop();
        }
        recurrent_test::fold(*pass, tokens, step.in_place());
        pass->commit();
        model_.commit(batch);
    }

    std::pair<std::vector<naive::NewWord>, std::vector<Token>> batch_of(const std::vector<RelativeToken>& list) {
        std::pair<std::vector<naive::NewWord>, std::vector<Token>> batch;
        std::map<int, int> last;
        for (const RelativeToken& t : list) {
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

    void expect_answer(const auto& answer, std::optional<naive::StateReason> refused) const {
        const std::string expected = refused ? to_string(reason_of(*refused)) : "yes";
        const std::string found = answer ? "yes" : to_string(answer.error().reason);
        trace_.expect(found == expected, "the answer is ", found, ", expected ", expected);
    }

    Trace trace_;
    int inspect_every_;
    naive::States model_;
    Memory memory_;
    std::vector<cellar::StateSnapshot> snapshots_;
    StateInspector<Memory> inspector_{memory_, trace_};
    int next_word_ = 0;
    int done_ = 0;
};

/// True if a recurrent memory and the naive model agree after every step of random series of up to `length` steps.
template <class Backend>
bool agrees_with_model(int length) {
    return holds("recurrent states agree with the naive model", 50, [=] {
        const naive::StateSetup setup = *setups();
        Trial<Backend>{setup, 3}.run(*steps(length, setup.sequences, setup.batch));
    });
}

} // namespace property::recurrent
