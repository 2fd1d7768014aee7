// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/attention/detail/attention_source.hpp>
#include <cellar/base/attention_work.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/score_rule.hpp>
#include <cellar/base/scratch.hpp>
#include <cellar/book/position_runs.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>

namespace cellar::detail {

/// The tokens of one sequence of a batch.
struct SequenceTokens {
    const PositionRuns* runs; ///< of the sequence
    std::int32_t first;       ///< among the ranges
    std::int32_t count;
    std::int32_t first_position; ///< the smallest

    std::int32_t end() const { return first + count; }
};

/// What the tokens of a pass see, sorted by sequence: the same for all layers. Sequences that begin with the same cell
/// are neighbours, because only they can share a prefix.
struct PassTokens {
    /// Takes memory for n tokens.
    PassTokens(std::int32_t n, ScratchArrays& arrays)
        : tokens{n},
          ranges{arrays.take<VisibleRange>(n)},
          sequences{arrays.take<SequenceTokens>(n)},
          in_cells{arrays.take<CellToken>(n)} {}

    template <AttentionSource Source>
    void find(const Source& source) {
        sinks = source.sinks();
        for (std::int32_t i = 0; i < tokens; ++i) ranges[i] = source.visible(i);
        std::sort(ranges, ranges + tokens, [&](const VisibleRange& a, const VisibleRange& b) {
            const Sequence s = source.sequence(a.token);
            const Sequence other = source.sequence(b.token);
            if (s == other) return a.token < b.token;
            const Cell first = source.runs(s).first_cell();
            const Cell first_of_other = source.runs(other).first_cell();
            return first == first_of_other ? s.value < other.value : first < first_of_other;
        });
        for (std::int32_t i = 0; i < tokens; ++i) {
            const PositionRuns& runs = source.runs(source.sequence(ranges[i].token));
            if (i == 0 || sequences[count - 1].runs != &runs) sequences[count++] = {&runs, i, 0, ranges[i].position};
            SequenceTokens& last = sequences[count - 1];
            ++last.count;
            last.first_position = std::min(last.first_position, ranges[i].position);
        }
    }

    /// By tokens [begin, end) of the ranges, at least one.
    VisibleSpan seen(std::int32_t begin, std::int32_t end) const {
        return VisibleSpan{{ranges + begin, static_cast<std::size_t>(end - begin)}};
    }

    /// Of a reserved pass.
    void see_nothing() {
        for (std::int32_t i = 0; i < tokens; ++i) ranges[i] = {i, 0, 0, 0};
        sequences[count++] = {nullptr, 0, tokens, 0};
    }

    /// The branches of the batch; the first call sorts its cells.
    template <AttentionSource Source>
    TokenTree tree(const Source& source) {
        const std::span<const std::int32_t> parents = source.parents();
        if (parents.empty()) return {nullptr, nullptr, 0};
        if (stored == 0) {
            for (const Cell cell : source.cells()) {
                in_cells[stored] = {cell, source.token_in(static_cast<std::size_t>(stored))};
                ++stored;
            }
            std::sort(in_cells, in_cells + stored,
                      [](const CellToken& a, const CellToken& b) { return a.cell < b.cell; });
        }
        return {parents.data(), in_cells, stored};
    }

    std::int32_t tokens;
    std::int32_t sinks = 0;
    std::int32_t count = 0;  ///< of sequences
    std::int32_t stored = 0; ///< in cells, once a tree was asked for
    VisibleRange* ranges;
    SequenceTokens* sequences;
    CellToken* in_cells;
};

/// What attention made of the tokens of the open pass for a layer before, if the same tokens see the same; else null.
/// O(1).
template <class Kept, AttentionSource Source>
Kept* kept_for(Source& source) {
    auto& memory = source.memory();
    if (memory.planned_for != source.shown_by()) return nullptr;
    return std::launder(reinterpret_cast<Kept*>(memory.tokens.reserve(0)));
}

/// `take_arrays` for what is kept next. Until `planned_for` is set again, nothing is: what follows may throw.
template <AttentionSource Source, class Layout>
auto take_kept(Source& source, Layout layout) {
    source.memory().planned_for = nullptr;
    return take_arrays(source.memory().tokens, layout);
}

} // namespace cellar::detail
