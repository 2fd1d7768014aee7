// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/base/attention_work.hpp>
#include <cellar/base/batch.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/score_rule.hpp>
#include <cellar/base/scratch.hpp>
#include <cellar/book/position_runs.hpp>
#include <cellar/layout/layer_shape.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

namespace cellar::detail {

// clang-format off
template <class S>
concept has_tokens_to_attend = requires(const S& s, std::int32_t token, Sequence sequence) {
    { s.tokens() } -> std::same_as<std::int32_t>;
    { s.is_reserved() } -> std::same_as<bool>;
    { s.positions() } -> std::same_as<Positions>;
    { s.sinks() } -> std::same_as<std::int32_t>;
    { s.sequence(token) } -> std::same_as<Sequence>;
    { s.position(token) } -> std::same_as<Position>;
    { s.visible(token) } -> std::same_as<VisibleRange>;
    { s.runs(sequence) } -> std::same_as<const PositionRuns&>;
};
template <class S>
concept has_cells_to_attend = requires(const S& s, std::size_t i) {
    { s.parents() } -> std::same_as<std::span<const std::int32_t>>;
    { s.cells() } -> std::same_as<std::span<const Cell>>;
    { s.token_in(i) } -> std::same_as<std::int32_t>;
};
template <class S>
concept has_layers_to_attend = requires(S& s, const S& constant, int layer) {
    { constant.shape(layer) } -> std::same_as<const LayerShape&>;
    { constant.factors(layer) } -> std::same_as<RowFactors>;
    constant.keys(layer).mapping(), constant.keys(layer).data();
    constant.values(layer).mapping(), constant.values(layer).data();
    { s.backend() } -> std::same_as<typename S::Backend&>;
};
template <class S>
concept has_memory_for_attention = requires(S& s) {
    { s.memory().tokens } -> std::same_as<Scratch&>;
    { s.memory().lists } -> std::same_as<Scratch&>;
    { s.memory().rows } -> std::same_as<Scratch&>;
    { s.memory().parts } -> std::same_as<Scratch&>;
    { s.memory().planned_for } -> std::same_as<const void*&>;
    { s.shown_by() } -> std::same_as<const void*>;
};

/// What `attend` uses of an open pass; it touches nothing else.
///
/// - `tokens()`, and of each its `sequence`, its `position` and what it sees (`visible`); `sinks()` of the window.
/// - `positions()`: whether there may be gaps in what the window shows.
/// - `is_reserved()`: the tokens see nothing; else `parents()`: those of a tree, or none.
/// - `runs(sequence)`: where its positions are. `for_each_visible_row(f)`: f(token, cells that it sees), for the
///   reference.
/// - `cells()`: those of the batch's stored tokens; `token_in(i)`: the token in the i-th.
/// - `shape(layer)`, `factors(layer)`, `keys(layer)`, `values(layer)`, `backend()`. Also `angles(layer)`, if keys are
///   rotated as they are read (`RotateOnRead`).
/// - `memory()`: `tokens` and `lists` are the plan of the pass for layers with the `shown_by()` that `planned_for` has;
///   that is the address of what decides what tokens see. The source sets `planned_for` to null when a pass begins. One
///   layer after the other uses `rows`, and `parts` where results are merged.
template <class S>
concept AttentionSource = has_tokens_to_attend<S> && has_cells_to_attend<S> && has_layers_to_attend<S>
                          && has_memory_for_attention<S>;

/// A pass with cells that `attend` can read.
template <class P>
concept attended_pass = requires(P& pass, int layer) {
    { pass.attention_source("attend", layer) } -> AttentionSource;
};
// clang-format on

} // namespace cellar::detail
