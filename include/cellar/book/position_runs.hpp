// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/book/position_run.hpp>
#include <cellar/book/words.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace cellar {

/// The cells of one sequence in the order of their positions, as runs: neighbouring positions in neighbouring cells
/// are one run. Equal positions are allowed; they keep the order in which they came.
///
/// Appending costs O(1) amortised, finding a position O(log runs), changing the middle O(runs). Only `reserve`
/// allocates; every other member needs the room that was reserved.
class PositionRuns {
public:
    /// Room for `runs` runs to be rewritten over and over at the end without allocating.
    explicit PositionRuns(std::int64_t runs) { reallocate(2 * runs); }

    /// How many runs it was made for.
    std::int64_t planned() const { return room_ / 2; }

    bool empty() const { return size_ == 0; }
    std::int32_t tokens() const { return tokens_; }
    std::int64_t runs() const { return size_; }
    Position first() const { return {run(0).position}; }
    Position last() const { return {run(size_ - 1).last()}; }

    /// Makes room for `more` runs. Allocates only if more runs are held than were ever planned for.
    void reserve(std::int64_t more) {
        if (head_ + size_ + more <= room_) return;
        if (size_ + more > planned()) return reallocate(2 * (size_ + more));
        std::copy(begin(), begin() + size_, storage_.get());
        head_ = 0;
    }

    /// Tokens at [position, position + n) lie in [cell, cell + n). Behind the last position: O(1). Needs room for two
    /// more runs, and two a token when it goes into the middle. True if all others are before them.
    bool insert(Position position, Cell cell, std::int32_t n) {
        // What was forgotten below the last gap is no longer all at the front: see covered_since.
        if (position.value < forgotten_) recompute_coverage(0);
        const std::int32_t last = size_ == 0 ? -1 : run(size_ - 1).last();
        if (last <= position.value) {
            append(last, {position.value, cell, n, position.value});
        } else {
            for (std::int32_t i = 0; i < n; ++i) insert_one(position.value + i, cell + i);
        }
        tokens_ += n;
        return last < position.value;
    }

    /// Calls `visit(position, cell, count)` for the runs within positions [from, to), in order.
    template <class Visit>
    void for_each(Position from, Position to, Visit visit) const {
        for (std::int64_t i = first_ending_at(from.value); i < size_; ++i) {
            const Run& r = run(i);
            const std::int32_t begin = std::max(r.position, from.value);
            const std::int32_t end = std::min(r.last(), to.value - 1) + 1;
            if (end <= begin) return;
            visit(Position{begin}, r.cell + (begin - r.position), end - begin);
        }
    }

    /// Calls `visit(word, cells)` for the cells at positions [from, to), as bits of words; what runs one after another
    /// have in the same word is one call.
    template <class Visit>
    void for_each_word(Position from, Position to, Visit visit) const {
        std::int64_t word = 0;
        detail::Word cells = 0;
        for_each(from, to, [&](Position, Cell cell, std::int32_t n) {
            detail::for_each_word(cell, n, [&](std::int64_t at, detail::Word more) {
                if (at != word) {
                    if (cells != 0) visit(word, cells);
                    word = at;
                    cells = 0;
                }
                cells |= more;
            });
        });
        if (cells != 0) visit(word, cells);
    }

    /// Forgets all tokens at positions [from, to). Needs room for one more run.
    void erase(Position from, Position to) {
        std::int64_t begin = first_ending_at(from.value);
        std::int64_t end = first_starting_at(to.value);
        if (to <= from || end <= begin) return;
        for (std::int64_t i = begin; i < end; ++i) tokens_ -= run(i).count;
        const Run left = run(begin);
        const Run right = run(end - 1);
        const std::int32_t kept_left = std::max(from.value - left.position, 0);
        const std::int32_t kept_right = std::max(right.last() - to.value + 1, 0);
        tokens_ += kept_left + kept_right;
        if (kept_left > 0 && kept_right > 0 && end - begin == 1) {
            open(end, 1);
            ++end;
        }
        if (kept_left > 0) run(begin++).count = kept_left;
        if (kept_right > 0) run(--end) = right.tail(kept_right);
        close(begin, end);
        if (empty()) {
            forgotten_ = 0;
        } else if (last() >= to) {
            // Only one gap can be left to covered_since: that of a second one is written into the runs.
            const bool second =
                forgotten_ != 0 && (to.value < forgotten_ || (begin > 0 && run(begin - 1).position >= forgotten_));
            if (second) {
                recompute_coverage(0);
            } else {
                forgotten_ = to.value;
            }
        }
    }

    /// Forgets all tokens at positions [from, to); later ones move down to `from`. O(runs from there on).
    void close_gap(Position from, Position to) {
        erase(from, to);
        const std::int64_t moved = first_starting_at(to.value);
        for (std::int64_t i = moved; i < size_; ++i) run(i).position -= to - from;
        if (moved < size_) join(moved - 1);
        recompute_coverage(moved - 1);
    }

    /// Takes one token back, as if it had never been inserted.
    void erase_one(Position position, Cell cell) {
        std::int64_t i = first_ending_at(position.value);
        while (run(i).cell + (position.value - run(i).position) != cell) ++i;
        Run& r = run(i);
        --tokens_;
        if (position.value == r.last() && r.count > 1) {
            --r.count;
        } else if (position.value == r.position && r.count > 1) {
            r = r.tail(r.count - 1);
        } else if (r.count > 1) {
            open(i + 1, 1);
            run(i + 1) = run(i).tail(run(i).last() - position.value);
            run(i).count = position.value - run(i).position;
        } else {
            close(i, i + 1);
        }
        if (empty()) forgotten_ = 0;
        if (i >= size_) return; // the others are covered as before
        join(i - 1);
        recompute_coverage(i - 1);
    }

    /// Becomes `other` without its tokens from position `end` on. Needs room for as many runs.
    void assign(const PositionRuns& other, Position end) {
        head_ = 0;
        size_ = other.first_starting_at(end.value);
        std::copy(other.begin(), other.begin() + size_, begin());
        forgotten_ = other.forgotten_;
        tokens_ = other.tokens_;
        for (std::int64_t i = size_; i < other.size_; ++i) tokens_ -= other.run(i).count;
        if (size_ != 0 && last() >= end) {
            const std::int32_t behind = last() - end + 1;
            run(size_ - 1).count -= behind;
            tokens_ -= behind;
        }
    }

    /// True if every position in [from, to) has a token. O(log runs).
    bool covers(Position from, Position to) const { return to <= from || covered_from(to) <= from; }

    /// The first of the positions before p that have a token each, up to p itself; p if p - 1 has none. O(log runs).
    Position covered_from(Position p) const {
        const std::int64_t i = first_starting_at(p.value) - 1;
        return {i < 0 || run(i).last() < p.value - 1 ? p.value : covered_since(run(i))};
    }

    /// Behind the last token before p; 0 if there is none. O(log runs).
    Position end_before(Position p) const {
        const std::int64_t i = first_starting_at(p.value) - 1;
        return {i < 0 ? 0 : std::min(run(i).last() + 1, p.value)};
    }

private:
    using Run = detail::PositionRun;

    // Forgetting the oldest positions leaves the runs behind untouched, so what they say of coverage may reach into
    // what was forgotten: nothing between the pinned positions and `forgotten_` is there any more.
    std::int32_t covered_since(const Run& r) const {
        return r.position >= forgotten_ ? std::max(r.covered_from, forgotten_) : r.covered_from;
    }

    // `last` is the last position, or -1.
    void append(std::int32_t last, Run r) {
        Run* const end = begin() + size_;
        if (size_ != 0 && last + 1 >= r.position) {
            if (last + 1 == r.position && end[-1].cell + end[-1].count == r.cell) {
                end[-1].count += r.count;
                return;
            }
            r.covered_from = covered_since(end[-1]);
        }
        *end = r;
        ++size_;
    }

    // Not inline, so that appending is, which passes do.
    [[gnu::noinline]] void insert_one(std::int32_t position, Cell cell) {
        std::int64_t i = first_starting_at(position + 1);
        if (i > 0 && run(i - 1).last() > position) {
            open(i, 1);
            run(i) = run(i - 1).tail(run(i - 1).last() - position);
            run(i - 1).count -= run(i).count;
        }
        open(i, 1);
        run(i) = {position, cell, 1, position};
        join(i - 1);
        recompute_coverage(i - 1);
    }

    // Runs i and i + 1 become one if they are neighbours in both orders.
    void join(std::int64_t i) {
        if (i < 0 || i + 1 >= size_) return;
        const Run& next = run(i + 1);
        if (run(i).last() + 1 != next.position || run(i).cell + run(i).count != next.cell) return;
        run(i).count += next.count;
        close(i + 1, i + 2);
    }

    [[gnu::noinline]] void recompute_coverage(std::int64_t from) {
        if (forgotten_ != 0) from = 0;
        forgotten_ = 0;
        for (std::int64_t i = std::max<std::int64_t>(from, 0); i < size_; ++i) {
            const bool follows = i > 0 && run(i - 1).last() + 1 >= run(i).position;
            run(i).covered_from = follows ? run(i - 1).covered_from : run(i).position;
        }
    }

    // The first run whose last position is not below `position`; runs() if there is none.
    std::int64_t first_ending_at(std::int32_t position) const {
        return first_not([=](const Run& r) { return r.last() < position; });
    }

    // The first run that starts at `position` or later.
    std::int64_t first_starting_at(std::int32_t position) const {
        return first_not([=](const Run& r) { return r.position < position; });
    }

    // The first run of which `before` does not hold. Passes ask for what is at the ends: there the search touches one
    // line of memory, not one for each halving.
    template <class Before>
    std::int64_t first_not(Before before) const {
        const Run* const all = begin();
        const std::int64_t n = size_;
        if (n == 0 || before(all[n - 1])) return n;
        if (n == 1 || before(all[n - 2])) return n - 1;
        if (!before(all[0])) return 0;
        if (!before(all[1])) return 1;
        return std::partition_point(all + 2, all + n - 2, before) - all;
    }

    void open(std::int64_t at, std::int64_t n) {
        std::copy_backward(begin() + at, begin() + size_, begin() + size_ + n);
        size_ += n;
    }

    // Removes runs [from, to), moving the shorter side: forgetting at the front is O(pinned runs).
    void close(std::int64_t from, std::int64_t to) {
        if (from < size_ - to) {
            std::copy_backward(begin(), begin() + from, begin() + to);
            head_ += to - from;
        } else {
            std::copy(begin() + to, begin() + size_, begin() + from);
        }
        size_ -= to - from;
        if (size_ == 0) head_ = 0;
    }

    void reallocate(std::int64_t room) {
        // Not initialised, so that a cache with many sequences takes memory only for those in use.
        std::unique_ptr<Run[]> larger{new Run[static_cast<std::size_t>(room)]};
        if (size_ != 0) std::copy(begin(), begin() + size_, larger.get());
        storage_ = std::move(larger);
        room_ = room;
        head_ = 0;
    }

    Run* begin() { return storage_.get() + head_; }
    const Run* begin() const { return storage_.get() + head_; }
    Run& run(std::int64_t i) { return begin()[i]; }
    const Run& run(std::int64_t i) const { return begin()[i]; }

    std::unique_ptr<Run[]> storage_;
    std::int64_t room_ = 0;
    std::int64_t head_ = 0; // runs [head_, head_ + size_) of storage_ are in use
    std::int64_t size_ = 0;
    std::int32_t tokens_ = 0;
    std::int32_t forgotten_ = 0;
};

} // namespace cellar
