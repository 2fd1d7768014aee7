// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/batch.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/digest.hpp>
#include <cellar/base/expect_batch.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/memory_bytes.hpp>
#include <cellar/base/reserved_list.hpp>
#include <cellar/base/result.hpp>
#include <cellar/base/slot_copy.hpp>
#include <cellar/recurrent/detail/batch_sequences.hpp>
#include <cellar/recurrent/detail/micro_batches.hpp>
#include <cellar/recurrent/detail/state_table.hpp>
#include <cellar/recurrent/state_limits.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace cellar::detail {

/// The bookkeeping of a recurrent memory: passes and rollback. `StateTable` says which sequence keeps which state; the
/// book decides when that changes. It answers in slots and micro-batches, and knows neither tensors nor memory.
///
/// A state is never overwritten while it may be needed: a pass reads the slots that sequences have, and writes fresh
/// ones. `commit` keeps the fresh ones, `drop` gives them back.
///
/// Slots cannot run out. Sequences keep their states at the last rollback + 1 positions, so at most sequences *
/// (rollback + 1) slots, and the slots of checkpoints and snapshots. A pass takes one slot for each state it will keep:
/// at most rollback + 1 per sequence but no more than its tokens, plus the free checkpoint slots.
///
/// Costs, with n tokens in the batch: `prepare_open` is O(n), amortised; `open` and `drop` are O(n); `commit` adds what
/// `StateTable` says about `advance` and `trim`.
class StateBook {
public:
    explicit StateBook(const StateLimits& limits)
        : table_{limits, slot_count(limits)},
          batch_sequences_{limits.sequences, limits.batch},
          micro_batches_{limits.sequences, limits.batch},
          choosing_{static_cast<std::size_t>(std::min(limits.sequences, limits.batch))},
          kept_points_{static_cast<std::size_t>(limits.batch)},
          starts_{static_cast<std::size_t>(std::min(limits.sequences, limits.batch))} {}
    /// What the constructor allocates.
    static constexpr std::int64_t bytes_for(const StateLimits& limits) {
        const std::int32_t in_batch = std::min(limits.sequences, limits.batch);
        return StateTable::bytes_for(limits, slot_count(limits))
               + BatchSequences::bytes_for(limits.sequences, limits.batch)
               + MicroBatches::bytes_for(limits.sequences, limits.batch) + bytes_of<BatchSequence*>(in_batch)
               + bytes_of<KeptPoint>(limits.batch) + bytes_of<SlotCopy>(in_batch);
    }

    const StateLimits& limits() const { return table_.limits(); }
    const StateTable& table() const { return table_; }
    StateTable& table() { return table_; }
    std::uint64_t hash() const {
        const StateLimits& l = limits();
        Digest digest;
        digest.add(table_.hash()).add(l.sequences).add(l.batch).add(l.rollback).add(l.checkpoints);
        digest.add(l.checkpoint_interval).add(l.snapshots).add(static_cast<std::int32_t>(l.checkpoint_policy));
        return digest.add(static_cast<std::int32_t>(l.unequal)).value();
    }

    std::span<const MicroBatch> micro_batches() const { return micro_batches_.all(); }

    /// Where sequences without a state start: copies from `start_source` to their slots, before the open pass reads
    /// them.
    std::span<const SlotCopy> starts() const { return {starts_.data(), starts_.size()}; }
    void set_start_source(Slot source) { start_source_ = source; }

    /// Checks whether a pass can be opened for this batch, chooses the states that it will keep, and reserves room for
    /// them. Returns true if it allocated, which it does not do before it refuses. What it leaves without `open` does
    /// not count, as after a refusal.
    Result<bool> prepare_open(const Batch& batch) {
        expect_batch(batch, limits().sequences);
        CELLAR_EXPECTS(batch.stored_tokens() == batch.tokens(), "begin: ", batch.stored_tokens(), " of ",
                       batch.tokens(), " tokens are stored, expected all, because a state depends on each");
        if (batch.tokens() > limits().batch) return batch_too_long(batch.tokens(), limits().batch);
        if (!batch.parents.empty() && has_branches(batch)) return Reason::cannot_branch;
        kept_points_.clear();
        const auto next = [&](Sequence s) { return table_.states(s).next(); };
        if (const Result<void> grouped = batch_sequences_.group(batch, next); !grouped) return grouped.error();
        if (limits().unequal == Unequal::refuse)
            if (const Result<void> equal = check_equal(); !equal) return equal.error();
        choose_checkpoints();
        bool allocated = false;
        for (BatchSequence& s : batch_sequences_.all()) {
            add_kept_points(s);
            allocated |= table_.reserve(s.sequence, s.kept_points);
        }
        return allocated;
    }

    /// Opens the pass that was prepared, with a fresh slot for each state that it will keep.
    void open() noexcept {
        for (KeptPoint& point : kept_points_) point.slot = table_.slots().take();
        for (BatchSequence& s : batch_sequences_.all()) {
            const auto& states = table_.states(s.sequence).all();
            if (states.empty()) {
                starts_.push_back({start_source_, kept_points_of(s)->slot});
            } else {
                s.source = states.back().slot;
            }
        }
        micro_batches_.split(batch_sequences_, kept_points_.data());
    }

    /// Opens a pass of `tokens` tokens, spread over all sequences, that keeps nothing. Its states lie in free slots.
    /// `drop` ends it.
    void reserve(std::int32_t tokens) {
        kept_points_.clear();
        batch_sequences_.pretend(tokens, limits().sequences);
        for (BatchSequence& s : batch_sequences_.all()) {
            s.first_kept_point = static_cast<std::int32_t>(kept_points_.size());
            s.kept_points = 1;
            kept_points_.push_back({s.next, s.tokens, table_.slots().take(), false});
        }
        micro_batches_.split(batch_sequences_, kept_points_.data());
    }

    void commit() noexcept {
        for (const BatchSequence& s : batch_sequences_.all()) table_.advance(s, kept_points_of(s));
        if (has_checkpoint()) table_.trim();
        clear();
    }

    /// Undoes the open pass. Slots go back in the order in which the next pass takes the same ones.
    void drop() noexcept {
        for (std::size_t i = kept_points_.size(); i-- > 0;) table_.slots().give_back(kept_points_[i].slot);
        clear();
    }

private:
    Result<void> check_equal() const {
        const auto& all = batch_sequences_.all();
        const auto by_tokens = [](const BatchSequence& a, const BatchSequence& b) { return a.tokens < b.tokens; };
        const auto [fewest, most] = std::minmax_element(all.begin(), all.end(), by_tokens);
        if (all.empty() || fewest->tokens == most->tokens) return {};
        return Refusal{.reason = Reason::unequal_batch, .needed = most->tokens, .available = fewest->tokens};
    }

    /// Chooses as many of the wanted checkpoints as there is room for: in turn, each sequence's newest one not chosen
    /// yet. A round visits only sequences that got one in the round before, so that all rounds are O(n).
    void choose_checkpoints() {
        choosing_.clear();
        Slot room = table_.checkpoints_free();
        if (room == 0) return;
        auto& all = batch_sequences_.all();
        std::for_each(all.begin(), all.end(), [&](BatchSequence& s) { choosing_.push_back(&s); });
        while (!choosing_.empty()) {
            std::size_t left = 0;
            for (BatchSequence* const s : choosing_) {
                if (room == 0) return;
                if (!choose_checkpoint(*s)) continue;
                choosing_[left++] = s;
                --room;
            }
            choosing_.resize(left);
        }
    }

    /// False if no other checkpoint of s is wanted.
    bool choose_checkpoint(BatchSequence& s) const {
        const bool is_first = s.oldest_checkpoint == INT64_MAX;
        const auto end = is_first ? s.next.value : static_cast<std::int32_t>(s.oldest_checkpoint) - 1;
        const Position wanted = table_.wanted_up_to(s.sequence, Position{end});
        if (wanted <= s.from) return false;
        s.oldest_checkpoint = wanted.value;
        return true;
    }

    /// Adds the states of a sequence that are kept, in ascending order: those within the rollback, and checkpoints.
    void add_kept_points(BatchSequence& s) {
        s.first_kept_point = static_cast<std::int32_t>(kept_points_.size());
        const Position oldest = std::max(s.next - limits().rollback, s.from + 1);
        for (Position p = s.next; p > s.from;) {
            kept_points_.push_back({p, batch_sequences_.tokens_before(s, p), 0, is_checkpoint(s, p)});
            const bool has_older = p.value > s.oldest_checkpoint;
            p = std::max(p > oldest ? p - 1 : s.from, has_older ? table_.wanted_up_to(s.sequence, p - 1) : s.from);
        }
        std::reverse(kept_points_.begin() + s.first_kept_point, kept_points_.end());
        s.kept_points = static_cast<std::int32_t>(kept_points_.size()) - s.first_kept_point;
    }

    bool is_checkpoint(const BatchSequence& s, Position p) const {
        return p.value >= s.oldest_checkpoint && table_.wanted_up_to(s.sequence, p) == p;
    }

    // s.kept_points of them.
    const KeptPoint* kept_points_of(const BatchSequence& s) const { return kept_points_.data() + s.first_kept_point; }

    bool has_checkpoint() const {
        return std::any_of(kept_points_.begin(), kept_points_.end(),
                           [](const KeptPoint& point) { return point.is_checkpoint; });
    }

    void clear() {
        batch_sequences_.clear();
        micro_batches_.clear();
        kept_points_.clear();
        starts_.clear();
    }

    StateTable table_;
    BatchSequences batch_sequences_;
    MicroBatches micro_batches_;
    ReservedList<BatchSequence*> choosing_; // scratch memory of choose_checkpoints
    ReservedList<KeptPoint> kept_points_;   // sequence by sequence, in ascending order
    ReservedList<SlotCopy> starts_;
    Slot start_source_ = zero_slot;
};

} // namespace cellar::detail
