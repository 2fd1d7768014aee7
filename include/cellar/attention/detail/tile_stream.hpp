// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/attention/detail/tile.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/score_rule.hpp>
#include <cellar/book/position_runs.hpp>

#include <algorithm>
#include <cstdint>

namespace cellar::detail {

/// Up to tile_cells cells of one sequence, in the order of positions.
struct Tile {
    int count = 0;
    Cell cells[tile_cells];
    std::int32_t positions[tile_cells];

    /// Adds the first ones of a run, as many as there is room for; returns how many.
    std::int32_t take(Position position, Cell cell, std::int32_t n) {
        n = std::min(n, tile_cells - count);
        for (std::int32_t i = 0; i < n; ++i) {
            cells[count + i] = cell + i;
            positions[count + i] = position.value + i;
        }
        count += n;
        return n;
    }

    std::uint64_t all() const { return ~std::uint64_t{0} >> (tile_cells - count); }

    /// The cells that a token sees, a bit each.
    std::uint64_t seen_by(const VisibleRange& token, std::int32_t sinks) const {
        const std::int32_t first = positions[0];
        const std::int32_t last = positions[count - 1];
        if (last < token.to && (first >= token.from || last < sinks)) return all();
        return where([&](int i) { return token.sees(positions[i], sinks); });
    }

    /// The cells that are not of the batch, or of the token, or of an ancestor of it. `first`: no token of the batch is
    /// at a position before it.
    std::uint64_t seen_by(const VisibleRange& token, const TokenTree& tree, std::int32_t first) const {
        if (positions[count - 1] < first) return all();
        return where([&](int i) {
            const std::int32_t other = tree.token_in(cells[i]);
            return other < 0 || tree.is_in_branch(other, token.token);
        });
    }

private:
    template <class Condition>
    std::uint64_t where(Condition holds) const {
        std::uint64_t bits = 0;
        for (int i = 0; i < count; ++i)
            if (holds(i)) bits |= std::uint64_t{1} << i;
        return bits;
    }
};

/// Calls `visit(tile, next)` for the cells at positions [from, to), in tiles, with the tile that follows, or null.
template <class Visit>
class TileStream {
public:
    explicit TileStream(Visit& visit) : visit_{visit} {}

    void add(const PositionRuns& runs, Position from, Position to) {
        if (to <= from) return;
        runs.for_each(from, to, [&](Position position, Cell cell, std::int32_t n) {
            for (std::int32_t taken = 0; taken < n;) {
                taken += tiles_[filling_].take(position + taken, cell + taken, n - taken);
                if (tiles_[filling_].count == tile_cells) next();
            }
        });
    }

    /// Visits what is left. Its next tile is of the cells at positions [from, to), with which another stream begins.
    void finish(const PositionRuns& runs, Position from, Position to) {
        if (tiles_[filling_].count != 0) next();
        if (waiting_ < 0) return;
        Tile& behind = tiles_[filling_];
        if (from < to)
            runs.for_each(from, to,
                          [&](Position position, Cell cell, std::int32_t n) { behind.take(position, cell, n); });
        visit_(tiles_[waiting_], behind.count == 0 ? nullptr : &behind);
        waiting_ = -1;
        behind.count = 0;
    }

private:
    void next() {
        if (waiting_ >= 0) visit_(tiles_[waiting_], static_cast<const Tile*>(&tiles_[filling_]));
        waiting_ = filling_;
        filling_ = 1 - filling_;
        tiles_[filling_].count = 0;
    }

    Visit& visit_;
    Tile tiles_[2];
    int filling_ = 0;
    int waiting_ = -1;
};

} // namespace cellar::detail
