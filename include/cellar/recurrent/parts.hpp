// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/slot_copy.hpp>
#include <cellar/recurrent/members.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace cellar {

namespace detail {

/// One entry for each sequence of each part.
struct PartLists {
    std::vector<Sequence> sequences;
    std::vector<std::int32_t> first_token;
    std::vector<Slot> sources;
    std::vector<Slot> targets;
    std::vector<SlotCopy> fetches;    ///< from the sources to rows 0, 1, ...
    std::vector<SlotCopy> stores;     ///< from there to the targets
    std::vector<std::int32_t> tokens; ///< of the batch, sequence after sequence

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

/// A rectangle of a batch: some of its sequences, each with equally many tokens. Valid while the pass is open.
class Part {
public:
    bool operator==(const Part&) const = default;

    /// Among the parts of the pass.
    std::int32_t index() const { return index_; }
    std::int32_t sequences() const { return sequences_; }
    /// Tokens of each sequence.
    std::int32_t length() const { return length_; }

    Sequence sequence(std::int32_t i) const { return lists_->sequences[entry(i)]; }

    /// Indices into the batch of the tokens of the i-th sequence, by ascending position.
    std::span<const std::int32_t> tokens(std::int32_t i) const {
        const auto first = static_cast<std::size_t>(lists_->first_token[entry(i)]);
        return std::span{lists_->tokens}.subspan(first, static_cast<std::size_t>(length_));
    }

    /// The slot, in a list on the host, that holds each sequence's state before the part. It may be the target: then it
    /// is read before it is written.
    std::span<const Slot> sources() const { return own<Slot>(lists_->sources); }

    /// The slot for each sequence's state after the part. No target is another sequence's source or target.
    std::span<const Slot> targets() const { return own<Slot>(lists_->targets); }

    /// From the sources to rows 0, 1, ..., and from there to the targets: what the memory has to copy.
    std::span<const SlotCopy> fetches() const { return own<SlotCopy>(lists_->fetches); }
    std::span<const SlotCopy> stores() const { return own<SlotCopy>(lists_->stores); }

private:
    friend class Parts;

    std::size_t entry(std::int32_t i) const {
        CELLAR_EXPECTS(i >= 0 && i < sequences_, "part: sequence ", i, ", expected 0 to ", sequences_ - 1);
        return static_cast<std::size_t>(first_ + i);
    }

    template <class T>
    std::span<const T> own(const std::vector<T>& list) const {
        return std::span{list}.subspan(static_cast<std::size_t>(first_), static_cast<std::size_t>(sequences_));
    }

    const detail::PartLists* lists_ = nullptr;
    std::int32_t index_ = 0;
    std::int32_t first_ = 0;
    std::int32_t sequences_ = 0;
    std::int32_t length_ = 0;
};

/// How a batch is split so that every part is a rectangle, and every cut of a sequence the end of one. Each part takes,
/// of all sequences that have tokens left, as many as the one that comes to its next cut first. So there are no more
/// parts than cuts, and no more entries in them than tokens. Nothing allocates but the constructor.
class Parts {
public:
    Parts(std::int32_t sequences, std::int32_t batch) {
        const auto most = static_cast<std::size_t>(batch);
        parts_.reserve(most);
        lists_.sequences.reserve(most);
        lists_.first_token.reserve(most);
        lists_.sources.reserve(most);
        lists_.targets.reserve(most);
        lists_.fetches.reserve(most);
        lists_.stores.reserve(most);
        lists_.tokens.reserve(most);
        cursors_.reserve(static_cast<std::size_t>(std::min(sequences, batch)));
    }
    Parts(const Parts&) = delete; // parts point to the lists
    Parts& operator=(const Parts&) = delete;

    std::span<const Part> all() const { return parts_; }

    void split(const detail::Members& members, std::span<const detail::Cut> cuts) {
        clear();
        lists_.tokens.assign(members.tokens().begin(), members.tokens().end());
        for (const detail::Member& m : members.all()) {
            const detail::Cut* const own = cuts.data() + m.first_cut;
            cursors_.push_back({&m, own, m.source == zero_slot ? own->slot : m.source, 0});
        }
        while (!cursors_.empty()) add_part();
    }

    void clear() {
        parts_.clear();
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
    /// How far a sequence has come.
    struct Cursor {
        const detail::Member* member;
        const detail::Cut* cut; ///< the next
        Slot state;
        std::int32_t done; ///< tokens
    };

    void add_part() {
        std::int32_t length = INT32_MAX;
        for (const Cursor& c : cursors_) length = std::min(length, c.cut->tokens - c.done);
        Part part;
        part.lists_ = &lists_;
        part.index_ = static_cast<std::int32_t>(parts_.size());
        part.first_ = static_cast<std::int32_t>(lists_.sequences.size());
        part.length_ = length;
        for (Cursor& c : cursors_) {
            const detail::Member& m = *c.member;
            lists_.add(m.sequence, m.first_token + c.done, c.state, c.cut->slot, part.sequences_++);
            c.state = c.cut->slot;
            c.done += length;
            if (c.done == c.cut->tokens) ++c.cut;
        }
        parts_.push_back(part);
        std::erase_if(cursors_, [](const Cursor& c) { return c.done == c.member->tokens; });
    }

    std::vector<Part> parts_;
    std::vector<Cursor> cursors_;
    detail::PartLists lists_;
};

} // namespace cellar
