// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/batch.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/named_only.hpp>
#include <cellar/element/format_codec.hpp>
#include <cellar/layout/layout.hpp>
#include <cellar/window/window.hpp>

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace cellar {

/// Where the tokens of a batch may go. A block is 64 neighbouring cells, the first of which is a multiple of 64.
enum class Placement {
    /// A sequence goes on in the cell after its last token's. At the end of a block, and where that cell is taken, it
    /// goes on in a block that is wholly free. So each sequence is runs of 64 cells or more, however many decode
    /// together: attention, `copy_prefix`, `remove` and `defragment` cost as much as for prompts. If no block is wholly
    /// free, it takes the second half of the longest free run.
    blocks,
    /// The tokens of a batch get one run of neighbouring cells if there is one, else the lowest free cells. Sequences
    /// that decode together are runs of one cell. Histories are as short as possible, so choose it if a kernel reads
    /// views of a history, and if many sequences are much shorter than a block.
    scattered,
    /// The tokens of a batch always get one run; the cache defragments itself if there is none. Choose it if what
    /// writes a batch's keys and values needs neighbouring cells.
    contiguous,
};

/// How much a cache holds. All sequences share one pool of cells; a cell holds one token.
struct CacheLimits {
    NamedOnly named_only{};
    std::int32_t sequences = 1; ///< sequences are numbered 0 to sequences - 1
    /// The length that one sequence is planned to have. It sizes the pool and is not enforced: a sequence may use more
    /// cells while others use fewer. 0: as long as the pool.
    std::int32_t capacity = 0;
    /// The pool: the cells of all sequences together, rounded up to the padding. 0: enough for every sequence to reach
    /// its capacity, which is sequences * capacity, or with a window that forgets, sequences * (sinks + retention) +
    /// batch. A smaller pool is allowed; then `begin` may refuse with `full`.
    std::int32_t cells = 0;
    /// Cells that have memory from the start. The others get it when they are needed: the keys and values move to
    /// memory that is larger by half or more, so their addresses change in operations that need cells. The larger
    /// memory stays if the operation then throws `std::bad_alloc`, or is refused by a later member of a hybrid; nothing
    /// else has changed then. 0: all cells.
    std::int32_t initial_cells = 0;
    /// Tokens of one pass at most. 0: 512, or one for each sequence if these are more, but no more than all sequences
    /// are planned to have. Each takes some 100 bytes, and a cell if the window forgets.
    std::int32_t batch = 0;
    /// A history starts and ends at multiples of this, as the model's kernels require. Rounded up to a multiple of the
    /// layout's blocks.
    std::int32_t padding = 1;
    /// A history starts at a multiple of this, too; 0: at the first cell. So where its views begin stays the same while
    /// a window slides or prompts are removed, as a graph needs that an engine builds once. Masks then have columns for
    /// the cells in front, which are hidden. The cache takes the least common multiple with the padding.
    std::int32_t start_padding = 1;
    /// The formats of snapshots that are offloaded to `OffloadTo::host` (`stored_as<q8_0, q4_0>`): keys and values are
    /// decoded and encoded on the way there, and back. Nothing: those of the layout, bit by bit. Snapshots that are
    /// loaded or received keep the layout's formats until they are in the cache.
    StoredAs offload_as = {};
    Placement placement = Placement::blocks;
    Positions positions = Positions::consecutive;
    /// Memory of keys and values is written to when it is allocated: in the constructor, and when the cache grows. The
    /// operating system commits it then. Otherwise the first `put` to each part waits for that, which shows in a decode
    /// step in which many sequences begin a block. Memory of devices, and a program's own, is committed anyway.
    bool populate = false;
};

namespace detail {

/// The length that one sequence is planned to have.
constexpr std::int32_t planned_capacity(const CacheLimits& limits) {
    return limits.capacity != 0 ? limits.capacity : limits.cells;
}

/// The tokens of one pass at most.
constexpr std::int32_t planned_batch(const CacheLimits& limits) {
    if (limits.batch != 0) return limits.batch;
    const std::int64_t most = limits.cells != 0 ? limits.cells : std::int64_t{limits.sequences} * limits.capacity;
    return static_cast<std::int32_t>(std::min(most, std::int64_t{std::max(512, limits.sequences)}));
}

/// The window with its defaults filled in for these limits.
template <WindowPolicy Window>
constexpr Window resolved_window(const CacheLimits& limits, const Window& window) {
    return window.resolved(limits.sequences, planned_capacity(limits));
}

/// The cells of a cache with these limits and a resolved window.
template <WindowPolicy Window>
constexpr std::int64_t cell_count(const CacheLimits& limits, const Window& resolved) {
    const std::int64_t wanted =
        limits.cells != 0 ? limits.cells : resolved.cells(limits.sequences, limits.capacity, limits.batch);
    return (wanted + limits.padding - 1) / limits.padding * limits.padding;
}

constexpr const CacheLimits& expect_valid(const CacheLimits& limits) {
    CELLAR_EXPECTS(limits.sequences > 0, "limits: ", limits.sequences, " sequences, expected at least 1");
    CELLAR_EXPECTS(limits.capacity >= 0 && limits.cells >= 0 && (limits.capacity > 0 || limits.cells > 0),
                   "limits: a capacity of ", limits.capacity, " and ", limits.cells,
                   " cells, expected one of them to be at least 1");
    CELLAR_EXPECTS(limits.initial_cells >= 0, "limits: ", limits.initial_cells, " initial cells, expected 0 or more");
    CELLAR_EXPECTS(limits.batch >= 0, "limits: a batch of ", limits.batch, ", expected 0 or more");
    CELLAR_EXPECTS(limits.padding > 0 && limits.padding <= 1 << 30, "limits: a padding of ", limits.padding,
                   ", expected 1 to ", 1 << 30);
    CELLAR_EXPECTS(limits.start_padding >= 0 && limits.start_padding <= 1 << 30, "limits: a start padding of ",
                   limits.start_padding, ", expected 0 to ", 1 << 30);
    return limits;
}

/// The same limits, with the batch filled in, a padding of whole blocks of the layout, and a start padding of whole
/// paddings.
template <LayoutPolicy Layout>
constexpr CacheLimits resolved_limits(CacheLimits limits) {
    constexpr std::int64_t most = 1 << 30;
    const std::int64_t padding = std::lcm(std::int64_t{limits.padding}, std::int64_t{layout_block_cells<Layout>});
    CELLAR_EXPECTS(padding <= most, "limits: a padding of ", limits.padding, " and blocks of ",
                   layout_block_cells<Layout>, " cells, expected a common multiple of at most ", most);
    const std::int64_t start = std::lcm(padding, std::int64_t{limits.start_padding});
    CELLAR_EXPECTS(start <= most, "limits: a padding of ", padding, " and a start padding of ", limits.start_padding,
                   ", expected a common multiple of at most ", most);
    limits.batch = planned_batch(limits);
    limits.padding = static_cast<std::int32_t>(padding);
    limits.start_padding = static_cast<std::int32_t>(start);
    return limits;
}

} // namespace detail

} // namespace cellar
