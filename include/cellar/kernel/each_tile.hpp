// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>

#include <cstdint>

namespace cellar::kernel {

/// A kernel of tiles as one of teams, each of which has memory that its threads share: a team for each tile.
template <class Tile, class Element, class Team>
struct EachTile {
    Tile tile;

    CELLAR_FUNCTION void operator()(const Team& team) const {
        constexpr int bytes = Tile::bytes; // taken by reference, which a member has no address for on a device
        auto* const shared = static_cast<Element*>(team.team_shmem().get_shmem(bytes));
        const std::int64_t at = team.league_rank();
        for (int i = team.team_rank(); i < Tile::elements; i += team.team_size()) tile.read(at, i, shared);
        team.team_barrier();
        for (int i = team.team_rank(); i < Tile::elements; i += team.team_size()) tile.write(at, i, shared);
    }
};

} // namespace cellar::kernel
