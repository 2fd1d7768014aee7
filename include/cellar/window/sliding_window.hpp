// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/window/detail/forgetting_window.hpp>
#include <cellar/window/window.hpp>

#include <cstdint>

namespace cellar {

/// A token sees the last `Width` tokens of its sequence, itself included (as Mistral, transformers and llama.cpp
/// count). `SlidingWindow<>{width}` takes the width at run time.
template <std::int32_t Width = dynamic_width>
class SlidingWindow : public detail::ForgettingWindow {
    static_assert(Width >= 0, "SlidingWindow: the width counts tokens");

public:
    constexpr SlidingWindow() requires(Width != dynamic_width) : SlidingWindow{WindowOptions{}} {}
    /// With a retention or sinks: `SlidingWindow<4096>{{.retention = 4096 + 8 - 1}}`. A retention that is less than the
    /// width is a violation when the cache is made.
    constexpr explicit SlidingWindow(WindowOptions options,
                                     Where where = Where::current()) requires(Width != dynamic_width)
        : ForgettingWindow{"SlidingWindow", "width", Width, options, where} {}

    /// With a width that is known at run time, at least 1.
    constexpr explicit SlidingWindow(std::int32_t width, WindowOptions options = {},
                                     Where where = Where::current()) requires(Width == dynamic_width)
        : ForgettingWindow{"SlidingWindow", "width", width, options, where} {}

    SlidingWindow() requires(Width == dynamic_width) = delete; // give the width: SlidingWindow<>{4096}

    /// The tokens that a token sees, itself included, without sinks.
    using ForgettingWindow::width;

    constexpr Position oldest_visible(Position p) const {
        return Position{p.value < width() ? 0 : p.value - width() + 1};
    }
    constexpr SlidingWindow resolved(std::int32_t sequences, std::int32_t capacity) const {
        SlidingWindow same = *this;
        same.resolve(sequences, capacity);
        return same;
    }
};

} // namespace cellar
