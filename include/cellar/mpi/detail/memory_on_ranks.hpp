// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/batch.hpp>
#include <cellar/base/batch_builder.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/memory/operations_by_name.hpp>
#include <cellar/memory/two_phase.hpp>

#include <cstdint>
#include <utility>

namespace cellar::detail {

struct NoSnapshot {};
template <class M>
struct SnapshotIn {
    using type = NoSnapshot;
};
template <HasSnapshots M>
struct SnapshotIn<M> {
    using type = SnapshotOf<M>;
};

/// The memory of this rank. `Self::perform` carries its operations out on all ranks.
template <class Self, TwoPhaseMemory M>
class MemoryOnRanks : public OperationsByName<Self, typename SnapshotIn<M>::type> {
public:
    using memory_type = M;

    /// The memory of this rank, to read what this class does not offer.
    const M& memory() const { return memory_; }
    /// The same, to change what is not common to all ranks.
    M& memory() { return memory_; }
    /// Ends the work with the other ranks.
    M release() && { return std::move(memory_); }

    /// From this rank's bookkeeping, which is that of all ranks.
    Position next(Sequence s, Where where = Where::current()) const {
        const Caller caller{where};
        return memory_.next(s);
    }
    /// Blocks until all enqueued work of this rank is done.
    void fence() { memory_.fence(); }
    /// Of this rank.
    std::int64_t bytes() const { return memory_.bytes(); }
    int layers() const { return memory_.layers(); }
    std::int32_t sequences() const { return memory_.sequences(); }

    /// For cellar itself: calls f with the memory of this rank.
    template <class F>
    void for_each_member(F f) const {
        f(memory_);
    }

protected:
    explicit MemoryOnRanks(M&& memory) : memory_{std::move(memory)} {}

    /// The next `count` tokens of s.
    Batch batch_of(Sequence s, std::int32_t count) { return next_tokens(next_tokens_, s, next(s), count); }

    M memory_;

private:
    BatchBuilder next_tokens_; // of a pass that was asked for by their number
};

} // namespace cellar::detail
