// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cstdint>

namespace cellar {

/// What becomes of a batch in which the sequences have different numbers of tokens.
enum class Unequal {
    split,  ///< into several parts, in each of which all have equally many
    refuse, ///< `begin` refuses with `unequal_batch`
};

/// How much a recurrent memory must hold. Slots: `sequences * (rollback + 1)` for what the sequences keep, as many again
/// or `batch`, if that is less, for what a pass writes, and those of the checkpoints.
struct StateLimits {
    std::int32_t sequences = 1;           ///< sequence ids are [0, sequences)
    std::int32_t batch = 1;               ///< most tokens of one pass
    std::int32_t rollback = 0;            ///< how many of the last tokens can be taken back; as many more parts a pass
    std::int32_t checkpoint_interval = 0; ///< a checkpoint at every multiple of this position; 0: none of themselves
    std::int64_t checkpoint_bytes = 0;    ///< for checkpoints; a quarter of it, at least one state, is kept free for
                                          ///< those that a pass writes
    Unequal unequal = Unequal::split;
};

} // namespace cellar
