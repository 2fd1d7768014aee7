// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/attention/attention_options.hpp>
#include <cellar/attention/detail/attend_on_host.hpp>
#include <cellar/attention/detail/attention_plan.hpp>
#include <cellar/attention/detail/sight.hpp>
#include <cellar/base/scratch.hpp>
#include <cellar/base/view.hpp>

#include <algorithm>
#include <cstdint>

namespace cellar::detail {

/// A backend that computes attention itself, in memory that the host cannot read.
template <class B>
concept has_attention = requires(B& b) {
    b.attention().lists();
};

/// Lists what the tokens of the open pass see: each sequence's tokens, and its runs from the first position that these
/// see to the last one, after its sinks.
template <class State, class Lists>
void list_seen(State& state, std::int32_t tokens, Lists& lists) {
    lists.clear();
    lists.sinks = state.book.window().sinks();
    if (state.pass_reserved) { // its tokens see nothing
        lists.add_sequence();
        for (std::int32_t i = 0; i < tokens; ++i) lists.add_token({i, 0, 0, 0});
        return;
    }
    Sight* const sights = reinterpret_cast<Sight*>(state.attention.plan.reserve(tokens * std::int64_t{sizeof(Sight)}));
    find_sights(state.book, tokens, sights);
    for (std::int32_t i = 0; i < tokens;) {
        const PositionRuns& runs = *sights[i].runs;
        Position from = sights[i].from;
        Position to = sights[i].to;
        lists.add_sequence();
        for (; i < tokens && sights[i].runs == &runs; ++i) {
            const Sight& sight = sights[i];
            lists.add_token({sight.token, sight.at.value, sight.from.value, sight.to.value});
            from = std::min(from, sight.from);
            to = std::max(to, sight.to);
        }
        const auto add = [&](Position position, Cell cell, std::int32_t n) { lists.add_run(position.value, cell, n); };
        const Position end_of_sinks = std::min(from, Position{lists.sinks});
        if (end_of_sinks.value > 0) runs.for_each({0}, end_of_sinks, add);
        if (from < to) runs.for_each(from, to, add);
    }
}

/// See `attend`. Its arguments were checked. The first call of a pass lists what its tokens see, in O(runs).
template <class State, class Keys, class Values, class Q, class Out>
void attend_on_device(State& state, const AttentionShape& shape, const Keys& keys, const Values& values,
                      StridedView<const Q, 3> q, StridedView<Out, 3> out, const AttentionOptions& options) {
    if (shape.tokens == 0) return;
    auto& attention = state.backend.attention();
    auto& lists = attention.lists();
    if (!state.attention.listed) {
        list_seen(state, shape.tokens, lists);
        attention.upload_lists(state.backend.space());
        state.attention.listed = true;
    }
    const auto& pass = state.book.pass();
    if (!options.parents.empty() && !state.pass_reserved && lists.in_cells.empty())
        lists.set_cells({pass.cells.data(), pass.cells.size()}, {pass.stored.data(), pass.stored.size()});
    attention.run(state.backend.space(), shape, keys, values, q, out, options);
}

} // namespace cellar::detail
