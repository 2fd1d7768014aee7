// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/window/detail/retention.hpp>
#include <cellar/window/window.hpp>

#include <cstdint>

namespace cellar {

/// A token sees its chunk of `Size` positions, from the chunk's first position up to itself (Llama 4's local layers).
/// `ChunkedAttention<>{size}` takes the size at run time.
template <std::int32_t Size = dynamic_width>
class ChunkedAttention {
    static_assert(Size >= 0, "ChunkedAttention: the size counts positions");

public:
    constexpr ChunkedAttention() requires(Size != dynamic_width) : ChunkedAttention{WindowOptions{}} {}
    /// With a retention or sinks. A retention that is less than the size is a violation when the cache is made.
    constexpr explicit ChunkedAttention(WindowOptions options,
                                        Where where = Where::current()) requires(Size != dynamic_width)
        : ChunkedAttention{Size, options.sinks, detail::Retention{options.retention}, where} {}

    /// With a size that is known at run time, at least 1.
    constexpr explicit ChunkedAttention(std::int32_t size, WindowOptions options = {},
                                        Where where = Where::current()) requires(Size == dynamic_width)
        : ChunkedAttention{size, options.sinks, detail::Retention{options.retention}, where} {}

    ChunkedAttention() requires(Size == dynamic_width) = delete; // give the size: ChunkedAttention<>{8192}

    /// The positions of a chunk.
    constexpr std::int32_t size() const { return size_; }

    constexpr Position oldest_visible(Position p) const { return p - p.value % size_; }
    /// The retention is at least a chunk, so everything visible is kept.
    constexpr Position oldest_kept(Position p) const { return retention_.oldest_kept(p, size_); }
    constexpr std::int32_t sinks() const { return sinks_; }

    constexpr ChunkedAttention resolved(std::int32_t sequences, std::int32_t capacity) const {
        return {size_, sinks_, retention_.resolved(size_, sinks_, sequences, capacity)};
    }
    constexpr std::int64_t cells(std::int32_t sequences, std::int32_t capacity, std::int32_t batch) const {
        return retention_.cells(sinks_, sequences, capacity, batch);
    }

private:
    constexpr ChunkedAttention(std::int32_t size, std::int32_t sinks, detail::Retention retention,
                               Where where = Where::current())
        : size_{size}, sinks_{sinks}, retention_{retention} {
        CELLAR_EXPECTS_AT(where, size > 0, "ChunkedAttention: the size is ", size, ", expected at least 1");
        CELLAR_EXPECTS_AT(where, sinks >= 0, "ChunkedAttention: ", sinks, " sinks, expected 0 or more");
    }

    std::int32_t size_;
    std::int32_t sinks_;
    detail::Retention retention_;
};

} // namespace cellar
