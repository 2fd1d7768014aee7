// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "../property/inspector.hpp"
#include "../property/rows.hpp"
#include "../property/setting.hpp"
#include "../property/subject.hpp"
#include "../property/trace.hpp"
#include "member.hpp"

#include <climits>

#include <cstddef>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace property::hybrid {

inline Answer answer_of(std::optional<naive::Reason> no) {
    if (!no) return std::nullopt;
    switch (*no) {
    case naive::Reason::full:
        return cellar::Reason::full;
    case naive::Reason::batch_too_long:
        return cellar::Reason::batch_too_long;
    case naive::Reason::cannot_shift:
        return cellar::Reason::cannot_shift;
    case naive::Reason::not_next:
        return cellar::Reason::not_next;
    case naive::Reason::cannot_resume:
        return cellar::Reason::cannot_resume;
    case naive::Reason::cannot_split:
        return cellar::Reason::cannot_split;
    case naive::Reason::cannot_share:
        return cellar::Reason::cannot_share;
    }
    return std::nullopt;
}

/// A member that has cells, beside its naive model.
class CellMember : public Member {
public:
    CellMember(Subject& subject, const Setting& setting, RowSource rows, const Trace& trace)
        : subject_{subject},
          rows_{std::move(rows)},
          trace_{trace},
          inspector_{subject, rows_, trace, setting},
          model_{setting.setup},
          next_{model_} {
        trace_.expect(subject.cells() == model_.cells(), subject.cells(), " cells, expected ", model_.cells());
    }

    Answer remove(int s, int begin, int end) final {
        next_ = model_;
        return answer_of(next_.remove(s, begin, end));
    }
    Answer copy_prefix(int from, int to, int length) final {
        next_ = model_;
        return answer_of(next_.copy_prefix(from, to, length));
    }
    Answer snapshot(int s, int from, int to) final {
        next_ = model_;
        return answer_of(next_.snapshot(s, from, to));
    }
    Answer restore(int s, std::size_t snapshot, int to) final {
        next_ = model_;
        return answer_of(next_.restore(s, snapshot, to));
    }
    Answer rewind(int s, int to) final {
        next_ = model_;
        if (const auto refused = model_.refuses_rewind(s, to)) return answer_of(refused);
        return answer_of(next_.remove(s, to, INT_MAX));
    }
    Answer reload(std::size_t snapshot) final {
        next_ = model_;
        return answer_of(next_.reload(snapshot));
    }
    Answer schedule(int s, int p) final {
        next_ = model_;
        next_.schedule(s, p);
        return std::nullopt;
    }
    void unschedule(int s, int p) final { model_.unschedule(s, p); }
    Answer merge(std::size_t parent, std::size_t child) final {
        next_ = model_;
        return answer_of(next_.merge(parent, child));
    }
    Answer split(std::size_t snapshot, int at) final {
        next_ = model_;
        return answer_of(next_.split(snapshot, at));
    }
    void offload(std::size_t snapshot) final { model_.offload(snapshot); }
    void release(std::size_t snapshot) final { model_.release(snapshot); }
    bool can_restore(std::size_t snapshot, int to) const final {
        return model_.snapshots()[snapshot].from <= to && to <= model_.snapshots()[snapshot].to;
    }
    bool can_merge(std::size_t parent, std::size_t child) const final { return model_.can_merge(parent, child); }
    void settle() final { model_ = next_; }

    bool can_resume(int s, int p) const final { return model_.can_resume(s, p); }

    void check_reserved(int) final {
        trace_.expect(subject_.history() == std::pair{0, subject_.allocated_cells()},
                      "the history of a reserved pass is not all cells that have memory");
    }

    void check(bool look) final {
        inspector_.check_counts(model_, sequences());
        if (look) inspector_.check_contents(model_, sequences());
    }

    void defragmented() final { inspector_.forget_cells_from(model_.used()); }

protected:
    std::set<int> sequences() const {
        std::set<int> all;
        for (int s = 0; s < model_.setup().sequences; ++s) all.insert(s);
        return all;
    }

    std::vector<Rows> rows_of(int layer, const Batch& batch) const {
        std::vector<Rows> rows;
        for (const naive::NewToken& t : batch) rows.push_back(rows_.put(layer, t.value));
        return rows;
    }
    bool owns(int layer) const { return rows_.layers()[static_cast<std::size_t>(layer)].shares_layer < 0; }

    Subject& subject_;
    const RowSource rows_;
    const Trace& trace_;
    Inspector inspector_;
    naive::Model model_;
    naive::Model next_;
};

class AttentionMember final : public CellMember {
public:
    using CellMember::CellMember;

    Answer begin(const Batch& batch) override {
        const auto refused = model_.refuses(batch);
        if (refused) return answer_of(refused);
        open_ = model_.with(batch);
        next_ = open_.committed(model_, batch);
        return std::nullopt;
    }
    int next(int s) const override { return model_.next(s); }
    bool may_have_gaps() const override { return !model_.setup().consecutive; }

    void put(int layer, const Batch& batch, int style) override {
        if (owns(layer)) subject_.put(layer, rows_of(layer, batch), style);
    }
    void check_begun(const Batch& batch) override { inspector_.check_placement(model_, batch); }
    void check_filled(const Batch& batch, int style, bool filled) override {
        inspector_.check_pass(open_, batch, style, filled ? static_cast<int>(rows_.layers().size()) : 0);
    }

private:
    naive::Model open_{model_};
};

/// A subject to which inputs are written.
class InputSubject : public Subject {
public:
    /// Tokens of one sequence at one position are one input. `rows`: those of each layer that has memory of its own.
    virtual std::optional<naive::Reason> write(const Batch& inputs, const std::vector<std::vector<Rows>>& rows,
                                               int style, bool committed) = 0;
};

/// An encoder's memory. Passes of the hybrid only read it.
class InputMember final : public CellMember {
public:
    InputMember(InputSubject& subject, const Setting& setting, RowSource rows, const Trace& trace)
        : CellMember{subject, setting, std::move(rows), trace}, inputs_{subject} {}

    Answer begin(const Batch& batch) override {
        next_ = model_;
        const bool fits = static_cast<int>(batch.size()) <= model_.setup().batch;
        return fits ? std::nullopt : std::optional{cellar::Reason::batch_too_long};
    }
    int next(int) const override { return 0; }
    bool has_inputs() const override { return true; }
    int end_of(std::size_t snapshot) const override { return model_.snapshots()[snapshot].to; }

    void put(int, const Batch&, int) override { trace_.fail("a layer of the pattern reached the inputs"); }
    void check_begun(const Batch&) override {}
    void check_filled(const Batch& batch, int style, bool) override {
        Batch queries = batch;
        for (naive::NewToken& t : queries) t.group = -1; // groups do not make later inputs visible
        inspector_.check_pass(model_, queries, style, static_cast<int>(rows_.layers().size()));
    }

    void write(const Batch& inputs, int style, bool committed) override {
        std::vector<std::vector<Rows>> rows;
        for (int layer = 0; layer < static_cast<int>(rows_.layers().size()); ++layer)
            rows.push_back(owns(layer) ? rows_of(layer, inputs) : std::vector<Rows>{});
        const auto refused = model_.refuses(inputs);
        trace_.expect(inputs_.write(inputs, rows, style, committed) == refused, "the inputs were ",
                      refused ? "taken" : "refused");
        if (refused) return;
        inspector_.check_placement(model_, inputs);
        if (committed) model_ = model_.with(inputs).committed(model_, inputs);
    }

private:
    InputSubject& inputs_;
};

} // namespace property::hybrid
