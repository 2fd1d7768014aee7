// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/window/detail/retention.hpp>
#include <cellar/window/window.hpp>

#include <cstdint>

namespace cellar {

/// A token sees the last `Width` tokens of its sequence, itself included (as Mistral, transformers and llama.cpp
/// count). `SlidingWindow<>{width}` takes the width at run time.
template <std::int32_t Width = dynamic_width>
class SlidingWindow {
    static_assert(Width >= 0, "SlidingWindow: the width counts tokens");

public:
    constexpr SlidingWindow() requires(Width != dynamic_width) : SlidingWindow{WindowOptions{}} {}
    /// With a retention or sinks: `SlidingWindow<4096>{{.retention = 4096 + 8 - 1}}`. A retention that is less than the
    /// width is a violation when the cache is made.
    constexpr explicit SlidingWindow(WindowOptions options,
                                     Where where = Where::current()) requires(Width != dynamic_width)
        : SlidingWindow{Width, options.sinks, detail::Retention{options.retention}, where} {}

    /// With a width that is known at run time, at least 1.
    constexpr explicit SlidingWindow(std::int32_t width, WindowOptions options = {},
                                     Where where = Where::current()) requires(Width == dynamic_width)
        : SlidingWindow{width, options.sinks, detail::Retention{options.retention}, where} {}

    SlidingWindow() requires(Width == dynamic_width) = delete; // give the width: SlidingWindow<>{4096}

    /// The tokens that a token sees, itself included, without sinks.
    constexpr std::int32_t width() const { return width_; }

    constexpr Position oldest_visible(Position p) const {
        return Position{p.value < width_ ? 0 : p.value - width_ + 1};
    }
    constexpr Position oldest_kept(Position p) const { return retention_.oldest_kept(p, width_); }
    constexpr std::int32_t sinks() const { return sinks_; }

    constexpr SlidingWindow resolved(std::int32_t sequences, std::int32_t capacity) const {
        return {width_, sinks_, retention_.resolved(width_, sinks_, sequences, capacity)};
    }
    constexpr std::int64_t cells(std::int32_t sequences, std::int32_t capacity, std::int32_t batch) const {
        return retention_.cells(sinks_, sequences, capacity, batch);
    }

private:
    constexpr SlidingWindow(std::int32_t width, std::int32_t sinks, detail::Retention retention,
                            Where where = Where::current())
        : width_{width}, sinks_{sinks}, retention_{retention} {
        CELLAR_EXPECTS_AT(where, width > 0, "SlidingWindow: the width is ", width, ", expected at least 1");
        CELLAR_EXPECTS_AT(where, sinks >= 0, "SlidingWindow: ", sinks, " sinks, expected 0 or more");
    }

    std::int32_t width_;
    std::int32_t sinks_;
    detail::Retention retention_;
};

} // namespace cellar
