// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>

#include <algorithm>

namespace cellar::detail {

/// Which positions of a sequence are kept, by all ranks together: [0, head) and [from, end). A sequence of
/// consecutive tokens has one gap at most, because only a window that moves on makes one. Without a gap, `head` and
/// `from` are 0. If the sequence was cut in the gap, it goes on there: `from` and `end` are the position of the cut.
class KeptPositions {
public:
    /// The position of the next token.
    Position end() const { return end_; }
    bool empty() const { return end_ == Position{0}; }
    /// False for a sequence that was cut where the window had forgotten all before, too.
    bool has_tokens() const { return has_gap() ? head_ > Position{0} || from_ < end_ : end_ > Position{0}; }

    bool covers(Position begin, Position end) const {
        return end <= begin || end <= covered_to() || (from_ <= begin && end <= end_);
    }

    /// The first position that is not kept.
    Position covered_to() const { return has_gap() ? head_ : end_; }

    /// The smallest q such that every position in [q, p) is kept.
    Position covered_from(Position p) const {
        if (end_ < p) return p;
        if (!has_gap() || p <= head_) return Position{0};
        return p <= from_ ? p : from_;
    }

    /// One more than the last position below p that is kept; 0 if there is none.
    Position end_before(Position p) const {
        if (has_gap() && head_ < p && (p <= from_ || from_ == end_)) return head_;
        return std::min(p, end_);
    }

    /// The sequence has tokens up to `end`, all those after its last one.
    void extend(Position end) { end_ = end; }

    /// Positions [sinks, kept) are forgotten. All sinks are kept, and `kept` is not behind the last position.
    void forget(Position sinks, Position kept) {
        if (kept <= sinks) return;
        head_ = has_gap() ? std::min(head_, sinks) : sinks;
        from_ = std::max(from_, kept);
    }

    /// Positions [begin, end) are removed, and later ones move down to `begin`.
    void remove(Position begin, Position end) {
        const auto moved = [&](Position p) { return p <= begin ? p : p <= end ? begin : p - (end - begin); };
        head_ = moved(head_);
        from_ = moved(from_);
        end_ = moved(end_);
        if (from_ <= head_ || end_ <= head_) head_ = from_ = Position{0};
    }

private:
    bool has_gap() const { return head_ < from_; }

    Position head_{0};
    Position from_{0};
    Position end_{0};
};

} // namespace cellar::detail
