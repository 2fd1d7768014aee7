// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/batch.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/expect_batch.hpp>
#include <cellar/base/plan.hpp>
#include <cellar/base/result.hpp>
#include <cellar/book/cell_set.hpp>
#include <cellar/book/ledger.hpp>
#include <cellar/book/limits.hpp>
#include <cellar/book/mask.hpp>
#include <cellar/book/open_pass.hpp>
#include <cellar/book/words.hpp>
#include <cellar/window/window.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace cellar {

/// The bookkeeping of a cache: passes, retention, visibility. It answers in integers and plans; it knows neither
/// elements nor memory.
///
/// Costs, with n tokens in the batch, m positions of one sequence, C cells: `begin`, `commit` and `drop` O(n log C)
/// amortised, and for tokens in front of others of their sequence the runs of these, each; `remove` O(m / 64) words where cells lie together, O(m) at worst; `copy_prefix` O(runs of both + words
/// that hold their cells + C / 4096); `can_resume` O(log m); the history O(C / 4096) at worst.
template <window_policy Window>
class Book {
public:
    Book(const Limits& limits, const Window& window)
        : limits_{checked(limits)},
          window_{window.fitted(limits.sequences, limits.capacity)},
          ledger_{count_cells(), limits.sequences, share(), window_.pinned()},
          pass_{limits.batch} {}

    const Limits& limits() const { return limits_; }
    const Window& window() const { return window_; }
    const Ledger& ledger() const { return ledger_; }
    Ledger& ledger() { return ledger_; }
    const detail::OpenPass& pass() const { return pass_; }

    /// True if every position below p that a query at p would see is still kept. O(log m).
    bool can_resume(Sequence s, Position p) const {
        CELLAR_EXPECTS(p.value >= 0, "can_resume: position ", p, ", expected 0 or more");
        const PositionRuns& runs = ledger_.record(s).runs;
        const Position pinned{window_.pinned()};
        return runs.covers({0}, std::min(pinned, p)) && runs.covers(std::max(pinned, window_.oldest_visible(p)), p);
    }

    /// The largest q <= p with can_resume(s, q), for windows that slide or begin anew in chunks; a window that does both
    /// may be told a smaller one. O(log m) for each gap that it goes back over.
    Position resumable_prefix(Sequence s, Position p) const {
        CELLAR_EXPECTS(p.value >= 0, "resumable_prefix: position ", p, ", expected 0 or more");
        const PositionRuns& runs = ledger_.record(s).runs;
        p = runs.covers({0}, std::min(p, Position{window_.pinned()})) ? p : runs.covered_to();
        while (!can_resume(s, p)) {
            // What a query at p misses, every other one behind it misses too. In a gap only those miss nothing that see
            // nothing below themselves: where a chunk begins, which is what the others in it see first.
            const Position covered = runs.covered_from(p);
            const Position chunk = window_.oldest_visible(p);
            const bool begins = window_.oldest_visible(chunk) == chunk;
            p = covered < p ? covered - 1 : std::max(begins ? chunk : Position{0}, runs.end_before(p));
        }
        return p;
    }

    /// True if n tokens would fit, but not side by side.
    bool is_too_scattered_for(std::int32_t n) { return ledger_.is_too_scattered_for(n); }

    /// Opens a pass: the batch's tokens get cells and belong to their sequences until `commit` or `drop`.
    Result<void> begin(const Batch& batch) {
        if (const Result<void> prepared = prepare_begin(batch); !prepared) return prepared;
        open(batch);
        return {};
    }

    /// Whether a pass can be opened for this batch, or why not; makes room for it. O(n).
    Result<void> prepare_begin(const Batch& batch) {
        detail::expect_batch(batch, ledger_.sequences());
        if (batch.tokens() > limits_.batch) return Refusal::batch_too_long;
        if (batch.tokens() > ledger_.free().count()) return Refusal::full;
        make_room(batch);
        return {};
    }

    /// Room in the runs of the batch's sequences.
    void make_room(const Batch& batch) {
        for (const Sequence s : batch.sequences) ledger_.known(s).runs.reserve(2 * std::int64_t{batch.tokens()} + 1);
    }

    /// Opens the pass that was prepared.
    void open(const Batch& batch) noexcept {
        pass_.start(batch);
        ledger_.take(batch.tokens(), pass_.cells);
        enter_tokens();
    }

    /// Whether a pass that only looks can be opened for this batch: its tokens get no cells.
    Result<void> prepare_look(const Batch& batch) const {
        detail::expect_batch(batch, ledger_.sequences());
        if (batch.tokens() > limits_.batch) return Refusal::batch_too_long;
        return {};
    }

    /// Opens the pass that was prepared. Close it by `drop`.
    void look(const Batch& batch) noexcept {
        pass_.start(batch);
        enter_tokens();
    }

    /// The tokens of the open pass stay, and what fell out of their sequences' retention is forgotten.
    void commit() noexcept {
        for (const Sequence s : pass_.members) {
            const Position kept = window_.oldest_kept(ledger_.known(s).runs.last());
            if (window_.pinned() < kept.value) ledger_.forget(s, {window_.pinned()}, kept);
        }
        close();
    }

    /// The open pass never happened.
    void drop() noexcept {
        for (std::size_t i = pass_.cells.size(); i-- > 0;)
            ledger_.take_back(pass_.sequences[i], pass_.positions[i], pass_.cells[i]);
        close();
    }

    /// Writes the mask of the open pass, [tokens, history], last index fastest.
    template <class T>
    void write_mask(T* mask) {
        visit_rows([&](std::int64_t token, const CellSet& visible) {
            write_mask_row(visible, pass_.history, mask + token * pass_.history.count);
        });
    }

    /// The same as bits, a row of whole words for each token.
    void write_mask_bits(std::uint64_t* bits) {
        const std::int64_t words = detail::words_for(pass_.history.count);
        visit_rows([&](std::int64_t token, const CellSet& visible) {
            cellar::write_mask_bits(visible, pass_.history, bits + token * words);
        });
    }

    /// See `Ledger`; each verb in one.
    void copy_prefix(Sequence from, Sequence to, std::int32_t length) {
        ledger_.prepare_copy_prefix(from, to, length);
        ledger_.finish_copy_prefix(from, to, length);
    }
    Result<Plan> remove(Sequence s, Position begin, Position end, bool can_shift) {
        detail::Removal removal;
        const MovedKeys keys = can_shift ? MovedKeys::turned : MovedKeys::refused;
        if (const Result<void> prepared = ledger_.prepare_remove(s, begin, end, keys, removal); !prepared)
            return prepared.error();
        ledger_.finish_remove(removal);
        return std::move(removal.plan);
    }
    Plan defragment() {
        const Defragmentation defragmentation = ledger_.prepare_defragment();
        ledger_.finish_defragment(defragmentation);
        return defragmentation.plan();
    }

private:
    static const Limits& checked(const Limits& limits) {
        CELLAR_EXPECTS(limits.sequences > 0, "limits: ", limits.sequences, " sequences, expected at least 1");
        CELLAR_EXPECTS(limits.capacity > 0, "limits: a capacity of ", limits.capacity, ", expected at least 1");
        CELLAR_EXPECTS(limits.batch > 0, "limits: a batch of ", limits.batch, ", expected at least 1");
        CELLAR_EXPECTS(limits.padding > 0, "limits: a padding of ", limits.padding, ", expected at least 1");
        return limits;
    }

    Cell count_cells() const {
        const std::int64_t padded = cells_for(limits_, window_);
        CELLAR_EXPECTS(padded <= INT32_MAX, "limits: ", padded, " cells, expected at most ", INT32_MAX);
        return static_cast<Cell>(padded);
    }

    // The runs that one sequence is planned to have at most, with the room that a pass asks for.
    std::int64_t share() const {
        return window_.cells(1, limits_.capacity, limits_.batch) + 2 * std::int64_t{limits_.batch} + 2;
    }

    Position seen_from(std::size_t token) const { return window_.oldest_visible(pass_.positions[token]); }
    Position seen_to(std::size_t token) const {
        return pass_.sees_all(token) ? end_of_time : pass_.positions[token] + 1;
    }

    /// Calls `visit(token, cells that it sees)` for each token.
    template <class Visit>
    void visit_rows(Visit visit) {
        for (std::size_t i = 0; i < pass_.positions.size(); ++i) {
            detail::SequenceRecord& r = ledger_.known(pass_.sequences[i]);
            r.visible.slide(r.runs, seen_from(i), seen_to(i));
            visit(static_cast<std::int64_t>(i), r.visible.cells());
        }
    }

    // Gives the tokens to their sequences, if they got cells, and finds the cells that they see. What some see may be
    // found before all are entered: every token sees itself.
    void enter_tokens() {
        const Sequence* const sequences = pass_.sequences.data();
        const Position* const positions = pass_.positions.data();
        const Cell* const cells = pass_.cells.data();
        const bool are_simple = !pass_.cells.empty() && pass_.bidirectional.empty();
        const std::size_t n = pass_.sequences.size();
        CellBounds seen;
        for (std::size_t i = 0, end = 0; i < n; i = end) {
            for (end = i + 1; end < n && sequences[end] == sequences[i];) ++end;
            detail::SequenceRecord& r = ledger_.known(sequences[i]);
            if (are_simple && end - i == 1 && enter_next(r, positions[i], cells[i])) {
                seen.include(r.visible.bounds());
            } else {
                seen = enter_some(r, i, end, seen);
            }
            if (r.in_pass) continue;
            r.in_pass = true;
            pass_.members.push_back(sequences[i]);
        }
        if (seen.empty()) return;
        const Cell first = seen.lowest / limits_.padding * limits_.padding;
        pass_.history = {first, (seen.highest - first + limits_.padding) / limits_.padding * limits_.padding};
    }

    // A decode step has nothing but these: a token that follows the last one of its sequence, and sees as much further.
    // False, and nothing has changed, if it is something else.
    bool enter_next(detail::SequenceRecord& r, Position position, Cell cell) const {
        const Position from = window_.oldest_visible(position);
        if (!r.runs.ends_before(position) || !r.visible.follow(r.runs, position, cell, from)) return false;
        r.runs.append(position, cell);
        return true;
    }

    // Tokens [i, end) of one sequence. `seen` with what they see.
    [[gnu::noinline]] CellBounds enter_some(detail::SequenceRecord& r, std::size_t i, std::size_t end,
                                            CellBounds seen) {
        if (!pass_.cells.empty())
            Ledger::enter(r, std::span{pass_.positions}.subspan(i, end - i),
                          std::span{pass_.cells}.subspan(i, end - i));
        for_each_sight(i, end, [&](Position from, Position to) {
            r.visible.slide(r.runs, from, to);
            seen.include(r.visible.bounds());
        });
        return seen;
    }

    // Calls `visit(from, to)` with the positions that the same tokens see, in one go as far as they hang together.
    template <class Visit>
    void for_each_sight(std::size_t i, std::size_t end, Visit visit) const {
        while (i < end) {
            Position from = seen_from(i);
            Position to = seen_to(i);
            for (++i; i < end && seen_from(i) <= to && from <= seen_to(i); ++i) {
                from = std::min(from, seen_from(i));
                to = std::max(to, seen_to(i));
            }
            visit(from, to);
        }
    }

    void close() {
        for (const Sequence s : pass_.members) ledger_.known(s).in_pass = false;
        pass_.open = false;
    }

    Limits limits_;
    Window window_;
    Ledger ledger_;
    detail::OpenPass pass_;
};

} // namespace cellar
