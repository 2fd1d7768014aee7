// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/batch.hpp>
#include <cellar/base/expect_batch.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/memory_bytes.hpp>
#include <cellar/base/reserved_list.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace cellar::detail {

/// The book's notes on the open pass, with room for the largest batch.
struct OpenPass {
    explicit OpenPass(std::size_t batch)
        : positions{batch},
          sequences{batch},
          visible_to{batch},
          group_ends{batch},
          parents{batch},
          stored{batch},
          cells{batch},
          distinct_sequences{batch} {}
    static constexpr std::int64_t bytes_for(std::int32_t batch) {
        return bytes_of<Position>(batch) * 3 + bytes_of<Sequence>(batch) * 2 + bytes_of<std::int32_t>(batch) * 2
               + bytes_of<Cell>(batch);
    }

    void start(const Batch& batch) {
        positions.assign(batch.positions);
        sequences.assign(batch.sequences);
        cells.clear();
        distinct_sequences.clear();
        history = {};
        visible_to.clear();
        if (!batch.groups.empty()) find_groups(batch);
        parents.assign(batch.parents);
        branches = !batch.parents.empty() && has_branches(batch);
        in_part = !batch.stored.empty();
        stored.clear();
        if (in_part) find_stored(batch);
    }

    void find_stored(const Batch& batch) {
        for (std::size_t i = 0; i < batch.stored.size(); ++i)
            if (batch.stored[i] != 0) stored.push_back(static_cast<std::int32_t>(i));
    }

    // The tokens of a group see up to the last position of the group.
    void find_groups(const Batch& batch) {
        group_ends.clear();
        group_ends.resize(batch.groups.size());
        for (std::size_t i = 0; i < batch.groups.size(); ++i)
            if (batch.groups[i] >= 0) {
                Position& end = group_ends[static_cast<std::size_t>(batch.groups[i])];
                end = std::max(end, positions[i] + 1);
            }
        for (std::size_t i = 0; i < batch.groups.size(); ++i) {
            const std::int32_t group = batch.groups[i];
            visible_to.push_back(group < 0 ? positions[i] + 1 : group_ends[static_cast<std::size_t>(group)]);
        }
    }

    /// Calls f(position, cell) for the tokens of a tree that have the sequence of `token`, and are neither that one nor
    /// its ancestors. O(tokens).
    template <class F>
    void for_each_in_other_branches(std::size_t token, F f) const {
        if (parents.empty()) return;
        auto in_branch = static_cast<std::int32_t>(token);
        for (std::size_t i = cells.size(); i-- > 0;) {
            const std::size_t other = token_in(i);
            while (in_branch > static_cast<std::int32_t>(other))
                in_branch = parents[static_cast<std::size_t>(in_branch)]; // which comes before it
            if (in_branch != static_cast<std::int32_t>(other) && sequences[other] == sequences[token])
                f(positions[other], cells[i]);
        }
    }

    std::int32_t tokens() const { return static_cast<std::int32_t>(positions.size()); }

    /// The token in cells[i].
    std::size_t token_in(std::size_t i) const { return in_part ? static_cast<std::size_t>(stored[i]) : i; }

    ReservedList<Position> positions;
    ReservedList<Sequence> sequences;
    ReservedList<Position> visible_to;  ///< empty, or for each token the end of the positions that it sees
    ReservedList<Position> group_ends;  ///< the end of each group's positions
    ReservedList<std::int32_t> parents; ///< empty, or those of a tree
    ReservedList<std::int32_t> stored;  ///< the tokens that are stored, if the batch says which
    ReservedList<Cell> cells;           ///< the cell of each token that is stored
    ReservedList<Sequence> distinct_sequences;
    CellRange history;
    bool in_part = false;  ///< the batch says which tokens are stored
    bool branches = false; ///< the tree has more than one
};

} // namespace cellar::detail
