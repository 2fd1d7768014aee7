// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/window/detail/forgetting_window.hpp>
#include <cellar/window/window.hpp>

#include <cstdint>

namespace cellar {

/// A token sees its chunk of `Size` positions, from the chunk's first position up to itself (Llama 4's local layers).
/// `ChunkedAttention<>{size}` takes the size at run time.
template <std::int32_t Size = dynamic_width>
class ChunkedAttention : public detail::ForgettingWindow {
    static_assert(Size >= 0, "ChunkedAttention: the size counts positions");

public:
    constexpr ChunkedAttention() requires(Size != dynamic_width) : ChunkedAttention{WindowOptions{}} {}
    /// With a retention or sinks. A retention that is less than the size is a violation when the cache is made.
    constexpr explicit ChunkedAttention(WindowOptions options,
                                        Where where = Where::current()) requires(Size != dynamic_width)
        : ForgettingWindow{"ChunkedAttention", "size", Size, options, where} {}

    /// With a size that is known at run time, at least 1.
    constexpr explicit ChunkedAttention(std::int32_t size, WindowOptions options = {},
                                        Where where = Where::current()) requires(Size == dynamic_width)
        : ForgettingWindow{"ChunkedAttention", "size", size, options, where} {}

    ChunkedAttention() requires(Size == dynamic_width) = delete; // give the size: ChunkedAttention<>{8192}

    /// The positions of a chunk.
    constexpr std::int32_t size() const { return width(); }

    /// The retention is at least a chunk, so everything visible is kept.
    constexpr Position oldest_visible(Position p) const { return p - p.value % size(); }
    constexpr ChunkedAttention resolved(std::int32_t sequences, std::int32_t capacity) const {
        ChunkedAttention same = *this;
        same.resolve(sequences, capacity);
        return same;
    }
};

} // namespace cellar
