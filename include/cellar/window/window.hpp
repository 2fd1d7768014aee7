// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/base/named_only.hpp>

#include <concepts>
#include <cstdint>

namespace cellar {

namespace detail {

// One requirement each, so that every compiler names the one that is missing.
template <class W>
concept has_oldest_visible = requires(const W w, Position p) {
    { w.oldest_visible(p) } -> std::same_as<Position>;
};
template <class W>
concept has_oldest_kept = requires(const W w, Position p) {
    { w.oldest_kept(p) } -> std::same_as<Position>;
};
template <class W>
concept has_sinks = requires(const W w) {
    { w.sinks() } -> std::same_as<std::int32_t>;
};
template <class W>
concept has_resolved = requires(const W w, std::int32_t n) {
    { w.resolved(n, n) } -> std::same_as<W>;
};
template <class W>
concept has_cells = requires(const W w, std::int32_t n) {
    { w.cells(n, n, n) } -> std::same_as<std::int64_t>;
};

} // namespace detail

/// What a token may see, and what is kept for later tokens: arithmetic on positions alone.
///
/// - `oldest_visible(p)`: a query at p sees positions [oldest_visible(p), p], and the sinks up to p.
/// - `oldest_kept(p)`: once p is a sequence's newest position, positions below this one are forgotten, except sinks.
/// - `sinks()`: this many first positions are always kept and visible (attention sinks, arXiv:2309.17453).
/// - `resolved(sequences, capacity)`: the same window with its defaults filled in for a cache of that size. Resolving
///   it again for another cache starts from the options that were given.
/// - `cells(sequences, capacity, batch)`: the cells with which such a cache never becomes full, as long as no sequence
///   is longer than the capacity, all its tokens have different positions, and no snapshot or schedule owns cells.
///   Called on a resolved window.
///
/// Laws: `oldest_kept(p) <= oldest_visible(p) <= p`, and neither falls as p grows.
// clang-format off
template <class W>
concept WindowPolicy =
    std::copyable<W>
    && detail::has_oldest_visible<W> && detail::has_oldest_kept<W> && detail::has_sinks<W>
    && detail::has_resolved<W> && detail::has_cells<W>;
// clang-format on

/// As a template argument: the width is given at run time.
inline constexpr std::int32_t dynamic_width = 0;

/// What a window keeps beyond what a token sees.
struct WindowOptions {
    NamedOnly named_only{};

    /// How many of a sequence's newest tokens are kept, at least the window's width. With n more than the width, a
    /// sequence can go back n + 1 tokens. 0: the width, and one more if there are several sequences.
    std::int32_t retention = 0;
    /// First positions that are always kept and visible (attention sinks, arXiv:2309.17453).
    std::int32_t sinks = 0;
};

} // namespace cellar
