// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "trial.hpp"

#include <climits>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <string>
#include <utility>

namespace property {

Trial::Trial(Subject& subject, const Setting& setting, const RowSource& rows)
    : subject_{subject},
      model_{setting.setup},
      rows_{rows},
      setting_{setting},
      inspector_{subject, rows, trace_, setting} {
    trace_.expect(subject.cells() == model_.cells(), subject.cells(), " cells, expected ", model_.cells());
}

void Trial::run(const std::vector<Step>& steps) {
    for (const Step& step : steps) {
        touched_ = {0, setting_.setup.sequences - 1, done_++ % setting_.setup.sequences};
        if (setting_.setup.sequences <= 8) touch_all();
        run_step(step);
        inspector_.check_counts(model_, touched_);
        check_snapshots();
        if (done_ % setting_.inspect_every == 0) inspector_.check_contents(model_, touched_);
    }
    touch_all();
    inspector_.check_counts(model_, touched_);
    inspector_.check_contents(model_, touched_);
}

void Trial::check_snapshots() const {
    for (std::size_t i = 0; i < model_.snapshots().size(); ++i) {
        const naive::Snapshot& snapshot = model_.snapshots()[i];
        const SnapshotState state{snapshot.from, snapshot.to, static_cast<int>(snapshot.tokens.size()),
                                  snapshot.altered};
        trace_.expect(subject_.snapshot_state(i) == state, "snapshot ", i, " is not [", state.from, ", ", state.to,
                      ") with ", state.tokens, " tokens, altered from ", state.altered, " on");
    }
}

void Trial::touch_all() {
    for (int s = 0; s < setting_.setup.sequences; ++s) touched_.insert(s);
}

void Trial::run_step(const Step& step) {
    touched_.insert(step.sequence);
    const Counts before = subject_.counts();
    const bool changes = step.operation == Operation::pass     ? run_pass(step)
                         : step.operation == Operation::remove ? run_remove(step)
                                                               : run_other(step);
    if (!changes)
        trace_.expect(subject_.counts() == before, "nothing should have changed, but ", before, " became ",
                      subject_.counts());
}

bool Trial::run_pass(const Step& step) {
    const std::vector<naive::NewToken> batch = batch_of(step.tokens);
    trace_.add("  pass({");
    for (const naive::NewToken& t : batch)
        trace_.add(&t == batch.data() ? "" : ", ", "{s", t.sequence, ", ", t.position, ", group ", t.group,
                   t.stored ? "}" : ", not stored}");
    trace_.add("}); // ", step.committed ? "commit" : "drop", ", style ", step.style, "\n");
    const auto refused = model_.refuses(batch);
    const bool has_room = subject_.cells_needed(batch) <= subject_.free_cells();
    expect_answer(subject_.begin(batch), refused);
    if (!refused || *refused == naive::Reason::full)
        trace_.expect(has_room == !refused, "a batch that is ", refused ? "" : "not ", "refused needs ",
                      subject_.cells_needed(batch), " of ", subject_.free_cells(), " cells");
    if (refused) return false;
    inspector_.check_placement(model_, batch);
    const naive::Model open = model_.with(batch);
    const int layers = static_cast<int>(rows_.layers().size());
    const int filled = step.committed ? layers : std::min(layers, step.style / 15);
    for (int layer = 0; layer < filled; ++layer) put(layer, batch, step.style);
    inspector_.check_pass(open, batch, step.style, filled);
    step.committed ? subject_.commit() : subject_.drop();
    if (step.committed) model_ = open.committed(model_, batch);
    return step.committed;
}

bool Trial::run_remove(const Step& step) {
    const int begin = std::max(0, model_.next(step.sequence) - step.back);
    const int end = step.length < 0 ? INT_MAX : begin + step.length;
    const int rotate_by = subject_.can_rotate_by() ? std::max(-1, step.style - 4) : -1;
    trace_.add("  remove(s", step.sequence, ", ", begin, ", ", end == INT_MAX ? "to_end" : std::to_string(end),
               rotate_by < 0 ? "" : ", RotateBy{" + std::to_string(rotate_by) + "}", ");\n");
    const auto answer = subject_.remove(step.sequence, begin, end, rotate_by);
    const auto refused = model_.remove(step.sequence, begin, end, rotate_by);
    return carried_out(answer, refused);
}

bool Trial::run_other(const Step& step) {
    switch (step.operation) {
    case Operation::copy_prefix:
        return copy(step, step.target) && step.sequence != step.target;
    case Operation::fan_out: {
        bool copied = false;
        for (int s = 0; s < step.target; ++s) copied = copy(step, s) || copied;
        return copied;
    }
    case Operation::defragment:
        trace_.add("  defragment();\n");
        subject_.defragment();
        inspector_.forget_cells_from(model_.used());
        return true;
    case Operation::snapshot:
        return run_snapshot(step);
    case Operation::restore:
    case Operation::rewind:
        return run_restore(step);
    case Operation::split:
        return run_split(step);
    case Operation::merge:
        return run_merge(step);
    case Operation::offload:
    case Operation::reload:
    case Operation::release:
        return run_with_one(step);
    case Operation::schedule:
        return run_schedule(step);
    case Operation::unschedule:
        return run_unschedule(step);
    default:
        reserve(std::clamp(step.length + 2, 1, setting_.setup.batch));
        return false;
    }
}

bool Trial::run_snapshot(const Step& step) {
    constexpr std::size_t most = 6;
    if (!subject_.can_snapshot() || model_.snapshots().size() == most) return false;
    const std::set<int>& scheduled = model_.scheduled(step.sequence);
    const int back = std::max(0, model_.next(step.sequence) - step.back / 3);
    const int to = step.style % 2 == 0 && !scheduled.empty() ? *scheduled.begin() : back;
    const int from = step.length < 0 ? 0 : std::max(0, to - step.length);
    trace_.add("  snapshot(s", step.sequence, ", ", from, ", ", to, ");\n");
    const auto answer = subject_.snapshot(step.sequence, from, to);
    const auto refused = model_.snapshot(step.sequence, from, to);
    return carried_out(answer, refused);
}

bool Trial::run_restore(const Step& step) {
    if (!subject_.can_snapshot()) return false;
    if (step.operation == Operation::rewind) {
        const int to = std::max(0, model_.next(step.sequence) + 2 - step.back / 2);
        trace_.add("  rewind(s", step.sequence, ", ", to, ");\n");
        std::optional<naive::Reason> refused = model_.refuses_rewind(step.sequence, to);
        if (!refused) refused = model_.remove(step.sequence, to, INT_MAX);
        return carried_out(subject_.rewind(step.sequence, to), refused);
    }
    if (model_.snapshots().empty()) return false;
    const std::size_t chosen = static_cast<std::size_t>(step.style) % model_.snapshots().size();
    const naive::Snapshot& snapshot = model_.snapshots()[chosen];
    const int to = std::max(snapshot.from, snapshot.to - step.back / 4);
    trace_.add("  restore(s", step.sequence, ", snapshot ", chosen, ", ", to, ");\n");
    const auto answer = subject_.restore(step.sequence, chosen, to);
    const auto refused = model_.restore(step.sequence, chosen, to);
    return carried_out(answer, refused);
}

bool Trial::run_split(const Step& step) {
    if (model_.snapshots().empty()) return false;
    const std::size_t chosen = static_cast<std::size_t>(step.style) % model_.snapshots().size();
    const naive::Snapshot& snapshot = model_.snapshots()[chosen];
    const int at = std::max(snapshot.from, snapshot.to - step.back / 2);
    trace_.add("  split(snapshot ", chosen, ", ", at, ");\n");
    const auto answer = subject_.split(chosen, at);
    const auto refused = model_.split(chosen, at);
    return carried_out(answer, refused);
}

// Pages the chosen snapshot out or in, or releases it.
bool Trial::run_with_one(const Step& step) {
    if (model_.snapshots().empty()) return false;
    const std::size_t chosen = static_cast<std::size_t>(step.style) % model_.snapshots().size();
    if (step.operation == Operation::reload) {
        trace_.add("  reload(snapshot ", chosen, ");\n");
        const auto answer = subject_.reload(chosen);
        return carried_out(answer, model_.reload(chosen));
    }
    if (step.operation == Operation::offload) {
        trace_.add("  offload(snapshot ", chosen, ");\n");
        subject_.offload(chosen, step.back);
        model_.offload(chosen);
    } else {
        trace_.add("  release(snapshot ", chosen, ");\n");
        subject_.release(chosen);
        model_.release(chosen);
    }
    return true;
}

bool Trial::run_schedule(const Step& step) {
    const int p = model_.next(step.sequence) + 2 + step.length;
    trace_.add("  schedule(s", step.sequence, ", ", p, ");\n");
    subject_.schedule(step.sequence, p);
    model_.schedule(step.sequence, p);
    return false;
}

bool Trial::run_unschedule(const Step& step) {
    const std::set<int>& scheduled = model_.scheduled(step.sequence);
    if (scheduled.empty()) return false;
    const auto chosen = std::next(scheduled.begin(), step.style % static_cast<int>(scheduled.size()));
    const int p = *chosen + (step.back == 0 ? 1 : 0); // or perhaps none
    trace_.add("  unschedule(s", step.sequence, ", ", p, ");\n");
    subject_.unschedule(step.sequence, p);
    model_.unschedule(step.sequence, p);
    return true;
}

// Merges the chosen snapshot with the first that it can be merged with.
bool Trial::run_merge(const Step& step) {
    if (model_.snapshots().empty()) return false;
    const std::size_t n = model_.snapshots().size();
    const std::size_t chosen = static_cast<std::size_t>(step.style) % n;
    for (std::size_t other = 0; other < n; ++other) {
        if (!model_.can_merge(chosen, other)) continue;
        trace_.add("  merge(snapshot ", chosen, ", snapshot ", other, ");\n");
        const auto answer = subject_.merge(chosen, other);
        const auto refused = model_.merge(chosen, other);
        return carried_out(answer, refused);
    }
    return false;
}

bool Trial::copy(const Step& step, int to) {
    const int length = std::max(0, model_.next(step.sequence) + 3 - step.back);
    trace_.add("  copy_prefix(s", step.sequence, ", s", to, ", ", length, ");\n");
    touched_.insert(to);
    const auto answer = subject_.copy_prefix(step.sequence, to, length);
    return carried_out(answer, model_.copy_prefix(step.sequence, to, length));
}

void Trial::reserve(int tokens) {
    trace_.add("  reserve(", tokens, ");\n");
    subject_.reserve(tokens);
    trace_.expect(subject_.history() == std::pair{0, subject_.allocated_cells()},
                  "the history of a reserved pass is not all cells that have memory");
    trace_.expect(subject_.allocated_cells() == model_.cells() || setting_.initial_cells > 0,
                  "some cells have no memory");
    subject_.drop();
}

std::vector<naive::NewToken> Trial::batch_of(const std::vector<RelativeToken>& tokens) {
    std::vector<naive::NewToken> batch;
    std::map<int, int> newest;
    std::map<std::pair<int, int>, int> groups; // a number for each group of each sequence
    for (const RelativeToken& t : tokens) {
        touched_.insert(t.sequence);
        int& last = newest.try_emplace(t.sequence, model_.next(t.sequence) - 1).first->second;
        const int position = std::max(0, last + 1 + t.offset);
        if (position >= setting_.positions) continue;
        const int group =
            t.group < 0 ? -1 : groups.try_emplace({t.sequence, t.group}, static_cast<int>(batch.size())).first->second;
        const bool stored = t.stored || setting_.setup.consecutive; // only any positions can have gaps
        batch.push_back({t.sequence, position, group, next_value_++ % 4096, stored});
        last = std::max(last, position);
    }
    return batch;
}

void Trial::put(int layer, const std::vector<naive::NewToken>& batch, int style) {
    if (rows_.layers()[static_cast<std::size_t>(layer)].shares_layer >= 0) return;
    std::vector<Rows> rows;
    for (const naive::NewToken& t : batch)
        if (t.stored) rows.push_back(rows_.put(layer, t.value));
    subject_.put(layer, rows, style);
}

// What run_step returns after an operation that may refuse.
bool Trial::carried_out(std::optional<naive::Reason> answer, std::optional<naive::Reason> refused) const {
    expect_answer(answer, refused);
    return !refused;
}

void Trial::expect_answer(std::optional<naive::Reason> answer, std::optional<naive::Reason> expected) const {
    const auto text = [](auto no) { return no ? naive::to_string(*no) : std::string{"yes"}; };
    trace_.expect(answer == expected, "the answer is ", text(answer), ", expected ", text(expected));
}

} // namespace property
