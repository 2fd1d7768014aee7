// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/kernel/attention.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace cellar::detail {

/// What the tokens of a pass see: the same for all layers.
struct SeenLists {
    /// The tokens of one sequence, and its runs from the first position that they see to the last.
    struct Sequence {
        std::int32_t first_token;
        std::int32_t tokens;
        std::int32_t first_run;
        std::int32_t runs;
        std::int32_t cells; ///< of the runs
    };

    std::vector<Sequence> sequences;
    std::vector<kernel::SeenToken> tokens; ///< sorted by sequence
    std::vector<kernel::SeenRun> runs;
    std::vector<kernel::CellToken> in_cells; ///< the batch's tokens, sorted by cell; empty unless they are a tree
    std::int32_t sinks = 0;

    void clear() {
        sequences.clear();
        tokens.clear();
        runs.clear();
        in_cells.clear();
    }

    /// Begins a sequence, to which the following tokens and runs belong.
    void add_sequence() { sequences.push_back({size_of(tokens), 0, size_of(runs), 0, 0}); }
    void add_token(const kernel::SeenToken& token) {
        tokens.push_back(token);
        ++sequences.back().tokens;
    }
    void add_run(std::int32_t position, Cell cell, std::int32_t count) {
        Sequence& last = sequences.back();
        runs.push_back({position, cell, last.cells});
        last.cells += count;
        ++last.runs;
    }

    /// The cells of the batch, and the token in each; without `stored`, they are those of all tokens in turn.
    void set_cells(std::span<const Cell> cells, std::span<const std::int32_t> stored = {}) {
        in_cells.reserve(cells.size()); // so that all or none are there if there is no memory
        for (std::size_t i = 0; i < cells.size(); ++i)
            in_cells.push_back({cells[i], stored.empty() ? static_cast<std::int32_t>(i) : stored[i]});
        std::sort(in_cells.begin(), in_cells.end(),
                  [](const kernel::CellToken& a, const kernel::CellToken& b) { return a.cell < b.cell; });
    }

    /// How many of a sequence's cells lie before a position. O(log runs).
    std::int32_t cells_before(const Sequence& s, std::int32_t position) const {
        const auto first = runs.begin() + s.first_run;
        const auto next = std::partition_point(first, first + s.runs,
                                               [&](const kernel::SeenRun& run) { return run.position < position; });
        if (next == first) return 0;
        const std::int32_t end = next == first + s.runs ? s.cells : next->first;
        return std::min(end, next[-1].first + (position - next[-1].position));
    }

private:
    template <class List>
    static std::int32_t size_of(const List& list) {
        return static_cast<std::int32_t>(list.size());
    }
};

} // namespace cellar::detail
