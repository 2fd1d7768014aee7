// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/memory_bytes.hpp>
#include <cellar/base/reserved_list.hpp>
#include <cellar/base/slot_copy.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace cellar {

namespace detail {

class MicroBatches;

/// One entry for each sequence of each micro-batch.
struct MicroBatchLists {
    ReservedList<Sequence> sequences;
    ReservedList<std::int32_t> first_token;
    ReservedList<Slot> sources;
    ReservedList<Slot> targets;
    ReservedList<SlotCopy> fetches;    ///< from the sources to rows 0, 1, ...
    ReservedList<SlotCopy> stores;     ///< from those rows to the targets
    ReservedList<std::int32_t> tokens; ///< indices into the batch, sequence by sequence

    explicit MicroBatchLists(std::size_t batch)
        : sequences{batch},
          first_token{batch},
          sources{batch},
          targets{batch},
          fetches{batch},
          stores{batch},
          tokens{batch} {}
    static constexpr std::int64_t bytes_for(std::int64_t batch) {
        return bytes_of<Sequence>(batch) + 2 * bytes_of<std::int32_t>(batch) + 2 * bytes_of<Slot>(batch)
               + 2 * bytes_of<SlotCopy>(batch);
    }

    void add(Sequence sequence, std::int32_t first, Slot source, Slot target, std::int32_t row) {
        sequences.push_back(sequence);
        first_token.push_back(first);
        sources.push_back(source);
        targets.push_back(target);
        fetches.push_back({source, row});
        stores.push_back({row, target});
    }
};

} // namespace detail

/// A rectangular piece of a batch: some of its sequences, each with the same number of tokens. Valid while the pass is
/// open.
class MicroBatch {
public:
    bool operator==(const MicroBatch&) const = default;

    /// The index among the pass's micro-batches.
    std::int32_t index() const { return index_; }
    std::int32_t sequences() const { return sequences_; }
    /// The number of tokens of each sequence.
    std::int32_t length() const { return length_; }

    /// The i-th sequence, in the order of the rows that `get` gathers.
    Sequence sequence(std::int32_t i, Where where = Where::current()) const {
        return lists_->sequences[entry(i, where)];
    }

    /// The tokens of the i-th sequence, as indices into the batch, by ascending position.
    std::span<const std::int32_t> tokens(std::int32_t i, Where where = Where::current()) const {
        return {lists_->tokens.data() + lists_->first_token[entry(i, where)], static_cast<std::size_t>(length_)};
    }

    /// The slot with each sequence's state before this micro-batch; a list in host memory. It may be the sequence's
    /// target as well: then it must be read before it is written.
    std::span<const Slot> sources() const { return own<Slot>(lists_->sources); }

    /// The slot for each sequence's state after this micro-batch. It is no other sequence's source or target.
    std::span<const Slot> targets() const { return own<Slot>(lists_->targets); }

private:
    friend class detail::MicroBatches;
    template <class Memory>
    friend class RecurrentPass;

    // The copies from the sources to rows 0, 1, ..., and from those rows to the targets.
    std::span<const SlotCopy> fetches() const { return own<SlotCopy>(lists_->fetches); }
    std::span<const SlotCopy> stores() const { return own<SlotCopy>(lists_->stores); }

    std::size_t entry(std::int32_t i, Where where) const {
        CELLAR_EXPECTS_AT(where, i >= 0 && i < sequences_, "micro-batch: sequence ", i, ", expected 0 to ",
                          sequences_ - 1);
        return static_cast<std::size_t>(first_ + i);
    }

    template <class T>
    std::span<const T> own(const detail::ReservedList<T>& list) const {
        return {list.data() + first_, static_cast<std::size_t>(sequences_)};
    }

    const detail::MicroBatchLists* lists_ = nullptr;
    std::int32_t index_ = 0;
    std::int32_t first_ = 0;
    std::int32_t sequences_ = 0;
    std::int32_t length_ = 0;
};

} // namespace cellar
