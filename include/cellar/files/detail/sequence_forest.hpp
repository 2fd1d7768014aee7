// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/base/result.hpp>
#include <cellar/files/detail/shared_prefix.hpp>
#include <cellar/memory/two_phase.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace cellar::detail {

/// Several sequences as a forest of snapshots, the parts: a sequence is a path of parts, and a shared prefix is stored
/// once, in the parts with which these sequences begin.
template <class M>
class SequenceForest {
public:
    static constexpr std::int32_t none = -1;

    struct Part {
        Sequence owner; ///< a sequence that has these tokens
        Position begin;
        Position end;
        std::int32_t before = none; ///< the part that precedes it
    };

    explicit SequenceForest(M& memory) : memory_{memory} {}

    /// In an order in which each part comes after the one that precedes it.
    const std::vector<Part>& parts() const { return parts_; }
    /// The last part of each sequence, in the order of `add`; `none` for an empty sequence.
    const std::vector<std::int32_t>& last_parts() const { return last_; }

    Result<SnapshotOf<M>> snapshot(const Part& part) const {
        return snapshot_keeping_schedule(memory_, part.owner, part.begin, has_waiting(part) ? to_end : part.end);
    }

    /// Refuses as `snapshot` does. O(sequences before * runs).
    Result<void> add(Sequence s) {
        Position end;
        {
            const auto whole = snapshot_keeping_schedule(memory_, s, Position{0}, to_end);
            if (!whole) return whole.error();
            end = whole->to();
        }
        sequences_.push_back(s);
        last_.push_back(is_empty(memory_, s) ? none : place(s, end));
        return {};
    }

    /// The same without what it has.
    void add_empty(Sequence s) {
        sequences_.push_back(s);
        last_.push_back(none);
    }

    /// Puts the parts in order. Comes after the last `add`.
    void sort() {
        std::vector<std::int32_t> order(parts_.size());
        std::iota(order.begin(), order.end(), 0);
        std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
            return std::pair{part(a).begin, a} < std::pair{part(b).begin, b};
        });
        std::vector<std::int32_t> place_of(order.size());
        std::vector<Part> sorted;
        for (const std::int32_t old : order) {
            place_of[static_cast<std::size_t>(old)] = static_cast<std::int32_t>(sorted.size());
            sorted.push_back(part(old));
        }
        const auto renumber = [&](std::int32_t& k) { k = k == none ? none : place_of[static_cast<std::size_t>(k)]; };
        for (Part& p : sorted) renumber(p.before);
        for (std::int32_t& k : last_) renumber(k);
        parts_ = std::move(sorted);
    }

private:
    /// True if inputs of an encoder wait at the end of the part for the owner's next token. They belong to the part.
    bool has_waiting(const Part& p) const {
        return p.end == memory_.next(p.owner) && has_inputs(memory_, p.owner, p.end);
    }

    Part& part(std::int32_t k) { return parts_[static_cast<std::size_t>(k)]; }

    /// Adds what s has and no sequence before it. Returns its last part.
    std::int32_t place(Sequence s, Position end) {
        const bool waits = has_waiting({s, Position{0}, end});
        for (std::size_t i = 0; waits && i < last_.size(); ++i)
            if (last_[i] != none && part(last_[i]).end == end && is_same(sequences_[i], s, end)) return last_[i];
        Position shared{0};
        std::size_t with = 0;
        for (std::size_t i = 0; i < last_.size(); ++i) {
            if (last_[i] == none) continue;
            const Position until = std::min({shared_prefix(memory_, sequences_[i], s), end, part(last_[i]).end});
            if (until > shared) with = i;
            shared = std::max(shared, until);
        }
        if (shared == Position{0}) return append({s, Position{0}, end});
        // The part of the other sequence in which the shared tokens end.
        std::int32_t k = last_[with];
        while (part(k).begin >= shared) k = part(k).before;
        const Part lower{part(k).owner, shared, part(k).end, k};
        const Part rest{s, shared, end, k};
        const bool divides = part(k).end > shared;
        const bool goes_on = end > shared;
        const bool ends_alike = goes_on || (!waits && (divides || !has_waiting(part(k))));
        const bool possible =
            ends_alike && (!divides || (stands_alone({lower.owner, part(k).begin, shared}) && stands_alone(lower)))
            && (goes_on ? stands_alone(rest) : shares_state(memory_, lower.owner, s, shared));
        if (!possible) return append({s, Position{0}, end});
        if (divides) divide(k, lower);
        return goes_on ? append(rest) : k;
    }

    bool is_same(Sequence a, Sequence b, Position end) const {
        return shared_prefix(memory_, a, b) == to_end && shares_state(memory_, a, b, end);
    }

    /// True if the memory has a snapshot of exactly this part, which can be restored after the parts before it.
    bool stands_alone(const Part& p) const {
        const auto taken = snapshot(p);
        return taken && taken->from() == p.begin && can_restore(memory_, *taken, p.end);
    }

    std::int32_t append(const Part& p) {
        parts_.push_back(p);
        return static_cast<std::int32_t>(parts_.size()) - 1;
    }

    void divide(std::int32_t k, const Part& lower) {
        const std::int32_t n = append(lower);
        for (std::int32_t other = 0; other < n; ++other)
            if (part(other).before == k) part(other).before = n;
        for (std::int32_t& last : last_)
            if (last == k) last = n;
        part(k).end = lower.begin;
    }

    M& memory_;
    std::vector<Part> parts_;
    std::vector<Sequence> sequences_;
    std::vector<std::int32_t> last_;
};

} // namespace cellar::detail
