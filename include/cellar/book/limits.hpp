// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/window/window.hpp>

#include <cstdint>

namespace cellar {

/// Where the tokens of a batch may go.
enum class Placement {
    scattered,  ///< one run of cells where there is one, else the lowest free cells
    contiguous, ///< always one run; the cache defragments itself when there is none
};

/// How much a cache must hold. Cells: `sequences * capacity`; with a window that forgets, `sequences * (pinned +
/// retention) + batch`; rounded up to the padding.
struct Limits {
    std::int32_t sequences = 1; ///< sequence ids are [0, sequences)
    std::int32_t capacity = 0;  ///< tokens of one sequence; the cells are pooled, so that one may
                                ///< use more while another uses less
    std::int32_t batch = 1;     ///< most tokens of one pass
    std::int32_t padding = 1;   ///< the history starts and ends at multiples of this, as the model's kernels ask
    Placement placement = Placement::scattered;
};

/// The cells of a cache with these limits and a window that was fitted to them.
template <window_policy Window>
constexpr std::int64_t cells_for(const Limits& limits, const Window& fitted) {
    const std::int64_t needed = fitted.cells(limits.sequences, limits.capacity, limits.batch);
    return (needed + limits.padding - 1) / limits.padding * limits.padding;
}

} // namespace cellar
