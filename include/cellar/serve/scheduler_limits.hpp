// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cstdint>

namespace cellar::serve {

/// When a waiting request may begin.
enum class Admit {
    /// When its tokens fit, besides what the running requests need next. All cells are used; when they run out,
    /// requests are put back. A sequence whose window forgets is given room for the window and a batch, and `spare`
    /// has no effect.
    when_it_fits,
    /// When its longest answer fits: the memory promises room for it. Nobody is put back, unless it forgets tokens.
    with_promise,
};

/// What a scheduler may use of its memory, and when requests begin.
struct SchedulerLimits {
    std::int32_t sequences = 1;       ///< that run at a time: those of the memory from 0 on, no more than `batch`
    std::int32_t batch = 0;           ///< tokens of a step at most; 0: as the memory's, or 512 if it does not say
    std::int32_t context = INT32_MAX; ///< computed tokens of one request at most: no more than the memory holds of one
    Admit admit = Admit::when_it_fits;
    /// Of `when_it_fits`: so many cells for each request must be left when another one begins. Then one that was just
    /// put back does not return at once.
    std::int32_t spare = 1;
};

} // namespace cellar::serve
