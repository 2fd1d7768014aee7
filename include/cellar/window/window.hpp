// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>

#include <concepts>
#include <cstdint>

namespace cellar {

// The requirements are named one by one, so that every compiler names the one that is missing.
template <class W>
concept has_oldest_visible = requires(const W w, Position p) {
    { w.oldest_visible(p) } -> std::same_as<Position>;
};
template <class W>
concept has_oldest_kept = requires(const W w, Position p) {
    { w.oldest_kept(p) } -> std::same_as<Position>;
};
template <class W>
concept has_pinned = requires(const W w) {
    { w.pinned() } -> std::same_as<std::int32_t>;
};
template <class W>
concept has_fitted = requires(const W w, std::int32_t n) {
    { w.fitted(n, n) } -> std::same_as<W>;
};
template <class W>
concept has_cells = requires(const W w, std::int32_t n) {
    { w.cells(n, n, n) } -> std::same_as<std::int64_t>;
};

/// What a token may see, and what is kept for later tokens: arithmetic on positions alone.
///
/// - `oldest_visible(p)`: a query at p sees positions [oldest_visible(p), p], and the pinned ones up to p.
/// - `oldest_kept(p)`: once p is a sequence's newest position, those below are forgotten, but for the pinned ones.
/// - `pinned()`: so many first positions are always kept and seen (attention sinks).
/// - `fitted(sequences, capacity)`: the same window with its defaults settled for a cache of that size.
/// - `cells(sequences, capacity, batch)`: the cells that such a cache needs so that it never runs full while every
///   sequence keeps to its share and its tokens to positions of their own; asked of a fitted window.
///
/// Laws: `oldest_kept(p) <= oldest_visible(p) <= p`, and both never fall as p grows.
template <class W>
concept window_policy =
    std::copyable<W> && has_oldest_visible<W> && has_oldest_kept<W> && has_pinned<W> && has_fitted<W> && has_cells<W>;

/// As a template argument: the width is given at run time.
inline constexpr std::int32_t dynamic_width = 0;

} // namespace cellar
