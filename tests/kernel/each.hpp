// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/kernel/each_element.hpp>
#include <cellar/kernel/each_tile.hpp>

#include <cstdint>
#include <vector>

namespace cellar_test {

/// A team of Kokkos as one of its threads sees it. It has only the functions that tiles use.
struct Team {
    int tile;
    int rank;
    int size;

    int league_rank() const { return tile; }
    int team_rank() const { return rank; }
    int team_size() const { return size; }
};

template <class Kernel, bool ReadsAlongDims>
class Tiles : public cellar::detail::kernel::EachTile<Kernel, ReadsAlongDims, Team> {
public:
    using Base = cellar::detail::kernel::EachTile<Kernel, ReadsAlongDims, Team>;
    using Base::Base;

    /// Does the work of teams of `size` threads: all threads of a team read, then all write. Calls `between(rank)`
    /// before the work of each thread.
    template <class Between>
    void run(int size, Between between) const {
        for (int tile = 0; tile < this->tiles(); ++tile) {
            std::vector<typename Base::Value> shared(Base::bytes / sizeof(typename Base::Value));
            for (int rank = 0; rank < size; ++rank) {
                between(rank);
                this->read(Team{tile, rank, size}, shared.data());
            }
            for (int rank = 0; rank < size; ++rank) {
                between(rank);
                this->write(Team{tile, rank, size}, shared.data());
            }
        }
    }
};

} // namespace cellar_test
