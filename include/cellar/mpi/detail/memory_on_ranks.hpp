// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/batch.hpp>
#include <cellar/base/batch_builder.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/result.hpp>
#include <cellar/memory/two_phase.hpp>

#include <cstdint>
#include <utility>

namespace cellar::detail {

/// The memory of this rank, and those of its operations that `Self::perform` carries out on all ranks.
template <class Self, TwoPhaseMemory M>
class MemoryOnRanks {
public:
    using memory_type = M;

    /// The memory of this rank, to read what this class does not offer.
    const M& memory() const { return memory_; }
    /// The same, to change what is not common to all ranks.
    M& memory() { return memory_; }
    /// Ends the work with the other ranks.
    M release() && { return std::move(memory_); }

    /// This and the next ones: as the memory's own, on all ranks.
    Result<void> copy_prefix(Sequence from, Sequence to, Position end, Where where = Where::current()) {
        return self().perform(op::CopyPrefix{from, to, end}, where);
    }
    Result<void> remove(Sequence s, Position begin, Position end, Where where = Where::current()) {
        return self().perform(op::Remove{s, begin, end}, where);
    }
    /// A memory that rotates no keys ignores `rotate_by`.
    Result<void> remove(Sequence s, Position begin, Position end, RotateBy rotate_by, Where where = Where::current()) {
        return self().perform(op::Remove{s, begin, end, rotate_by}, where);
    }
    Result<void> rewind(Sequence s, Position to, Where where = Where::current()) requires(Performs<M, op::Rewind>) {
        return self().perform(op::Rewind{s, to}, where);
    }
    /// A memory without schedules ignores this and the next, and one without cells the two after these.
    Result<void> schedule(Sequence s, Position p, Where where = Where::current()) {
        return self().perform(op::Schedule{s, p}, where);
    }
    void unschedule(Sequence s, Position p, Where where = Where::current()) {
        self().perform(op::Unschedule{s, p}, where).value();
    }
    Result<void> promise(Sequence s, std::int32_t tokens, Where where = Where::current()) {
        return self().perform(op::Promise{s, tokens}, where);
    }
    Result<void> form_pages(Sequence s, std::int32_t page_size, Where where = Where::current()) {
        return self().perform(op::FormPages{s, page_size}, where);
    }

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

protected:
    explicit MemoryOnRanks(M&& memory) : memory_{std::move(memory)} {}

    /// The next `count` tokens of s.
    Batch batch_of(Sequence s, std::int32_t count) { return next_tokens(next_tokens_, s, next(s), count); }

    M memory_;

private:
    Self& self() { return static_cast<Self&>(*this); }

    BatchBuilder next_tokens_; // of a pass that was asked for by their number
};

} // namespace cellar::detail
