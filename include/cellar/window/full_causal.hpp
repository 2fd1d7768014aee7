// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/window/window.hpp>

#include <cstdint>

namespace cellar {

/// A token sees itself and every earlier token of its sequence. Nothing is forgotten.
class FullCausal {
public:
    constexpr Position oldest_visible(Position) const { return Position{0}; }
    constexpr Position oldest_kept(Position) const { return Position{0}; }
    constexpr std::int32_t sinks() const { return 0; }

    constexpr FullCausal resolved(std::int32_t, std::int32_t) const { return *this; }
    constexpr std::int64_t cells(std::int32_t sequences, std::int32_t capacity, std::int32_t) const {
        return std::int64_t{sequences} * capacity;
    }
};

} // namespace cellar
