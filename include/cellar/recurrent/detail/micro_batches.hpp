// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/memory_bytes.hpp>
#include <cellar/base/reserved_list.hpp>
#include <cellar/base/slot_copy.hpp>
#include <cellar/recurrent/detail/batch_sequences.hpp>
#include <cellar/recurrent/micro_batch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace cellar::detail {

/// Splits a batch into rectangles, such that one ends wherever a sequence's state is kept. Each micro-batch takes the
/// same number of tokens from every sequence that has tokens left: as many as the shortest distance to a kept state. So
/// there are at most as many micro-batches as kept states, and their entries are at most as many as tokens. Only the
/// constructor allocates.
class MicroBatches {
public:
    MicroBatches(std::int32_t sequences, std::int32_t batch)
        : micro_batches_{static_cast<std::size_t>(batch)},
          cursors_{static_cast<std::size_t>(std::min(sequences, batch))},
          lists_{static_cast<std::size_t>(batch)} {}
    static constexpr std::int64_t bytes_for(std::int32_t sequences, std::int32_t batch) {
        return bytes_of<MicroBatch>(batch) + bytes_of<Cursor>(std::min(sequences, batch))
               + MicroBatchLists::bytes_for(batch);
    }
    MicroBatches(const MicroBatches&) = delete; // micro-batches point to the lists
    MicroBatches& operator=(const MicroBatches&) = delete;

    std::span<const MicroBatch> all() const { return {micro_batches_.data(), micro_batches_.size()}; }

    void split(const BatchSequences& sequences, const KeptPoint* kept_points) {
        clear();
        lists_.tokens.assign(sequences.tokens());
        for (const BatchSequence& s : sequences.all()) {
            const KeptPoint* const own = kept_points + s.first_kept_point;
            cursors_.push_back({&s, own, s.source == zero_slot ? own->slot : s.source, 0});
        }
        while (!cursors_.empty()) add_micro_batch();
    }

    void clear() {
        micro_batches_.clear();
        cursors_.clear();
        lists_.sequences.clear();
        lists_.first_token.clear();
        lists_.sources.clear();
        lists_.targets.clear();
        lists_.fetches.clear();
        lists_.stores.clear();
        lists_.tokens.clear();
    }

private:
    /// How far a sequence was split.
    struct Cursor {
        const BatchSequence* sequence;
        const KeptPoint* next_kept;
        Slot state;
        std::int32_t done; ///< tokens
    };

    void add_micro_batch() {
        std::int32_t length = INT32_MAX;
        for (const Cursor& c : cursors_) length = std::min(length, c.next_kept->tokens - c.done);
        MicroBatch micro_batch;
        micro_batch.lists_ = &lists_;
        micro_batch.index_ = static_cast<std::int32_t>(micro_batches_.size());
        micro_batch.first_ = static_cast<std::int32_t>(lists_.sequences.size());
        micro_batch.length_ = length;
        for (Cursor& c : cursors_) {
            const BatchSequence& s = *c.sequence;
            lists_.add(s.sequence, s.first_token + c.done, c.state, c.next_kept->slot, micro_batch.sequences_++);
            c.state = c.next_kept->slot;
            c.done += length;
            if (c.done == c.next_kept->tokens) ++c.next_kept;
        }
        micro_batches_.push_back(micro_batch);
        const Cursor* const rest = std::remove_if(cursors_.begin(), cursors_.end(),
                                                  [](const Cursor& c) { return c.done == c.sequence->tokens; });
        cursors_.resize(static_cast<std::size_t>(rest - cursors_.begin()));
    }

    ReservedList<MicroBatch> micro_batches_;
    ReservedList<Cursor> cursors_;
    MicroBatchLists lists_;
};

} // namespace cellar::detail
