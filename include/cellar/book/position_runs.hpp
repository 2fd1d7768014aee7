// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/base/position_run.hpp>
#include <cellar/base/sliding_list.hpp>
#include <cellar/book/words.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace cellar::detail {

/// The cells of one sequence in the order of its positions, as runs: neighbouring positions in neighbouring cells are
/// one run. Equal positions are allowed and keep the order in which they were inserted.
///
/// Appending is O(1) amortised, finding a position O(log runs), changing the middle O(runs behind) for each piece that
/// lies between two runs. Only `reserve` allocates; members that add runs need room that was reserved.
class PositionRuns {
public:
    /// Room for `runs` runs, appended and removed any number of times without allocating.
    explicit PositionRuns(std::int64_t runs) : runs_{runs} {}
    static constexpr std::int64_t bytes_for(std::int64_t runs) { return SlidingList<Run>::bytes_for(runs); }

    bool empty() const { return runs_.empty(); }
    std::int32_t tokens() const { return tokens_; }
    std::int64_t runs() const { return runs_.size(); }
    Position first() const { return Position{runs_[0].position}; }
    Position last() const { return Position{runs_.back().last()}; }

    /// The cell of the first token; -1 if there is none.
    Cell first_cell() const { return empty() ? -1 : runs_[0].cell; }
    /// The cell of the last token; -1 if there is none.
    Cell last_cell() const { return empty() ? -1 : runs_.back().cell + runs_.back().count - 1; }

    /// The same for tokens below position `end`. O(log runs).
    Cell last_cell_before(Position end) const {
        const std::int64_t i = first_starting_at(end.value) - 1;
        if (i < 0) return -1;
        return runs_[i].cell + std::min(runs_[i].count, end.value - runs_[i].position) - 1;
    }

    /// The cell of the first token at `from` or behind it; -1 if there is none. O(log runs).
    Cell cell_from(Position from) const {
        const std::int64_t i = first_ending_at(from.value);
        return i == runs() ? -1 : runs_[i].cell + std::max(0, from.value - runs_[i].position);
    }

    /// True if `more` runs can be added.
    bool has_room(std::int64_t more) const { return runs_.has_room(more); }

    /// Makes room for `more` runs. Returns true if it allocated.
    bool reserve(std::int64_t more) { return runs_.reserve(more); }

    /// True if the position directly follows the last one, so that `append` can take it.
    bool ends_before(Position position) const {
        return !empty() && position.value >= forgotten_ && runs_.back().last() + 1 == position.value;
    }

    /// True if n positions directly follow the last one, or begin at 0, and one another.
    bool are_next(const Position* positions, std::size_t n) const {
        Position next = empty() ? Position{0} : last() + 1;
        for (std::size_t i = 0; i < n; ++i, next = next + 1)
            if (positions[i] != next) return false;
        return true;
    }

    /// The position after the last one lies in `cell`. Needs room for one more run.
    void append(Position position, Cell cell) {
        Run& newest = runs_.back();
        if (cell == newest.cell + newest.count) {
            ++newest.count;
        } else {
            runs_.push_back({position.value, cell, 1, covered_since(newest)});
        }
        ++tokens_;
    }

    /// Tokens at [position, position + n) lie in cells [cell, cell + n). O(1) behind the last position. Needs room for
    /// two more runs, or for two per token in the middle. Returns true if all other tokens have smaller positions.
    bool insert(Position position, Cell cell, std::int32_t n) {
        // Part of what covered_since takes for forgotten now has a token again.
        if (position.value < forgotten_) write_coverage();
        const std::int32_t last = empty() ? -1 : runs_.back().last();
        if (last <= position.value) {
            add_behind(last, {position.value, cell, n, position.value});
        } else {
            insert_between({position.value, cell, n, position.value});
        }
        tokens_ += n;
        return last < position.value;
    }

    /// n more tokens at the position of the one that was just inserted lie in cells[0] to cells[n - 1]. O(n + runs
    /// behind). Needs room for one more run per token.
    void insert_again(Position position, const Cell* cells, std::int32_t n) {
        const std::int64_t at = first_starting_at(position.value + 1);
        const std::int32_t since = runs_[at - 1].covered_from;
        runs_.open(at, n);
        for (std::int32_t i = 0; i < n; ++i) runs_[at + i] = {position.value, cells[i], 1, since};
        tokens_ += n;
    }

    /// Calls `visit(position, cell, count)` for the runs within positions [from, to), in order.
    template <class Visit>
    void for_each(Position from, Position to, Visit visit) const {
        const Run* const end = runs_.begin() + runs();
        for (const Run* r = runs_.begin() + first_ending_at(from.value); r != end && r->position < to.value; ++r) {
            const std::int32_t before = std::max(from.value - r->position, 0);
            const std::int32_t behind = std::max(r->last() - (to.value - 1), 0);
            const std::int32_t n = r->count - before - behind;
            if (n > 0) visit(Position{r->position + before}, r->cell + before, n);
        }
    }

    /// How many tokens lie at positions [from, to). O(runs).
    std::int32_t count(Position from, Position to) const {
        std::int32_t n = 0;
        for (std::int64_t i = first_ending_at(from.value); i < runs() && runs_[i].position < to.value; ++i)
            n += std::min(runs_[i].last() + 1, to.value) - std::max(runs_[i].position, from.value);
        return std::max(n, 0);
    }

    /// Calls `visit(word, cells)` for the cells at positions [from, to), as bits of words. Consecutive runs in the same
    /// word are joined into one call.
    template <class Visit>
    void for_each_word(Position from, Position to, Visit visit) const {
        for_each_words(from, to, [&](const CellsOfWords& words) {
            for (std::int64_t i = 0; i < words.words; ++i) visit(words.at + i, words.cells);
        });
    }

    /// The same, with one call `visit(words)` for the neighbouring words that a run fills.
    template <class Visit>
    void for_each_words(Position from, Position to, Visit visit) const {
        for (Words words{*this, from, to}; words.has_more();) {
            const CellsOfWords next = words.is_at_whole_run() ? words.next_run_of_words() : words.next();
            if (next.cells != 0) visit(next);
        }
    }

    /// Forgets all tokens at positions [from, to). Needs room for one more run.
    void erase(Position from, Position to) {
        std::int64_t begin = first_ending_at(from.value);
        std::int64_t end = first_starting_at(to.value);
        if (to <= from || end <= begin) return;
        for (std::int64_t i = begin; i < end; ++i) tokens_ -= runs_[i].count;
        const Run left = runs_[begin];
        const Run right = runs_[end - 1];
        const std::int32_t kept_left = std::max(from.value - left.position, 0);
        const std::int32_t kept_right = std::max(right.last() - to.value + 1, 0);
        tokens_ += kept_left + kept_right;
        if (kept_left > 0 && kept_right > 0 && end - begin == 1) {
            runs_.open(end, 1);
            ++end;
        }
        if (kept_left > 0) runs_[begin++].count = kept_left;
        if (kept_right > 0) runs_[--end] = right.tail(kept_right);
        runs_.close(begin, end);
        if (empty()) {
            forgotten_ = 0;
        } else if (last() >= to) {
            // covered_since handles one gap. If there is a second one, coverage is written into the runs.
            const bool second =
                forgotten_ != 0 && (to.value < forgotten_ || (begin > 0 && runs_[begin - 1].position >= forgotten_));
            if (second) {
                write_coverage();
            } else {
                forgotten_ = to.value;
            }
        }
    }

    /// Forgets all tokens at positions [from, to) and moves later ones down to `from`. O(runs from there on).
    void close_gap(Position from, Position to) {
        const bool other_gap = forgotten_ != 0;
        erase(from, to);
        const std::int64_t moved = first_starting_at(to.value);
        move_down(moved, to - from);
        if (other_gap) {
            write_coverage();
        } else {
            forgotten_ = 0;
        }
        if (moved < runs()) join(moved - 1);
    }

    /// Moves the tokens at positions from `from` on to other cells: `first_piece(cell, n)` says where the first of
    /// [cell, cell + n) go that stay together. `more`: how many runs this can add; needs room for them.
    template <class FirstPiece>
    void relocate(Position from, std::int64_t more, FirstPiece first_piece) {
        std::int64_t written = first_ending_at(from.value);
        std::int64_t gap = 1; // opened next. Small at first: a large one writes to memory that was not in use
        std::int32_t next_position = written == 0 ? -1 : runs_[written - 1].last() + 1; // behind what was written
        Cell next_cell = written == 0 ? -1 : runs_[written - 1].cell + runs_[written - 1].count;
        for (std::int64_t i = written; i < runs(); ++i) {
            for (Run rest = runs_[i];;) {
                const CellRange piece = rest.position < from.value ? CellRange{rest.cell, from.value - rest.position}
                                                                   : first_piece(rest.cell, rest.count);
                if (rest.position == next_position && piece.first == next_cell) {
                    runs_[written - 1].count += piece.count;
                } else {
                    if (written > i) { // the next run was not read yet
                        const std::int64_t n = std::min(gap, more);
                        runs_.open(written, n);
                        i += n;
                        more -= n;
                        gap *= 2;
                    }
                    runs_[written++] = {rest.position, piece.first, piece.count, rest.covered_from};
                }
                next_position = rest.position + piece.count;
                next_cell = piece.first + piece.count;
                if (piece.count == rest.count) break;
                rest = rest.tail(rest.count - piece.count);
            }
        }
        runs_.close(written, runs());
    }

    /// Removes one token, as if it had never been inserted.
    void erase_one(Position position, Cell cell) {
        // Of several tokens at one position, it is usually the newest.
        std::int64_t i = first_starting_at(position.value + 1) - 1;
        while (runs_[i].cell + (position.value - runs_[i].position) != cell) --i;
        Run& r = runs_[i];
        --tokens_;
        if (position.value == r.last() && r.count > 1) {
            --r.count;
        } else if (position.value == r.position && r.count > 1) {
            r = r.tail(r.count - 1);
        } else if (r.count > 1) {
            runs_.open(i + 1, 1);
            runs_[i + 1] = runs_[i].tail(runs_[i].last() - position.value);
            runs_[i].count = position.value - runs_[i].position;
        } else {
            runs_.close(i, i + 1);
        }
        if (i >= runs()) return; // coverage of the other runs has not changed
        join(i - 1);
        recompute_coverage(i - 1, i + 2);
    }

    /// Becomes a copy of `other` up to position `end`. Needs room for its runs.
    void assign(const PositionRuns& other, Position end) {
        runs_.assign(other.runs_, other.first_starting_at(end.value));
        forgotten_ = other.forgotten_;
        tokens_ = other.tokens_;
        for (std::int64_t i = runs(); i < other.runs(); ++i) tokens_ -= other.runs_[i].count;
        if (!empty() && last() >= end) {
            const std::int32_t behind = last() - end + 1;
            runs_.back().count -= behind;
            tokens_ -= behind;
        }
    }

    /// True if every position in [from, to) has a token. O(log runs).
    bool covers(Position from, Position to) const { return to <= from || covered_from(to) <= from; }

    /// The smallest q such that every position in [q, p) has a token. O(log runs).
    Position covered_from(Position p) const {
        const std::int64_t i = first_starting_at(p.value) - 1;
        return Position{i < 0 || runs_[i].last() < p.value - 1 ? p.value : covered_since(runs_[i])};
    }

    /// The first position without a token. O(log runs).
    Position covered_to() const {
        const std::int64_t i = runs_.first_not([this](const Run& r) { return covered_since(r) == 0; });
        return Position{i == 0 ? 0 : runs_[i - 1].last() + 1};
    }

    /// The largest p up to which both have the same tokens in the same cells. O(runs up to there).
    Position shared_until(const PositionRuns& other) const {
        const auto end = [](const PositionRuns& runs) { return runs.empty() ? Position{0} : runs.last() + 1; };
        return std::min({first_difference(all(), other.all()), end(*this), end(other)});
    }

    /// One more than the last position below p that has a token; 0 if there is none. O(log runs).
    Position end_before(Position p) const {
        const std::int64_t i = first_starting_at(p.value) - 1;
        return Position{i < 0 ? 0 : std::min(runs_[i].last() + 1, p.value)};
    }

private:
    using Run = PositionRun;

    std::span<const Run> all() const { return {runs_.begin(), static_cast<std::size_t>(runs_.size())}; }

    // Goes through the cells at positions [from, to), one word or several whole ones at a time. Most of its work is not
    // inlined, because it has many callers.
    class Words {
    public:
        Words(const PositionRuns& runs, Position from, Position to)
            : run_{runs.runs_.begin() + runs.first_ending_at(from.value)},
              end_{runs.runs_.begin() + runs.runs()},
              from_{from.value},
              to_{to.value} {}

        bool has_more() const { return count_ > 0 || (run_ != end_ && run_->position < to_); }

        // The short path of whole blocks: the next run fills its words, and none of it was visited.
        bool is_at_whole_run() const {
            return count_ == 0 && bit_of(run_->cell | run_->count) == 0 && run_->position >= from_
                   && run_->last() < to_;
        }
        CellsOfWords next_run_of_words() {
            const Run& run = *run_++;
            return {word_of(run.cell), ~Word{0}, word_of(run.count)};
        }

        // No cells: there are no more after all.
        [[gnu::noinline]] CellsOfWords next() {
            CellsOfWords word;
            if (count_ == 0 && !next_run()) return word;
            if (bit_of(cell_) == 0 && count_ >= word_bits) return whole_words();
            while (count_ > 0 || next_run()) {
                if (word.cells != 0 && word.at != word_of(cell_)) break;
                word.at = word_of(cell_);
                const auto room = static_cast<std::int32_t>(word_bits - bit_of(cell_));
                const std::int32_t n = std::min(count_, room);
                word.cells |= bit_range(bit_of(cell_), n);
                cell_ += n;
                count_ -= n;
            }
            return word;
        }

    private:
        CellsOfWords whole_words() {
            const CellsOfWords whole{word_of(cell_), ~Word{0}, word_of(count_)};
            cell_ += count_ - static_cast<std::int32_t>(bit_of(count_));
            count_ = static_cast<std::int32_t>(bit_of(count_));
            return whole;
        }

        bool next_run() {
            while (run_ != end_ && run_->position < to_) {
                const Run& run = *run_++;
                cell_ = run.cell;
                count_ = std::min(run.count, to_ - run.position);
                if (run.position < from_) {
                    cell_ += from_ - run.position;
                    count_ -= from_ - run.position;
                }
                if (count_ > 0) return true;
            }
            return false;
        }

        const Run* run_;
        const Run* end_;
        std::int32_t from_;
        std::int32_t to_;
        Cell cell_ = 0; // of the run before run_, not visited yet
        std::int32_t count_ = 0;
    };

    // Forgetting the oldest positions does not update the later runs, so their `covered_from` may reach into positions
    // that were forgotten: between the sinks and `forgotten_` there are no tokens.
    std::int32_t covered_since(const Run& r) const {
        return r.position >= forgotten_ ? std::max(r.covered_from, forgotten_) : r.covered_from;
    }

    // `last` is the last position, or -1.
    void add_behind(std::int32_t last, Run r) {
        if (!empty() && last + 1 >= r.position) {
            Run& newest = runs_.back();
            if (last + 1 == r.position && newest.cell + newest.count == r.cell) {
                newest.count += r.count;
                return;
            }
            r.covered_from = covered_since(newest);
        }
        runs_.push_back(r);
    }

    // Its tokens go behind those of equal positions. So it is divided where others have positions within it.
    void insert_between(Run rest) {
        std::int64_t at = first_starting_at(rest.position + 1);
        const std::int64_t first = at - 1;
        for (;;) {
            const bool divides = at > 0 && runs_[at - 1].last() > rest.position;
            runs_.open(at, divides ? 2 : 1);
            if (divides) {
                runs_[at + 1] = runs_[at - 1].tail(runs_[at - 1].last() - rest.position);
                runs_[at - 1].count -= runs_[at + 1].count;
            }
            Run& piece = runs_[at];
            piece = rest;
            if (at + 1 < runs()) piece.count = std::min(rest.count, runs_[at + 1].position - rest.position);
            rest = rest.tail(rest.count - piece.count);
            join(at - 1);
            if (rest.count == 0) break;
            at = first_starting_at(rest.position + 1);
        }
        recompute_coverage(first, at + 2);
    }

    // Joins runs i and i + 1 if both their positions and their cells are consecutive.
    void join(std::int64_t i) {
        if (i < 0 || i + 1 >= runs()) return;
        const Run& next = runs_[i + 1];
        if (runs_[i].last() + 1 != next.position || runs_[i].cell + runs_[i].count != next.cell) return;
        runs_[i].count += next.count;
        runs_.close(i + 1, i + 2);
    }

    // Afterwards no `covered_from` reaches into positions that were forgotten.
    [[gnu::noinline]] void write_coverage() {
        forgotten_ = 0;
        move_down(0, 0);
    }

    // Recomputes the coverage of runs from `first` on, of which those from `unchanged` on have stayed as they were: the
    // first of these whose coverage is right ends it, because then the later ones have theirs, too.
    [[gnu::noinline]] void recompute_coverage(std::int64_t first, std::int64_t unchanged) {
        first = std::max<std::int64_t>(first, 0);
        std::int32_t since = first > 0 ? covered_since(runs_[first - 1]) : -1;
        std::int32_t last = first > 0 ? runs_[first - 1].last() : -2;
        for (std::int64_t i = first; i < runs(); ++i) {
            Run& r = runs_[i];
            if (last + 1 < r.position) since = r.position;
            if (i >= unchanged && covered_since(r) == since) return;
            r.covered_from = since;
            last = r.last();
        }
    }

    // Moves runs from `first` on down by `positions`, and recomputes their coverage.
    void move_down(std::int64_t first, std::int32_t positions) {
        std::int32_t since = first > 0 ? runs_[first - 1].covered_from : -1;
        std::int32_t last = first > 0 ? runs_[first - 1].last() : -2;
        for (std::int64_t i = first; i < runs(); ++i) {
            Run& r = runs_[i];
            r.position -= positions;
            if (last + 1 < r.position) since = r.position;
            r.covered_from = since;
            last = r.last();
        }
    }

    // The first run that ends at `position` or later; runs() if there is none.
    std::int64_t first_ending_at(std::int32_t position) const {
        return runs_.first_not([=](const Run& r) { return r.last() < position; });
    }

    // The first run that starts at `position` or later.
    std::int64_t first_starting_at(std::int32_t position) const {
        return runs_.first_not([=](const Run& r) { return r.position < position; });
    }

    SlidingList<Run> runs_;
    std::int32_t tokens_ = 0;
    std::int32_t forgotten_ = 0;
};

/// A conservative record of changes to a sequence's runs. Tokens that are appended are not recorded.
struct RunChanges {
    Position from{0};              ///< tokens at positions from here on were added, removed or moved
    Position erased_from = to_end; ///< tokens at [erased_from, erased_to) were removed
    Position erased_to{0};

    void clear() { *this = {.from = to_end}; }

    void add(Position position) { from = std::min(from, position); }

    /// `runs` are about to get tokens at `position` and behind.
    void add_inserted(const PositionRuns& runs, Position position) {
        if (!runs.empty() && position <= runs.last()) add(position);
    }

    /// `runs` lost tokens at [begin, end).
    void add_erased(const PositionRuns& runs, Position begin, Position end) {
        const Position next = runs.empty() ? Position{0} : runs.last() + 1; // later tokens may be appended here
        add(next);
        if (next <= begin) return;
        erased_from = std::min(erased_from, begin);
        erased_to = std::max(erased_to, end);
    }
};

} // namespace cellar::detail
