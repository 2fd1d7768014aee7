// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/attention_work.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/kernel/attention.hpp>
#include <cellar/kernel/staged_rows.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace cellar::detail {

/// How the work of a layer is divided. For each sequence, it depends on the tokens of that sequence and on what they
/// see, not on other sequences.
struct DevicePlan {
    std::vector<kernel::AttentionBlock> blocks;
    std::int32_t items = 0;
    std::int32_t joined_rows = 0;
    std::int64_t partial_rows = 0;
    std::int32_t max_parts = 1;
    std::int32_t max_rows = 1;

    /// `room`: the rows that a block may have.
    template <class Limits>
    void make(const AttentionLists& seen, int kv_heads, int group, std::int64_t room) {
        *this = DevicePlan{std::move(blocks)};
        blocks.clear();
        for (const AttentionLists::Sequence& s : seen.sequences) {
            const std::int64_t rows = std::int64_t{s.tokens} * group;
            CELLAR_EXPECTS(rows < INT32_MAX, "attend: ", rows,
                           " queries for each head of the keys, expected fewer "
                           "than 2^31");
            const std::int64_t count = (rows + room - 1) / room;
            const std::int64_t each = std::min(room, ((rows + count - 1) / count + 3) / 4 * 4);
            const std::size_t first_block = blocks.size();
            std::int64_t work = 0;
            for (std::int64_t first = 0; first < rows; first += each) {
                const std::int64_t n = std::min(each, rows - first);
                blocks.push_back(block(seen, s, group, static_cast<std::int32_t>(first), static_cast<std::int32_t>(n)));
                work += std::int64_t{blocks.back().cells} * kv_heads;
            }
            const std::int64_t cells = std::max<std::int64_t>(Limits::part_cells, work / Limits::sequence_items);
            for (std::size_t i = first_block; i < blocks.size(); ++i) divide(blocks[i], cells, kv_heads);
        }
        CELLAR_EXPECTS(std::int64_t{items} * kv_heads < INT32_MAX, "attend: ", items, " blocks of queries and ",
                       kv_heads, " heads of keys, expected fewer than 2^31 in all");
    }

private:
    static kernel::AttentionBlock block(const AttentionLists& seen, const AttentionLists::Sequence& s, int group,
                                        std::int32_t first, std::int32_t rows) {
        kernel::AttentionBlock made{};
        made.first_token = s.first_token;
        made.first_row = first;
        made.rows = rows;
        made.first_run = s.first_run;
        made.runs = s.runs;
        const std::int32_t begin = first / group;
        const std::int32_t end = (first + rows - 1) / group + 1;
        const VisibleSpan all{seen.tokens.subspan(static_cast<std::size_t>(s.first_token + begin),
                                                  static_cast<std::size_t>(end - begin))};
        made.see_from = all.all_from;
        made.see_to = all.all_to;
        const std::int32_t behind = seen.cells_before(s, all.to);
        const std::int32_t skipped_to = std::min(seen.cells_before(s, all.from), behind);
        made.head_cells = std::min(seen.cells_before(s, std::min(seen.sinks, all.from)), skipped_to);
        made.skipped = skipped_to - made.head_cells;
        made.cells = behind - made.skipped;
        return made;
    }

    // Into parts of at least so many cells.
    void divide(kernel::AttentionBlock& block, std::int64_t cells, int kv_heads) {
        constexpr std::int64_t tile = kernel::StagedTile::cells;
        constexpr std::int64_t most = INT32_MAX / tile * tile;
        block.part_cells = static_cast<std::int32_t>(std::min((cells + tile - 1) / tile * tile, most));
        block.parts = std::max(1, (block.cells - 1) / block.part_cells + 1);
        block.first_item = items;
        block.first_joined = joined_rows;
        block.first_partial_row = partial_rows;
        items += block.parts;
        max_rows = std::max(max_rows, block.rows);
        if (block.parts == 1) return;
        joined_rows += block.rows * kv_heads;
        partial_rows += std::int64_t{block.parts} * block.rows * kv_heads;
        max_parts = std::max(max_parts, block.parts);
    }
};

} // namespace cellar::detail
