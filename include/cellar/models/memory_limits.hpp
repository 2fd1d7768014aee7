// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/batch.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/named_only.hpp>
#include <cellar/cache/cache_limits.hpp>
#include <cellar/models/description.hpp>
#include <cellar/recurrent/state_limits.hpp>
#include <cellar/window/chunked_attention.hpp>
#include <cellar/window/full_causal.hpp>
#include <cellar/window/sliding_window.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>

namespace cellar::models {

/// How much the exact caches hold (`WithResidual`).
struct ResidualLimits {
    NamedOnly named_only{};
    /// The newest ones that a token sees exactly, at least 1. A layer with a window has no more than it.
    std::int32_t tokens = 32;
    /// A retention below `tokens` stands for them. Layers with a window have its own sinks, or none if these are 0.
    WindowOptions window{};
    /// How many snapshots there is room for beside all sequences, without `cells`. Prefixes of a tree count, and so do
    /// snapshots on the way back from where they were offloaded. Each takes the sinks and the retention.
    std::int32_t snapshots = 0;
    /// Their positions are consecutive, whatever it says. Without it, they have the capacity, padding and placement of
    /// `MemoryLimits::attention`, and as many cells as the sequences and `snapshots` fill.
    std::optional<CacheLimits> cells{};
};

/// How much the memories of a model hold.
struct MemoryLimits {
    NamedOnly named_only{};
    /// Of full layers. Its sequences and batch are those of all members.
    CacheLimits attention{};
    /// Of sliding and of chunked layers. Without it, they have the capacity, padding and placement of `attention`, and
    /// as many cells as sequences fill, and none for snapshots: give more to keep prefixes.
    std::optional<CacheLimits> sliding{};
    std::optional<CacheLimits> chunked{};
    /// Of an encoder's inputs: the capacity and the cells count their tokens, the batch those that one pass writes.
    /// Without it, as above.
    std::optional<CacheLimits> encoder{};
    StateLimits states{};   ///< of recurrent layers
    WindowOptions window{}; ///< of sliding and chunked layers; a retention below a window's width stands for the width
    ResidualLimits residual{};
};

namespace detail {

/// Those of the layers of a kind with attention.
constexpr CacheLimits limits_of(LayerKind kind, const MemoryLimits& limits) {
    const auto& own = kind == LayerKind::sliding   ? limits.sliding
                      : kind == LayerKind::encoder ? limits.encoder
                                                   : limits.chunked;
    if (kind == LayerKind::full) return limits.attention;
    CacheLimits found = own ? *own : limits.attention;
    if (!own) {
        found.capacity = cellar::detail::planned_capacity(limits.attention);
        found.cells = found.initial_cells = 0;
    }
    found.sequences = limits.attention.sequences;
    const std::int32_t batch = cellar::detail::planned_batch(limits.attention);
    const bool writes_more = kind == LayerKind::encoder && own;
    found.batch = writes_more ? std::max(cellar::detail::planned_batch(*own), batch) : batch;
    return found;
}

/// Those of the exact caches: a sliding window of their own. `windowed`: the layers have one, too, and the exact cache
/// must not show more sinks than it.
constexpr MemoryLimits limits_of_residual(const MemoryLimits& limits, bool windowed) {
    const ResidualLimits& residual = limits.residual;
    CELLAR_EXPECTS(residual.tokens > 0 && residual.snapshots >= 0, "MemoryLimits::residual: ", residual.tokens,
                   " tokens and ", residual.snapshots,
                   " snapshots, expected at least 1 token, and 0 snapshots or more");
    MemoryLimits found = limits;
    found.window = residual.window;
    if (windowed && residual.window.sinks != 0) found.window.sinks = limits.window.sinks;
    found.sliding = residual.cells;
    found.sliding = limits_of(LayerKind::sliding, found);
    found.sliding->positions = Positions::consecutive; // what the window shows must be there
    return found;
}

/// Those of the recurrent layers.
constexpr StateLimits state_limits_of(const MemoryLimits& limits) {
    StateLimits found = limits.states;
    found.sequences = limits.attention.sequences;
    found.batch = cellar::detail::planned_batch(limits.attention);
    return found;
}

/// Which layers a window is for, and that window with the options of the limits.
template <class Window>
struct WindowFor;
template <>
struct WindowFor<FullCausal> {
    static constexpr LayerKind kind = LayerKind::full;
    static bool takes(std::int32_t) { return true; }
    static constexpr FullCausal make(std::int32_t, const WindowOptions&) { return {}; }
};
template <class Window, LayerKind Kind, std::int32_t Width>
struct WindowOfWidth {
    static constexpr LayerKind kind = Kind;
    static bool takes(std::int32_t width) { return Width == dynamic_width || width == Width; }
    static constexpr Window make(std::int32_t width, WindowOptions options) {
        if (options.retention != 0) options.retention = std::max(options.retention, width);
        if constexpr (Width == dynamic_width) {
            return Window{width, options};
        } else {
            return Window{options};
        }
    }
};
template <std::int32_t Width>
struct WindowFor<SlidingWindow<Width>> : WindowOfWidth<SlidingWindow<Width>, LayerKind::sliding, Width> {};
template <std::int32_t Size>
struct WindowFor<ChunkedAttention<Size>> : WindowOfWidth<ChunkedAttention<Size>, LayerKind::chunked, Size> {};

} // namespace detail

} // namespace cellar::models
