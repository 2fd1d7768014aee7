// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/attention/attention_options.hpp>
#include <cellar/attention/detail/attention_plan.hpp>
#include <cellar/attention/detail/host_attention.hpp>
#include <cellar/attention/detail/row_source.hpp>
#include <cellar/attention/detail/sight.hpp>
#include <cellar/attention/detail/tile_kernels.hpp>
#include <cellar/attention/detail/tree.hpp>
#include <cellar/base/scratch.hpp>
#include <cellar/base/view.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace cellar::detail {

/// What each token of the open pass sees, sorted by sequence. Sequences that begin with the same cell are neighbours,
/// because only they can share a prefix.
template <class Book>
void find_sights(const Book& book, std::int32_t tokens, Sight* sights) {
    for (std::int32_t i = 0; i < tokens; ++i) {
        const auto token = static_cast<std::size_t>(i);
        sights[i] = {&book.table().record(book.pass().sequences[token]).runs,
                     i,
                     book.window().sinks(),
                     book.pass().positions[token],
                     book.visible_from(token),
                     book.visible_to(token)};
    }
    std::sort(sights, sights + tokens, [](const Sight& a, const Sight& b) {
        if (a.runs == b.runs) return a.token < b.token;
        const Cell first = a.runs->first_cell();
        const Cell other = b.runs->first_cell();
        return first == other ? std::less<>{}(a.runs, b.runs) : first < other;
    });
}

/// Sets `Sight::first` of each token. `sights` are sorted by sequence.
inline void find_first_positions(std::span<Sight> sights) {
    for (std::size_t begin = 0, end = 0; begin < sights.size(); begin = end) {
        Position first = sights[begin].at;
        for (; end < sights.size() && sights[end].runs == sights[begin].runs; ++end)
            first = std::min(first, sights[end].at);
        for (Sight& sight : sights.subspan(begin, end - begin)) sight.first = first;
    }
}

/// See `attend`. Its arguments were checked.
template <class State, class Keys, class Values, class Q, class Out, class Threads>
void attend_on_host(State& state, const AttentionShape& shape, const Keys& keys, const Values& values,
                    StridedView<const Q, 3> q, StridedView<Out, 3> out, const AttentionOptions& options,
                    const Threads& threads, Instructions instructions) {
    const std::int32_t n = shape.tokens;
    // Twice: to count the bytes of what is the same for all layers, and to take it from memory.
    const auto find = [&](ScratchArrays& arrays) {
        struct Found {
            Sight* sights;
            TokenBlock* blocks;
            TokenInCell* cells;
        };
        return Found{arrays.take<Sight>(n), arrays.take<TokenBlock>(AttentionPlan::max_blocks(n)),
                     arrays.take<TokenInCell>(options.parents.empty() ? 0 : n)};
    };
    ScratchArrays counted;
    find(counted);
    ScratchArrays taken{state.attention.plan.reserve(counted.bytes())};
    const auto found = find(taken);
    find_sights(state.book, n, found.sights);
    std::size_t in_cells = 0;
    if (!options.parents.empty()) {
        find_first_positions({found.sights, static_cast<std::size_t>(n)});
        const auto& pass = state.book.pass();
        for (; in_cells < pass.cells.size(); ++in_cells)
            found.cells[in_cells] = {pass.cells[in_cells], static_cast<std::int32_t>(pass.token_in(in_cells))};
        std::sort(found.cells, found.cells + in_cells,
                  [](const TokenInCell& a, const TokenInCell& b) { return a.cell < b.cell; });
    }
    const Tree tree{options.parents, {found.cells, in_cells}};
    AttentionPlan plan{shape, found.sights, found.blocks, options.reads_shared_once};
    HostAttention<Keys, Values, Q, Out> attention{shape, options,      keys, values, q,
                                                  out,   found.sights, tree, plan,   instructions};
    const auto lines = [](std::int64_t bytes) { return (bytes + 63) / 64 * 64; };
    const std::int64_t parts = lines(attention.bytes_of_parts());
    const std::int64_t order = lines(plan.bytes_of_order());
    std::byte* const memory =
        state.attention.rows.reserve(parts + order + threads.count() * attention.bytes_of_worker());
    plan.order_items(memory + parts);
    attention.run(threads, memory, memory + parts + order);
}

} // namespace cellar::detail
