// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/attention/detail/sight.hpp>
#include <cellar/base/ids.hpp>

#include <algorithm>
#include <cstdint>
#include <span>

namespace cellar::detail {

/// A token of the batch, by its cell.
struct TokenInCell {
    Cell cell;
    std::int32_t token;
};

/// The branches of a batch: which of its tokens see which others.
class Tree {
public:
    /// `tokens`: those of the batch that are stored, sorted by cell. Without parents there is no tree.
    Tree(std::span<const std::int32_t> parents, std::span<const TokenInCell> tokens)
        : parents_{parents}, tokens_{tokens} {}

    bool exists() const { return !parents_.empty(); }

    /// The cells of the tile that are not of the batch, or of the token, or of an ancestor of it.
    std::uint64_t seen_by(const Tile& tile, const Sight& sight) const {
        if (tile.positions[tile.count - 1] < sight.first.value) return tile.all(); // no token of the batch is there
        std::uint64_t seen = 0;
        for (int i = 0; i < tile.count; ++i) {
            const auto found = std::lower_bound(tokens_.begin(), tokens_.end(), tile.cells[i],
                                                [](const TokenInCell& token, Cell cell) { return token.cell < cell; });
            const bool of_batch = found != tokens_.end() && found->cell == tile.cells[i];
            if (!of_batch || is_ancestor(found->token, sight.token)) seen |= std::uint64_t{1} << i;
        }
        return seen;
    }

private:
    // Or the same token. A parent comes before its children.
    bool is_ancestor(std::int32_t ancestor, std::int32_t token) const {
        while (token > ancestor) token = parents_[static_cast<std::size_t>(token)];
        return token == ancestor;
    }

    std::span<const std::int32_t> parents_;
    std::span<const TokenInCell> tokens_;
};

} // namespace cellar::detail
