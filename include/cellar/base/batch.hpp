// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>

#include <cstdint>
#include <span>

namespace cellar {

/// The tokens of one forward pass: a position and a sequence for each, in any order, with any mix of sequences. Several
/// tokens may have the same position, as the patches of an image do. `begin` reads the spans and does not keep them.
struct Batch {
    std::span<const Position> positions;
    std::span<const Sequence> sequences;
    /// Empty, or one flag per token. A flagged token also sees later positions of its sequence, as the tokens of one
    /// image do.
    std::span<const bool> bidirectional = {};

    std::int32_t tokens() const { return static_cast<std::int32_t>(positions.size()); }
};

} // namespace cellar
