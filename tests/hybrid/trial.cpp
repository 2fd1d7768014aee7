// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "trial.hpp"

#include "../property/generate.hpp"
#include "../property/recurrent_step.hpp"
#include "../property/series.hpp"

#include <climits>
#include <rapidcheck.h>

#include <algorithm>
#include <cstddef>
#include <string>

namespace property::hybrid {

namespace {

constexpr int least_series = 60;

using recurrent::number;

rc::Gen<Step> step(int sequences, int most) {
    return rc::gen::exec([=] {
        Step s;
        s.operation = *rc::gen::weightedElement<Operation>({{30, Operation::pass},
                                                            {9, Operation::remove},
                                                            {5, Operation::copy_prefix},
                                                            {3, Operation::write},
                                                            {2, Operation::checkpoint},
                                                            {5, Operation::schedule},
                                                            {1, Operation::unschedule},
                                                            {1, Operation::defragment},
                                                            {6, Operation::snapshot},
                                                            {8, Operation::restore},
                                                            {2, Operation::rewind},
                                                            {3, Operation::offload},
                                                            {1, Operation::reload},
                                                            {4, Operation::merge},
                                                            {3, Operation::split},
                                                            {2, Operation::release},
                                                            {1, Operation::reserve}});
        s.sequence = *number(0, sequences - 1);
        s.target = *number(0, sequences - 1);
        s.back = *number(0, *rc::gen::element(3, 6, 12));
        s.length = *number(0, 6);
        s.style = *number(0, 209);
        if (s.operation == Operation::pass) s.tokens = *tokens(sequences, most);
        return s;
    });
}

rc::Gen<std::vector<Step>> steps(int length, int sequences, int most) {
    return rc::gen::resize(
        length, rc::gen::container<std::vector<Step>>(rc::gen::resize(rc::kNominalSize, step(sequences, most))));
}

MemberSetting draw_member(const Kind& kind, int sequences, int batch) {
    const int own_batch = *number(0, 7) == 7 ? *number(1, batch) : batch;
    MemberSetting m;
    if (kind.of == Kind::Of::states) {
        m.states = *recurrent::setups();
        m.states.sequences = sequences;
        m.states.batch = own_batch;
    } else {
        m.cells = *settings(kind.window, kind.window_size, kind.can_shift);
        m.cells.setup.sequences = sequences;
        m.cells.setup.batch = own_batch;
        m.cells.setup.capacity += *number(2, 14);
        m.cells.setup.is_encoder = kind.of == Kind::Of::inputs;
        if (m.cells.setup.is_encoder) m.cells.setup.consecutive = false;
    }
    return m;
}

} // namespace

bool agrees_with_model(const Combination& combination) {
    return holds(combination.name, least_series, [&] {
        const int sequences = *number(1, 3);
        const int batch = *number(3, 12);
        int most = batch;
        Trace trace;
        std::vector<MemberSetting> members;
        for (const Kind& kind : combination.kinds) {
            const MemberSetting& m = members.emplace_back(draw_member(kind, sequences, batch));
            const bool has_states = kind.of == Kind::Of::states;
            most = std::min(most, has_states ? m.states.batch : m.cells.setup.batch);
            has_states ? trace.add("states: ", m.states, '\n') : trace.add("cells: ", m.cells, '\n');
        }
        const auto whole = combination.make(members, trace);
        Trial trial{*whole, trace, sequences, most, *rc::gen::element(1, 1, 4)};
        trial.run(*steps(80, sequences, most + 1));
    });
}

void Trial::run(const std::vector<Step>& steps) {
    for (const Step& step : steps) {
        trace_.add("  ", step, '\n');
        take(step);
        compare(++done_ % look_every_ == 0);
    }
    compare(true);
}

void Trial::take(const Step& step) {
    switch (step.operation) {
    case Operation::pass:
        return take_pass(step);
    case Operation::remove:
        return take_remove(step);
    case Operation::copy_prefix:
        return take_copy(step);
    case Operation::write:
        return write(step);
    case Operation::checkpoint:
        for (const auto& m : members_) m->checkpoint(step.sequence);
        return;
    case Operation::schedule:
        return take_schedule(step);
    case Operation::unschedule: {
        const int p = std::max(0, next(step.sequence) + step.length - step.back / 2);
        whole_.unschedule(step.sequence, p);
        for (const auto& m : members_) m->unschedule(step.sequence, p);
        return;
    }
    case Operation::defragment:
        whole_.defragment();
        for (const auto& m : members_) m->defragmented();
        return;
    case Operation::reserve:
        return reserve(step);
    case Operation::snapshot:
        return take_snapshot(step);
    case Operation::restore:
        return take_restore(step);
    case Operation::rewind:
        return take_rewind(step);
    case Operation::offload:
    case Operation::reload:
        return take_page(step);
    case Operation::merge:
        return take_merge(step);
    case Operation::split:
        return take_split(step);
    case Operation::release:
        if (snapshots_.empty()) return;
        const auto chosen = static_cast<std::size_t>(step.length) % snapshots_.size();
        whole_.release(chosen);
        for (const auto& m : members_) m->release(chosen);
        snapshots_.erase(snapshots_.begin() + static_cast<std::ptrdiff_t>(chosen));
    }
}

void Trial::take_schedule(const Step& step) {
    const int s = step.sequence;
    const int p = next(s) + 1 + step.length;
    trace_.add("    schedule(s", s, ", ", p, ")\n");
    const HybridAnswer refused = expected([&](Member& m) { return m.schedule(s, p); });
    expect_answer(whole_.schedule(s, p), refused);
    if (refused) return;
    settle();
    scheduled_[s] = p;
}

void Trial::take_snapshot(const Step& step) {
    const int s = step.sequence;
    const auto scheduled = scheduled_.find(s);
    const bool to_scheduled = step.style % 2 == 0 && scheduled != scheduled_.end() && scheduled->second <= next(s);
    const int back = std::max(0, next(s) - step.back / 3);
    const int to = to_scheduled ? scheduled->second : step.to_what_is_kept() ? kept_state(s, back) : back;
    const bool follows = !snapshots_.empty() && step.style % 4 == 1 && snapshots_.back() <= to;
    const int from = follows ? snapshots_.back() : step.to_the_end() ? 0 : std::max(0, to - step.length);
    const bool is_whole = to == next(s) && step.style % 2 == 1;
    trace_.add("    snapshot(s", s, ", ", from, ", ", to, is_whole ? ", with what waits)\n" : ")\n");
    const HybridAnswer refused =
        expected([&](Member& m) { return m.snapshot(s, from, is_whole && m.has_inputs() ? INT_MAX : to); });
    expect_answer(whole_.snapshot(s, from, is_whole ? INT_MAX : to), refused);
    if (refused) return;
    settle();
    snapshots_.push_back(to);
}

void Trial::take_restore(const Step& step) {
    if (snapshots_.empty()) return;
    const int s = step.sequence;
    const auto chosen = static_cast<std::size_t>(step.length) % snapshots_.size();
    const int to = std::max(0, snapshots_[chosen] - (step.to_the_end() ? step.back : 0));
    if (!std::all_of(members_.begin(), members_.end(), [&](const auto& m) { return m->can_restore(chosen, to); }))
        return;
    trace_.add("    restore(s", s, ", snapshot ", chosen, ", ", to, ")\n");
    const bool is_whole = to == snapshots_[chosen];
    const HybridAnswer refused =
        expected([&](Member& m) { return m.restore(s, chosen, is_whole && m.has_inputs() ? m.end_of(chosen) : to); });
    expect_answer(whole_.restore(s, chosen, to), refused);
    if (!refused) settle();
}

void Trial::take_rewind(const Step& step) {
    const int s = step.sequence;
    const int back = std::max(0, next(s) + 1 - step.back);
    const int to = step.to_what_is_kept() ? kept_state(s, back) : back;
    trace_.add("    restore(s", s, ", ", to, ")\n");
    const HybridAnswer refused = expected([&](Member& m) { return m.rewind(s, past_inputs(m, s, to)); });
    expect_answer(whole_.rewind(s, to), refused);
    if (!refused) settle();
}

void Trial::take_page(const Step& step) {
    if (snapshots_.empty()) return;
    const auto chosen = static_cast<std::size_t>(step.length) % snapshots_.size();
    if (step.operation == Operation::offload) {
        trace_.add("    offload(snapshot ", chosen, ")\n");
        whole_.offload(chosen, step.style % 2 == 0 ? cellar::OffloadTo::host : cellar::OffloadTo::backend);
        for (const auto& m : members_) m->offload(chosen);
        return;
    }
    trace_.add("    reload(snapshot ", chosen, ")\n");
    const HybridAnswer refused = expected([&](Member& m) { return m.reload(chosen); });
    expect_answer(whole_.reload(chosen), refused);
    if (!refused) settle();
}

// Merges the chosen snapshot with the last that it can be merged with in all members.
void Trial::take_merge(const Step& step) {
    if (snapshots_.empty()) return;
    const auto parent = static_cast<std::size_t>(step.length) % snapshots_.size();
    for (std::size_t child = snapshots_.size(); child-- > 0;) {
        const auto can = [&](const auto& m) { return m->can_merge(parent, child); };
        if (!std::all_of(members_.begin(), members_.end(), can)) continue;
        trace_.add("    merge(snapshot ", parent, ", snapshot ", child, ")\n");
        const HybridAnswer refused = expected([&](Member& m) { return m.merge(parent, child); });
        expect_answer(whole_.merge(parent, child), refused);
        if (refused) return;
        settle();
        snapshots_[parent] = snapshots_[child];
        snapshots_.erase(snapshots_.begin() + static_cast<std::ptrdiff_t>(child));
        return;
    }
}

void Trial::take_split(const Step& step) {
    if (snapshots_.empty()) return;
    const auto chosen = static_cast<std::size_t>(step.length) % snapshots_.size();
    const int at = std::max(0, snapshots_[chosen] - step.back);
    if (!std::all_of(members_.begin(), members_.end(), [&](const auto& m) { return m->can_restore(chosen, at); }))
        return;
    trace_.add("    split(snapshot ", chosen, ", ", at, ")\n");
    const HybridAnswer refused = expected([&](Member& m) { return m.split(chosen, at); });
    expect_answer(whole_.split(chosen, at), refused);
    if (refused) return;
    settle();
    snapshots_.push_back(snapshots_[chosen]);
    snapshots_[chosen] = at;
}

void Trial::take_pass(const Step& step) {
    const Batch batch = placed(step);
    trace_.add("    pass of");
    for (const naive::NewToken& t : batch) trace_.add(" {s", t.sequence, ", ", t.position, ", group ", t.group, "}");
    trace_.add(step.committed() ? ", committed\n" : ", dropped\n");
    const HybridAnswer refused = expected([&](Member& m) { return m.begin(batch); });
    expect_answer(whole_.begin(batch), refused);
    if (refused) return;
    for (const auto& m : members_) m->check_begun(batch);
    const int filled = step.committed() ? whole_.layers() : step.style / 5 % (whole_.layers() + 1);
    fill(batch, step.style, filled);
    for (const auto& m : members_) m->check_filled(batch, step.style, filled == whole_.layers());
    if (!step.committed()) return whole_.drop();
    whole_.commit();
    settle();
}

void Trial::fill(const Batch& batch, int style, int layers) {
    for (int layer = 0; layer < layers; ++layer) {
        const cellar::LayerPlace place = whole_.visit(layer);
        if (place.member != cellar::no_memory)
            members_[static_cast<std::size_t>(place.member)]->put(place.layer, batch, style);
    }
}

void Trial::take_remove(const Step& step) {
    const int s = step.sequence;
    const int back = std::max(0, next(s) - step.back);
    const int begin = step.to_what_is_kept() ? kept_state(s, back) : back;
    const int end = step.to_the_end() ? INT_MAX : begin + step.length % (step.back + 1);
    trace_.add("    remove(s", s, ", ", begin, ", ", end, ")\n");
    const HybridAnswer refused = expected([&](Member& m) {
        const int own = begin == 0 ? begin : past_inputs(m, s, begin);
        return m.remove(s, own, std::max(own, end));
    });
    expect_answer(whole_.remove(s, begin, end), refused);
    if (!refused) settle();
}

void Trial::take_copy(const Step& step) {
    const int s = step.sequence;
    const int back = step.back == 0 ? next(s) + 3 : std::max(0, next(s) - step.back);
    const int length = step.to_what_is_kept() ? kept_state(s, back) : back;
    trace_.add("    copy_prefix(s", s, ", s", step.target, ", ", length, ")\n");
    const HybridAnswer refused =
        expected([&](Member& m) { return m.copy_prefix(s, step.target, past_inputs(m, s, length)); });
    expect_answer(whole_.copy_prefix(s, step.target, length), refused);
    if (!refused) settle();
}

/// Writes one input or two, before, at or after the newest token.
void Trial::write(const Step& step) {
    Batch inputs;
    const int position = std::max(0, next(step.sequence) + 6 - step.back);
    for (int i = 0; i < step.length; ++i) inputs.push_back({step.sequence, position, -1, next_value_++ % 4096});
    if (step.target != step.sequence)
        for (int i = 0; i < step.style % 3; ++i)
            inputs.push_back({step.target, next(step.target), -1, next_value_++ % 4096});
    for (const auto& m : members_) m->write(inputs, step.style, step.committed());
}

void Trial::reserve(const Step& step) {
    const int tokens = std::min(step.length, most_);
    whole_.reserve(tokens);
    for (const auto& m : members_) m->check_reserved(tokens);
    fill(Batch(static_cast<std::size_t>(tokens)), step.style, whole_.layers());
    step.committed() ? whole_.commit() : whole_.drop();
}

Batch Trial::placed(const Step& step) {
    const bool follows =
        !step.may_fail() && std::any_of(members_.begin(), members_.end(), [](const auto& m) { return m->follows(); });
    Batch batch;
    std::map<int, int> newest;
    std::map<std::pair<int, int>, int> groups; // a number for each group of each sequence
    for (const RelativeToken& t : step.tokens) {
        const bool is_first = !newest.contains(t.sequence);
        int& last = newest.try_emplace(t.sequence, next(t.sequence) - 1).first->second;
        const int offset = follows && (is_first || t.offset != -1) ? 0 : t.offset;
        const int position = std::max(0, last + 1 + offset);
        if (position >= 180) continue; // few enough that shifted keys stay exact
        const int group =
            t.group < 0 ? -1 : groups.try_emplace({t.sequence, t.group}, static_cast<int>(batch.size())).first->second;
        batch.push_back({t.sequence, position, group, next_value_++ % 4096});
        last = std::max(last, position);
    }
    return batch;
}

int Trial::next(int s) const {
    int next = 0;
    for (const auto& m : members_) next = std::max(next, m->next(s));
    return next;
}

int Trial::past_inputs(const Member& m, int s, int p) const {
    return m.has_inputs() && p >= next(s) ? INT_MAX : p;
}

bool Trial::can_resume(int s, int p) const {
    return std::all_of(members_.begin(), members_.end(), [&](const auto& m) { return m->can_resume(s, p); });
}

int Trial::kept_state(int s, int p) const {
    const auto is_kept = [&](const auto& m) { return !m->follows() || m->can_resume(s, p); };
    while (!std::all_of(members_.begin(), members_.end(), is_kept)) --p;
    return p;
}

template <class Ask>
HybridAnswer Trial::expected(Ask ask) const {
    for (int i = 0; i < static_cast<int>(members_.size()); ++i)
        if (const Answer no = ask(*members_[static_cast<std::size_t>(i)])) return cellar::Refusal{*no, i};
    return std::nullopt;
}

void Trial::expect_answer(const HybridAnswer& answer, const HybridAnswer& expected) const {
    const auto text = [](const HybridAnswer& a) { return a ? cellar::to_string(*a) : std::string{"yes"}; };
    const bool agree = answer.has_value() == expected.has_value()
                       && (!answer || (answer->reason == expected->reason && answer->member == expected->member));
    trace_.expect(agree, "the answer is ", text(answer), ", expected ", text(expected));
}

void Trial::settle() const {
    for (const auto& m : members_) m->settle();
}

void Trial::compare(bool look) const {
    for (const auto& m : members_) m->check(look);
    const bool may_stop =
        std::any_of(members_.begin(), members_.end(), [](const auto& m) { return m->may_have_gaps(); });
    for (int s = 0; s < sequences_; ++s) {
        trace_.expect(may_stop || whole_.can_resume(s, whole_.next(s)), "s", s, " cannot go on at ", whole_.next(s));
        trace_.expect(whole_.next(s) == next(s), "next(s", s, ") is ", whole_.next(s), ", expected ", next(s));
        int nearest = 0;
        for (int p = 0; p < next(s) + 6; ++p) {
            const bool all = can_resume(s, p);
            if (all) nearest = p;
            trace_.expect(whole_.can_resume(s, p) == all, "can_resume(s", s, ", ", p, ") is ", !all);
            trace_.expect(whole_.resumable_prefix(s, p) == nearest, "resumable_prefix(s", s, ", ", p, ") is ",
                          whole_.resumable_prefix(s, p), ", expected ", nearest);
        }
    }
}

} // namespace property::hybrid
