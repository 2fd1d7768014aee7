// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/models/description.hpp>
#include <cellar/recurrent/state_shape.hpp>

namespace cellar::models::detail {

/// For the constructor of a memory.
constexpr cellar::StateExtents extents_of(const StateDescription& tensor) {
    const auto& n = tensor.extents;
    const int rank = tensor.rank();
    return rank == 1   ? cellar::StateExtents{n[0]}
           : rank == 2 ? cellar::StateExtents{n[0], n[1]}
                       : cellar::StateExtents{n[0], n[1], n[2]};
}

} // namespace cellar::models::detail
