// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>

#include <cstdint>
#include <span>

namespace cellar {

/// The tokens of one forward pass: a position and a sequence for each, in any order, sequences mixed as you like.
/// Several tokens may have the same position (the patches of an image). The spans are read by `begin` and not kept.
struct Batch {
    std::span<const Position> positions;
    std::span<const Sequence> sequences;
    /// Empty, or a flag for each token: true lets it see later positions of its sequence too, as tokens of one image
    /// do.
    std::span<const bool> bidirectional = {};

    std::int32_t tokens() const { return static_cast<std::int32_t>(positions.size()); }
};

} // namespace cellar
