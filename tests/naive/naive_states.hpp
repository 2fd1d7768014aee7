// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <set>
#include <utility>
#include <vector>

namespace naive {

/// A state: numbers computed from all tokens so far.
struct FoldedState {
    std::vector<int> numbers;
    int marked_at = 0; ///< the time when it became a checkpoint
};
using StateRef = std::shared_ptr<FoldedState>;

struct NewWord {
    int sequence;
    int position;
    int word;
};

struct StateSetup {
    int sequences = 1;
    int batch = 1;
    int rollback = 0;
    int interval = 0;
    int checkpoints = 0;       ///< that are kept
    bool keeps_newest = false; ///< and not those that are spread out
    bool refuses_unequal = false;
    int snapshots = 0; ///< that may exist in place at a time

    /// The slots for checkpoints: those that are kept, and those that a pass can always make.
    int checkpoint_slots() const { return checkpoints == 0 ? 0 : checkpoints + std::max(1, checkpoints / 3); }
};

inline std::ostream& operator<<(std::ostream& out, const StateSetup& s) {
    return out << "{sequences " << s.sequences << ", batch " << s.batch << ", rollback " << s.rollback << ", interval "
               << s.interval << ", checkpoints " << s.checkpoints << ", snapshots " << s.snapshots
               << (s.keeps_newest ? ", keeps the newest" : "") << (s.refuses_unequal ? ", refuses unequal}" : "}");
}

enum class StateReason {
    batch_too_long,
    not_next,
    unequal_batch,
    cannot_rewind,
    cannot_cut,
    cannot_split,
    too_many_snapshots
};

/// The state of a sequence at one position.
struct StateSnapshot {
    int to = 0;
    StateRef state = nullptr;  ///< null at position 0
    bool is_offloaded = false; ///< the state is a copy of its own
};

/// What a recurrent memory must keep, in the simplest form. There are no slots: every state is a value of its own, and
/// every query looks at all of them.
class States {
public:
    struct Kept {
        StateRef state;
        bool is_checkpoint;
    };
    using Sequence = std::map<int, Kept>; ///< by the position of the next token

    States(StateSetup setup, StateRef (*fold)(const StateRef& before, int word))
        : setup_{setup}, fold_{fold}, kept_(size()), scheduled_(size()) {}

    const StateSetup& setup() const { return setup_; }
    const Sequence& kept(int s) const { return kept_[static_cast<std::size_t>(s)]; }
    int next(int s) const { return kept(s).empty() ? 0 : kept(s).rbegin()->first; }
    bool can_resume(int s, int p) const { return p == 0 || kept(s).contains(p); }

    int resumable_prefix(int s, int p) const {
        while (!can_resume(s, p)) --p;
        return p;
    }

    int used() const {
        std::set<StateRef> all;
        for (const Sequence& sequence : kept_)
            for (const auto& [p, kept] : sequence) all.insert(kept.state);
        for (const StateSnapshot& snapshot : snapshots_)
            if (snapshot.to != 0 && !snapshot.is_offloaded) all.insert(snapshot.state);
        return static_cast<int>(all.size());
    }

    std::set<StateRef> checkpoints() const {
        std::set<StateRef> all;
        for (const Sequence& sequence : kept_)
            for (const auto& [p, kept] : sequence)
                if (kept.is_checkpoint) all.insert(kept.state);
        return all;
    }

    std::optional<StateReason> refuses(const std::vector<NewWord>& batch) const {
        if (static_cast<int>(batch.size()) > setup_.batch) return StateReason::batch_too_long;
        std::map<int, std::vector<int>> positions;
        for (const NewWord& w : batch) {
            auto& own = positions[w.sequence];
            const bool follows =
                own.empty() ? w.position == next(w.sequence) : w.position == own.back() || w.position == own.back() + 1;
            if (!follows) return StateReason::not_next;
            own.push_back(w.position);
        }
        for (const auto& [s, own] : positions)
            if (setup_.refuses_unequal && own.size() != positions.begin()->second.size())
                return StateReason::unequal_batch;
        return std::nullopt;
    }

    /// The positions at which the batch leaves states of each sequence; true for those that become checkpoints.
    std::map<int, std::map<int, bool>> kept_points(const std::vector<NewWord>& batch) const {
        std::map<int, int> end;
        std::vector<int> order;
        for (const NewWord& w : batch) {
            if (!end.contains(w.sequence)) order.push_back(w.sequence);
            end[w.sequence] = w.position + 1;
        }
        std::map<int, std::map<int, bool>> points;
        std::map<int, std::vector<int>> wanted; // newest first
        for (const auto& [s, last] : end) {
            for (int p = last; p > next(s); --p) {
                if (p >= last - setup_.rollback) points[s][p] = false;
                if (is_wanted(s, p)) wanted[s].push_back(p);
            }
        }
        int room = setup_.checkpoint_slots() - static_cast<int>(checkpoints().size());
        for (std::size_t i = 0; i < batch.size(); ++i)
            for (const int s : order)
                if (i < wanted[s].size() && room-- > 0) points[s][wanted[s][i]] = true;
        return points;
    }

    void commit(const std::vector<NewWord>& batch) {
        const auto all = kept_points(batch);
        bool marked = false;
        std::vector<int> order;
        for (const NewWord& w : batch)
            if (std::find(order.begin(), order.end(), w.sequence) == order.end()) order.push_back(w.sequence);
        for (const int s : order) {
            Sequence after = kept(s);
            StateRef state = after.empty() ? initial_ : after.rbegin()->second.state;
            const int last = all.at(s).rbegin()->first;
            int fed = next(s);
            std::erase_if(after, [&](const auto& k) { return is_expired(k.first, k.second, last); });
            for (const auto& [p, is_checkpoint] : all.at(s)) {
                for (const NewWord& w : batch)
                    if (w.sequence == s && w.position >= fed && w.position < p) state = fold_(state, w.word);
                fed = p;
                if (is_checkpoint) state->marked_at = ++clock_;
                after[p] = {state, is_checkpoint};
                marked = marked || is_checkpoint;
            }
            own(s) = after;
            std::erase_if(scheduled_[static_cast<std::size_t>(s)], [&](int p) { return p <= last; });
        }
        if (marked) trim(nullptr);
    }

    std::optional<StateReason> remove(int s, int begin, int end) {
        if (begin == end) return std::nullopt;
        if (begin < next(s) && end < next(s)) return StateReason::cannot_cut;
        if (begin < next(s) && !can_resume(s, begin)) return StateReason::cannot_rewind;
        std::erase_if(own(s), [&](const auto& k) { return k.first > begin; });
        if (begin == 0) scheduled_[static_cast<std::size_t>(s)].clear();
        return std::nullopt;
    }

    std::optional<StateReason> copy_prefix(int from, int to, int length) {
        if (from == to) return std::nullopt;
        if (length < next(from) && !can_resume(from, length)) return StateReason::cannot_rewind;
        own(to) = kept(from);
        std::erase_if(own(to), [&](const auto& k) { return k.first > length; });
        scheduled_[static_cast<std::size_t>(to)].clear();
        return std::nullopt;
    }

    void checkpoint(int s) {
        if (kept(s).empty()) return;
        Kept& last = own(s).rbegin()->second;
        if (!checkpoints().contains(last.state)) last.state->marked_at = ++clock_;
        last.is_checkpoint = true;
        trim(last.state);
    }

    const std::vector<StateSnapshot>& snapshots() const { return snapshots_; }

    std::optional<StateReason> snapshot(int s, int to) {
        if (!can_resume(s, to)) return StateReason::cannot_rewind;
        if (in_place() == setup_.snapshots) return StateReason::too_many_snapshots;
        snapshots_.push_back({to, to == 0 ? nullptr : kept(s).at(to).state});
        return std::nullopt;
    }
    std::optional<StateReason> restore(int s, std::size_t index, int to) {
        const StateSnapshot& snapshot = snapshots_.at(index);
        if (to != snapshot.to) return StateReason::cannot_rewind;
        own(s).clear();
        if (to != 0) own(s)[to] = {snapshot.is_offloaded ? copy_of(snapshot.state) : snapshot.state, false};
        scheduled_[static_cast<std::size_t>(s)].clear();
        return std::nullopt;
    }
    void offload(std::size_t index) {
        StateSnapshot& snapshot = snapshots_.at(index);
        if (!snapshot.is_offloaded && snapshot.to != 0) snapshot.state = copy_of(snapshot.state);
        snapshot.is_offloaded = true;
    }
    std::optional<StateReason> reload(std::size_t index) {
        if (!snapshots_.at(index).is_offloaded) return std::nullopt;
        if (in_place() == setup_.snapshots) return StateReason::too_many_snapshots;
        snapshots_.at(index).is_offloaded = false;
        return std::nullopt;
    }
    int in_place() const {
        return static_cast<int>(
            std::count_if(snapshots_.begin(), snapshots_.end(), [](const auto& s) { return !s.is_offloaded; }));
    }
    /// The child, which does not end before the parent, takes its place, and is the parent's from then on.
    bool can_merge(std::size_t parent, std::size_t child) const {
        return parent != child && snapshots_.at(child).to >= snapshots_.at(parent).to;
    }
    void merge(std::size_t parent, std::size_t child) {
        snapshots_.at(parent) = snapshots_.at(child);
        release(child);
    }
    void release(std::size_t index) { snapshots_.erase(snapshots_.begin() + static_cast<std::ptrdiff_t>(index)); }

    /// Sequences without a state start from this one.
    void set_initial(StateRef state) { initial_ = std::move(state); }

    void unschedule(int s, int p) { scheduled_[static_cast<std::size_t>(s)].erase(p); }
    void schedule(int s, int p) { scheduled_[static_cast<std::size_t>(s)].insert(p); }

private:
    static StateRef copy_of(const StateRef& state) { return std::make_shared<FoldedState>(*state); }
    std::size_t size() const { return static_cast<std::size_t>(setup_.sequences); }
    Sequence& own(int s) { return kept_[static_cast<std::size_t>(s)]; }

    bool is_wanted(int s, int p) const {
        return (setup_.interval > 0 && p % setup_.interval == 0) || scheduled_[static_cast<std::size_t>(s)].contains(p);
    }

    bool is_expired(int p, const Kept& kept, int last) const {
        return !kept.is_checkpoint && p < last - setup_.rollback;
    }

    // How many positions would have to be computed again without this checkpoint, then the time when it became one.
    std::pair<int, int> worth(const StateRef& state) const {
        int positions = 0;
        for (const Sequence& sequence : kept_) {
            int before = 0;
            for (const auto& [p, kept] : sequence) {
                if (!kept.is_checkpoint) continue;
                if (kept.state == state && !setup_.keeps_newest) positions = std::max(positions, p - before);
                before = p;
            }
        }
        return {positions, state->marked_at};
    }

    void trim(const StateRef& exempt) {
        for (auto all = checkpoints(); static_cast<int>(all.size()) > setup_.checkpoints; all = checkpoints()) {
            all.erase(exempt);
            const StateRef dropped = *std::min_element(
                all.begin(), all.end(), [&](const auto& a, const auto& b) { return worth(a) < worth(b); });
            for (int s = 0; s < setup_.sequences; ++s) {
                const int last = next(s);
                for (auto& [p, kept] : own(s))
                    if (kept.state == dropped) kept.is_checkpoint = false;
                std::erase_if(own(s), [&](const auto& k) { return is_expired(k.first, k.second, last); });
            }
        }
    }

    StateSetup setup_;
    StateRef (*fold_)(const StateRef& before, int word);
    std::vector<Sequence> kept_;
    std::vector<std::set<int>> scheduled_;
    std::vector<StateSnapshot> snapshots_;
    StateRef initial_ = nullptr; ///< zeros
    int clock_ = 0;
};

} // namespace naive
