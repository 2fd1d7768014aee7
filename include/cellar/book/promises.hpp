// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/batch.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/trivial_list.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace cellar::detail {

/// Free cells that are set aside for single sequences. It only counts: which cells these will be is not decided.
///
/// A promise has a size. The cells that its sequence takes come out of it, and those that the sequence gives up go back
/// to it, up to its size.
class Promises {
public:
    explicit Promises(std::int32_t sequences) : sequences_{sequences} {}

    /// The cells of all promises. O(1).
    std::int32_t cells() const { return cells_; }
    /// The cells that are set aside for s. O(1).
    std::int32_t cells(Sequence s) const { return open_ == 0 ? 0 : std::max(one(s).left, 0); }

    /// Room for a promise. Returns true if it allocated.
    bool reserve() {
        if (!all_.empty()) return false;
        all_.resize(static_cast<std::size_t>(sequences_));
        return true;
    }
    /// Takes the place of an earlier promise for s. Of 0 cells: ends it. Needs room, unless it ends one.
    void make(Sequence s, std::int32_t cells) noexcept {
        if (all_.empty()) return;
        Promise& promise = one(s);
        open_ += (cells > 0 ? 1 : 0) - (promise.size > 0 ? 1 : 0);
        cells_ += cells - std::max(promise.left, 0);
        promise = {cells, cells};
    }

    /// s takes n cells.
    void take(Sequence s, std::int32_t n) noexcept {
        if (open_ != 0) add(one(s), -n);
    }
    /// The same for each token of a batch that is stored.
    void take(const Batch& batch) noexcept {
        if (open_ != 0) for_each_stored(batch, [this](Promise& promise) { add(promise, -1); });
    }
    /// s gives up n cells, which nothing else owns.
    void give(Sequence s, std::int32_t n) noexcept {
        if (open_ != 0) add(one(s), n);
    }

    /// How many cells the batch takes that were not promised to its sequences. O(tokens). Notes in the promises what it
    /// has counted, and takes it back.
    std::int32_t beyond(const Batch& batch) noexcept {
        std::int32_t promised = 0;
        for_each_stored(batch, [&](Promise& promise) { promised += promise.left-- > 0 ? 1 : 0; });
        for_each_stored(batch, [](Promise& promise) { ++promise.left; });
        return batch.stored_tokens() - promised;
    }

private:
    struct Promise {
        std::int32_t size = 0;
        std::int32_t left = 0; ///< negative once s has taken more than its size
    };

    Promise& one(Sequence s) { return all_[static_cast<std::size_t>(s.value)]; }
    const Promise& one(Sequence s) const { return all_[static_cast<std::size_t>(s.value)]; }

    void add(Promise& promise, std::int32_t n) noexcept {
        if (promise.size == 0) return;
        cells_ -= std::max(promise.left, 0);
        promise.left = std::min(promise.left + n, promise.size);
        cells_ += std::max(promise.left, 0);
    }

    template <class F>
    void for_each_stored(const Batch& batch, F f) noexcept {
        if (batch.stored.empty()) {
            for (const Sequence s : batch.sequences) f(one(s));
            return;
        }
        for (std::size_t i = 0; i < batch.sequences.size(); ++i)
            if (batch.stored[i] != 0) f(one(batch.sequences[i]));
    }

    std::int32_t sequences_;
    TrivialList<Promise> all_; // of each sequence; empty before the first one
    std::int32_t cells_ = 0;   // of all
    std::int32_t open_ = 0;    // promises of more than 0 cells
};

} // namespace cellar::detail
