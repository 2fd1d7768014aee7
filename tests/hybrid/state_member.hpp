// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "../property/state_inspector.hpp"
#include "../property/trace.hpp"
#include "member.hpp"
#include <cellar/backend/host.hpp>
#include <cellar/memory/memory.hpp>

#include <climits>

#include <cstddef>
#include <optional>
#include <vector>

namespace property::hybrid {

/// A recurrent member beside its naive model.
class StateSubject {
public:
    using Memory = recurrent_test::Folding<>;
    using Pass = cellar::PassOf<Memory>;

    explicit StateSubject(Memory& memory) : memory_{memory} {}

    Memory& memory() { return memory_; }
    Pass& pass() { return *pass_; }
    void join(Pass& pass) { pass_ = &pass; }
    void leave() { pass_ = nullptr; }
    bool is_in(const Pass& pass) const { return &pass == pass_; }

private:
    Memory& memory_;
    Pass* pass_ = nullptr;
};

class StateMember final : public Member {
public:
    StateMember(StateSubject& subject, const naive::StateSetup& setup, const Trace& trace)
        : subject_{subject},
          trace_{trace},
          inspector_{subject.memory(), trace},
          model_{setup, recurrent::fold},
          next_{model_} {
        inspector_.check_slots(model_);
    }

    Answer begin(const Batch& batch) override {
        next_ = model_;
        const auto refused = model_.refuses(words(batch));
        if (!refused) next_.commit(words(batch));
        return answer(refused);
    }
    Answer remove(int s, int begin, int end) override {
        next_ = model_;
        return answer(next_.remove(s, begin, end));
    }
    Answer copy_prefix(int from, int to, int length) override {
        next_ = model_;
        return answer(next_.copy_prefix(from, to, length));
    }
    Answer snapshot(int s, int, int to) override {
        next_ = model_;
        return answer(next_.snapshot(s, to));
    }
    Answer restore(int s, std::size_t snapshot, int to) override {
        next_ = model_;
        return answer(next_.restore(s, snapshot, to));
    }
    Answer rewind(int s, int to) override {
        next_ = model_;
        if (!model_.can_resume(s, to)) return cellar::Reason::cannot_rewind;
        return answer(next_.remove(s, to, INT_MAX));
    }
    Answer reload(std::size_t snapshot) override {
        next_ = model_;
        return answer(next_.reload(snapshot));
    }
    Answer schedule(int s, int p) override {
        next_ = model_;
        if (model_.setup().checkpoints == 0) return cellar::Reason::no_checkpoints;
        next_.schedule(s, p);
        return std::nullopt;
    }
    void unschedule(int s, int p) override { model_.unschedule(s, p); }
    Answer merge(std::size_t parent, std::size_t child) override {
        next_ = model_;
        next_.merge(parent, child);
        return std::nullopt;
    }
    Answer split(std::size_t, int) override { return cellar::Reason::cannot_split; }
    void offload(std::size_t snapshot) override { model_.offload(snapshot); }
    void release(std::size_t snapshot) override { model_.release(snapshot); }
    bool can_restore(std::size_t snapshot, int to) const override { return to <= model_.snapshots()[snapshot].to; }
    bool can_merge(std::size_t parent, std::size_t child) const override { return model_.can_merge(parent, child); }
    void settle() override { model_ = next_; }

    bool can_resume(int s, int p) const override { return model_.can_resume(s, p); }
    int next(int s) const override { return model_.next(s); }
    bool follows() const override { return true; }

    void put(int layer, const Batch& batch, int style) override {
        std::vector<recurrent_test::Token> tokens;
        for (const naive::NewToken& t : batch) tokens.push_back({t.sequence, t.position, t.value});
        for (const cellar::MicroBatch& micro_batch : subject_.pass().micro_batches())
            recurrent_test::fold_micro_batch(subject_.pass(), tokens, layer, micro_batch, style % 2 == 1);
    }
    void check_begun(const Batch& batch) override {
        inspector_.check_micro_batches(model_, subject_.pass().micro_batches(), words(batch));
    }
    void check_filled(const Batch&, int, bool) override {}
    void check_reserved(int tokens) override {
        int found = 0;
        for (const cellar::MicroBatch& micro_batch : subject_.pass().micro_batches())
            found += micro_batch.sequences() * micro_batch.length();
        trace_.expect(found == tokens, "a reserved pass has ", found, " tokens in its parts, expected ", tokens);
    }

    void check(bool look) override {
        inspector_.check_counts(model_);
        if (look) inspector_.check_contents(model_);
    }

    void checkpoint(int s) override {
        if (model_.setup().checkpoints == 0) return;
        trace_.expect(subject_.memory().checkpoint(cellar::Sequence{s}).has_value(), "a checkpoint was refused");
        model_.checkpoint(s);
    }

private:
    static std::vector<naive::NewWord> words(const Batch& batch) {
        std::vector<naive::NewWord> words;
        for (const naive::NewToken& t : batch) words.push_back({t.sequence, t.position, t.value});
        return words;
    }
    static Answer answer(std::optional<naive::StateReason> no) {
        return no ? std::optional{recurrent::reason_of(*no)} : std::nullopt;
    }

    StateSubject& subject_;
    const Trace& trace_;
    recurrent::StateInspector<StateSubject::Memory> inspector_;
    naive::States model_;
    naive::States next_;
};

} // namespace property::hybrid
