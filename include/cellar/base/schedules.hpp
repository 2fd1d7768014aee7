// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/base/trivial_list.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace cellar::detail {

/// The positions at which snapshots or checkpoints of sequences are wanted later. Only `reserve` allocates.
class Schedules {
public:
    /// True if no sequence has any.
    bool empty() const { return count_ == 0; }

    /// Those of s, in ascending order.
    std::span<const Position> of(Sequence s) const {
        if (empty()) return {};
        const TrivialList<Position>& own = lists_[static_cast<std::size_t>(s.value)];
        return {own.data(), own.size()};
    }
    bool has(Sequence s, Position p) const { return last_up_to(s, p) == p; }

    /// The last one of s up to p; -1 if there is none.
    Position last_up_to(Sequence s, Position p) const {
        const std::span<const Position> own = of(s);
        const auto at = std::upper_bound(own.begin(), own.end(), p);
        return at == own.begin() ? Position{-1} : *(at - 1);
    }

    /// Room for one more of s, one of `sequences`. Returns true if it allocated.
    bool reserve(Sequence s, std::int32_t sequences) {
        if (lists_.empty()) lists_.resize(static_cast<std::size_t>(sequences));
        TrivialList<Position>& own = list(s);
        if (own.size() < own.capacity()) return false;
        own.reserve(2 * own.size() + 1);
        return true;
    }
    /// Needs room.
    void add(Sequence s, Position p) noexcept {
        if (has(s, p)) return;
        TrivialList<Position>& own = list(s);
        own.insert(std::lower_bound(own.begin(), own.end(), p), p);
        ++count_;
    }

    /// Removes those of s at positions [begin, end]. Returns false if there are none.
    bool remove(Sequence s, Position begin, Position end) noexcept {
        if (empty()) return false;
        TrivialList<Position>& own = list(s);
        const Position* const first = std::lower_bound(own.begin(), own.end(), begin);
        const Position* const last = std::upper_bound(first, std::as_const(own).end(), end);
        const auto removed = last - first;
        own.erase(first, last);
        count_ -= removed;
        return removed > 0;
    }

private:
    TrivialList<Position>& list(Sequence s) { return lists_[static_cast<std::size_t>(s.value)]; }

    std::vector<TrivialList<Position>> lists_; // of each sequence; empty until one is needed
    std::int64_t count_ = 0;                   // of all sequences
};

} // namespace cellar::detail
