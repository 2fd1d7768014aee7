// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/named_only.hpp>
#include <cellar/base/slot_copy.hpp>

#include <algorithm>
#include <cstdint>

namespace cellar {

/// What happens to a batch whose sequences have different numbers of tokens.
enum class Unequal {
    split,  ///< it is split into several micro-batches, each with equal numbers
    refuse, ///< `begin` refuses with `unequal_batch`
};

/// Which checkpoints stay when there are too many.
enum class CheckpointPolicy {
    /// Those without which the most positions would have to be computed again; among equals, the newest.
    spread,
    newest, ///< those that were made last
};

/// How much a recurrent memory holds. It has slots for
/// - the states that sequences keep: sequences * (rollback + 1);
/// - the states that a pass writes: as many again, or `batch` if that is less;
/// - checkpoints, if there are any: checkpoints + max(1, checkpoints / 3);
/// - snapshots in place: one for each of `snapshots`.
struct StateLimits {
    NamedOnly named_only{};
    std::int32_t sequences = 1; ///< sequences are numbered 0 to sequences - 1
    std::int32_t batch = 0;     ///< tokens of one pass at most; 0: 512, or one for each sequence if these are more
    std::int32_t rollback = 0;  ///< how many of a sequence's last tokens can be taken back; costs as many micro-batches
    /// States kept as checkpoints, of all sequences together. Each takes `RecurrentMemory::bytes_per_sequence`. One
    /// pass makes as many as there are free slots, the newest of each sequence first: at least max(1, checkpoints / 3).
    std::int32_t checkpoints = 0;
    CheckpointPolicy checkpoint_policy = CheckpointPolicy::spread;
    std::int32_t checkpoint_interval = 0; ///< a checkpoint at every multiple of this position; 0: no automatic ones
    std::int32_t snapshots = 0; ///< in place at a time, at most; each takes a slot, also that of an empty sequence
    Unequal unequal = Unequal::split;
};

namespace detail {

/// The same limits, with the batch filled in.
constexpr StateLimits resolved_limits(StateLimits limits) {
    if (limits.batch == 0) limits.batch = std::max(512, limits.sequences);
    return limits;
}

/// The slots for checkpoints: those that are kept, and room for those that a pass writes.
constexpr std::int64_t checkpoint_slots(const StateLimits& limits) {
    const std::int64_t kept = limits.checkpoints;
    return kept == 0 ? 0 : kept + std::max<std::int64_t>(1, kept / 3);
}

/// The slots of a memory with these limits, which are checked.
constexpr Slot slot_count(const StateLimits& limits) {
    CELLAR_EXPECTS(limits.sequences > 0, "limits: ", limits.sequences, " sequences, expected at least 1");
    CELLAR_EXPECTS(limits.batch > 0, "limits: a batch of ", limits.batch, ", expected 0 or more");
    CELLAR_EXPECTS(limits.rollback >= 0, "limits: a rollback of ", limits.rollback, ", expected 0 or more");
    CELLAR_EXPECTS(limits.checkpoint_interval >= 0, "limits: a checkpoint_interval of ", limits.checkpoint_interval,
                   ", expected 0 or more");
    CELLAR_EXPECTS(limits.snapshots >= 0, "limits: ", limits.snapshots, " snapshots, expected 0 or more");
    CELLAR_EXPECTS(limits.checkpoints >= 0, "limits: ", limits.checkpoints, " checkpoints, expected 0 or more");
    CELLAR_EXPECTS(limits.checkpoint_interval == 0 || limits.checkpoints > 0, "limits: a checkpoint_interval of ",
                   limits.checkpoint_interval, " and no checkpoints, expected at least 1");
    const std::int64_t kept = std::int64_t{limits.sequences} * (std::int64_t{limits.rollback} + 1);
    const std::int64_t slots =
        kept + std::min<std::int64_t>(limits.batch, kept) + checkpoint_slots(limits) + limits.snapshots;
    CELLAR_EXPECTS(slots <= INT32_MAX, "limits: ", slots, " slots, expected at most ", INT32_MAX);
    return static_cast<Slot>(slots);
}

} // namespace detail

} // namespace cellar
