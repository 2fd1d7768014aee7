// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "../memory/internals.hpp"
#include "../naive/naive_states.hpp"
#include "../recurrent/folding.hpp"
#include "trace.hpp"

#include <climits>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace property::recurrent {

using cellar::Reason;

/// The state after one more word, computed without the library.
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

inline Reason reason_of(naive::StateReason reason) {
    switch (reason) {
    case naive::StateReason::batch_too_long:
        return Reason::batch_too_long;
    case naive::StateReason::not_next:
        return Reason::not_next;
    case naive::StateReason::unequal_batch:
        return Reason::unequal_batch;
    case naive::StateReason::cannot_rewind:
        return Reason::cannot_rewind;
    case naive::StateReason::cannot_split:
        return Reason::cannot_split;
    case naive::StateReason::too_many_snapshots:
        return Reason::too_many_snapshots;
    default:
        return Reason::cannot_cut;
    }
}

inline cellar::StateLimits limits_of(const naive::StateSetup& setup) {
    return {.sequences = setup.sequences,
            .batch = setup.batch,
            .rollback = setup.rollback,
            .checkpoints = setup.checkpoints,
            .checkpoint_policy =
                setup.keeps_newest ? cellar::CheckpointPolicy::newest : cellar::CheckpointPolicy::spread,
            .checkpoint_interval = setup.interval,
            .snapshots = setup.snapshots,
            .unequal = setup.refuses_unequal ? cellar::Unequal::refuse : cellar::Unequal::split};
}

/// Compares what is visible of a recurrent memory with the model.
template <class Memory>
class StateInspector {
public:
    StateInspector(const Memory& memory, const Trace& trace) : memory_{memory}, trace_{trace} {}

    void check_slots(const naive::States& model) const {
        const naive::StateSetup& setup = model.setup();
        const int kept = setup.sequences * (setup.rollback + 1);
        const int slots = kept + std::min(kept, setup.batch) + setup.checkpoint_slots() + setup.snapshots;
        trace_.expect(memory_.slots() == slots, memory_.slots(), " slots, expected ", slots);
    }

    /// Checks that micro-batches end where states are kept, that they have every token once and in order, and that no
    /// slot is written that is still needed.
    void check_micro_batches(const naive::States& model, std::span<const cellar::MicroBatch> micro_batches,
                             const std::vector<naive::NewWord>& batch) const {
        const auto points = model.kept_points(batch);
        std::map<int, std::vector<int>> own; // tokens of each sequence
        for (int i = 0; i < static_cast<int>(batch.size()); ++i)
            own[batch[static_cast<std::size_t>(i)].sequence].push_back(i);
        std::map<int, int> done;
        std::map<int, cellar::Slot> state;
        std::set<cellar::Slot> needed = needed_slots(model);
        for (const cellar::MicroBatch& micro_batch : micro_batches) {
            const int length = length_of(batch, own, done, points);
            trace_.expect(micro_batch.length() == length, "a micro-batch of length ", micro_batch.length(),
                          ", expected ", length);
            std::set<int> seen;
            std::set<cellar::Slot> targets;
            for (std::int32_t i = 0; i < micro_batch.sequences(); ++i) {
                const int s = micro_batch.sequence(i).value;
                const auto at = static_cast<std::size_t>(i);
                seen.insert(s);
                for (const std::int32_t token : micro_batch.tokens(i))
                    trace_.expect(token == own[s][static_cast<std::size_t>(done[s]++)], "s", s, " has token ", token);
                const cellar::Slot source = micro_batch.sources()[at];
                const cellar::Slot target = micro_batch.targets()[at];
                const bool starts = !state.contains(s) && model.next(s) == 0;
                const cellar::Slot before = state.contains(s) ? state[s] : starts ? target : current(s);
                trace_.expect(source == before, "s", s, " is read from slot ", source, ", expected ", before);
                trace_.expect(!needed.contains(target), "slot ", target, " is written although it is needed");
                trace_.expect(targets.insert(target).second, "slot ", target, " is written twice");
                state[s] = target;
                const int last =
                    batch[static_cast<std::size_t>(own[s][static_cast<std::size_t>(done[s] - 1)])].position;
                const bool ends =
                    done[s] == static_cast<int>(own[s].size())
                    || batch[static_cast<std::size_t>(own[s][static_cast<std::size_t>(done[s])])].position > last;
                if (ends && points.at(s).contains(last + 1)) needed.insert(target);
            }
            trace_.expect(static_cast<int>(seen.size()) == micro_batch.sequences(),
                          "a micro-batch has a sequence twice");
        }
        for (const auto& [s, tokens] : own)
            trace_.expect(done[s] == static_cast<int>(tokens.size()), "s", s, " has tokens in no micro-batch");
    }

    void check_counts(const naive::States& model) const {
        const cellar::StateStatistics found = memory_.statistics();
        trace_.expect(found.snapshots == model.in_place(), found.snapshots, " snapshots in place, expected ",
                      model.in_place());
        int offloaded = 0;
        for (const naive::StateSnapshot& snapshot : model.snapshots()) offloaded += snapshot.is_offloaded ? 1 : 0;
        trace_.expect(found.offloaded == offloaded, found.offloaded, " snapshots offloaded, expected ", offloaded);
        trace_.expect(found.used == model.used(), found.used, " slots used, expected ", model.used());
        const auto checkpoints = static_cast<int>(model.checkpoints().size());
        trace_.expect(found.checkpoints == checkpoints, found.checkpoints, " checkpoints, expected ", checkpoints);
        trace_.expect(static_cast<int>(needed_slots(model).size()) == found.used,
                      "the number of kept slots differs from that of used ones");
        for (int s = 0; s < model.setup().sequences; ++s) {
            const auto& expected = model.kept(s);
            const auto kept = memory_.kept(cellar::Sequence{s});
            trace_.expect(kept.size() == expected.size(), "s", s, " keeps ", kept.size(), " states, expected ",
                          expected.size());
            for (const cellar::KeptState& state : kept) {
                const auto at = expected.find(state.next.value);
                trace_.expect(at != expected.end() && at->second.is_checkpoint == state.is_checkpoint, "s", s,
                              " keeps a state at ", state.next.value, " that it should not");
            }
            trace_.expect(memory_.can_resume(cellar::Sequence{s}, memory_.next(cellar::Sequence{s})), "s", s,
                          " cannot go on at ", memory_.next(cellar::Sequence{s}).value);
            for (int p = 0; p<model.next(s) + 3; p += model.setup().sequences> 8 ? 7 : 1) {
                const int expected_prefix = model.resumable_prefix(s, p);
                trace_.expect(memory_.can_resume(cellar::Sequence{s}, cellar::Position{p}) == model.can_resume(s, p),
                              "can_resume(s", s, ", ", p, ")");
                trace_.expect(memory_.resumable_prefix(cellar::Sequence{s}, cellar::Position{p}).value
                                  == expected_prefix,
                              "resumable_prefix(s", s, ", ", p, "), expected ", expected_prefix);
            }
        }
    }

    /// Compares all states. A state that an earlier call has seen must be in the same slot, or gone.
    void check_contents(const naive::States& model) {
        std::map<naive::StateRef, cellar::StateHandle> alive;
        for (int s = 0; s < model.setup().sequences; ++s)
            for (const auto& [p, kept] : model.kept(s)) {
                const cellar::StateHandle handle = recurrent_test::handle_at(memory_, s, p);
                trace_.expect(recurrent_test::numbers(memory_, handle) == kept.state->numbers, "s", s,
                              " has the wrong state at ", p);
                alive[kept.state] = handle;
            }
        for (const naive::StateSnapshot& snapshot : model.snapshots()) {
            const auto known = handles_.find(snapshot.state);
            if (known == handles_.end()) continue; // only restoring it shows it
            trace_.expect(recurrent_test::numbers(memory_, known->second) == snapshot.state->numbers,
                          "a snapshot has the wrong state at ", snapshot.to);
            alive.insert(*known);
        }
        for (const auto& [state, handle] : handles_) {
            const auto now = alive.find(state);
            if (now == alive.end())
                trace_.expect(!cellar_test::table_of(memory_).slots().is_current(handle),
                              "a handle is valid although its state is gone");
            else
                trace_.expect(now->second == handle, "a state has moved, or changed");
        }
        handles_ = std::move(alive);
    }

private:
    static int length_of(const std::vector<naive::NewWord>& batch, const std::map<int, std::vector<int>>& own,
                         const std::map<int, int>& done, const std::map<int, std::map<int, bool>>& points) {
        int min = INT_MAX;
        for (const auto& [s, tokens] : own) {
            const int fed = done.contains(s) ? done.at(s) : 0;
            for (const auto& [p, is_checkpoint] : points.at(s)) {
                const auto before = std::count_if(tokens.begin(), tokens.end(), [&](int token) {
                    return batch[static_cast<std::size_t>(token)].position < p;
                });
                if (before <= fed) continue;
                min = std::min(min, static_cast<int>(before) - fed);
                break;
            }
        }
        return min;
    }

    cellar::Slot current(int s) const { return memory_.kept(cellar::Sequence{s}).back().slot; }

    std::set<cellar::Slot> needed_slots(const naive::States& model) const {
        std::set<cellar::Slot> slots;
        for (int s = 0; s < model.setup().sequences; ++s)
            for (const cellar::KeptState& kept : memory_.kept(cellar::Sequence{s})) slots.insert(kept.slot);
        for (const auto* kept : cellar_test::table_of(memory_).snapshots().in_place())
            if (kept->to.value != 0) slots.insert(kept->slot);
        return slots;
    }

    const Memory& memory_;
    const Trace& trace_;
    std::map<naive::StateRef, cellar::StateHandle> handles_; ///< at the last comparison
};

} // namespace property::recurrent
