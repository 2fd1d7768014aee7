// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/batch.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/result.hpp>

#include <cstddef>
#include <cstdint>

namespace cellar::detail {

[[gnu::cold]] inline Refusal not_next(Sequence s, Position expected, Position given) {
    return {.reason = Reason::not_next,
            .sequence = s,
            .expected = expected,
            .needed = given.value,
            .available = expected.value};
}

/// `possible`: the last position up to `asked` where s can go on; -1 if it is not known.
[[gnu::cold]] inline Refusal cannot_resume(Sequence s, Position asked, Position possible = Position{-1}) {
    return {.reason = Reason::cannot_resume, .sequence = s, .needed = asked.value, .available = possible.value};
}

/// Checks that the tokens of a batch follow their sequences' last ones.
class ConsecutiveTokens {
public:
    /// O(tokens). In the batch, a token has the position of the one before in its sequence, or the next. `record(s)`
    /// has members of this check: `batch`, 0 at first, and `expected`, in the end the position after the last token.
    /// `next(record)` is where a sequence goes on; `can_resume(s, p)`: whether it can go on there.
    template <class Record, class Next, class CanResume>
    Result<void> check(const Batch& batch, std::int32_t sequences, Record record, Next next, CanResume can_resume) {
        if (++batches_ == 0) { // counted through all numbers
            for (std::int32_t s = 0; s < sequences; ++s) record(Sequence{s}).batch = 0;
            batches_ = 1;
        }
        for (std::size_t i = 0; i < batch.positions.size(); ++i) {
            const Sequence s = batch.sequences[i];
            const Position position = batch.positions[i];
            auto& r = record(s);
            if (r.batch == batches_) { // not the sequence's first token in the batch
                if (position != r.expected && position + 1 != r.expected) return not_next(s, r.expected, position);
            } else {
                const Position expected = next(r);
                if (position != expected) return not_next(s, expected, position);
                if (!can_resume(s, position)) return cannot_resume(s, position);
                r.batch = batches_;
            }
            r.expected = position + 1;
        }
        return {};
    }

private:
    std::uint32_t batches_ = 0; // counts the calls
};

} // namespace cellar::detail
