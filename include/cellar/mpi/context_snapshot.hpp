// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/cache/cell_snapshot.hpp>
#include <cellar/mpi/detail/kept_positions.hpp>

#include <cstdint>
#include <utility>

namespace cellar::mpi {

/// What a sequence has, kept whatever happens to the sequence: the cells of this rank, in place, and which positions
/// all ranks have. Made by `ContextParallel::snapshot` on all ranks. Each rank may destroy its own at any time: its
/// cells are then free again. Move-only. Must not be used after its memory was destroyed.
class ContextSnapshot {
public:
    /// The position of the next token.
    Position to() const { return kept_.end(); }

    /// How many tokens this rank has of it.
    std::int32_t stored_tokens() const { return local_.tokens(); }

private:
    template <class Cache>
    friend class ContextParallel;

    ContextSnapshot(CellSnapshot&& local, const detail::KeptPositions& kept, std::uint64_t number)
        : local_{std::move(local)}, kept_{kept}, number_{number} {}

    CellSnapshot local_;
    detail::KeptPositions kept_;
    std::uint64_t number_; // the same on all ranks
};

} // namespace cellar::mpi
