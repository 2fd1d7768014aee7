// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cellar/backend/host.hpp>

#define CELLAR_BACKEND cellar::HostBackend
#include "backend/ladder.hpp"

TEST_CASE_TEMPLATE("heads too long for the buffer on the stack are rotated, too", E, float, cellar::half) {
    std::mt19937 random{1};
    for (const int dim : {514, 1024, 1300}) {
        cellar_test::Memory<cellar::HostBackend, cellar::CellsHeadsDims, E> memory{4, 2, dim};
        memory.fill(random);
        const auto frequencies = cellar::rope_frequencies(dim);
        const cellar::RopeShift<> shift{frequencies};
        const std::vector<cellar::KeyRotation> rotations{{0, 1, 7}, {1, 1, 7}, {3, 1, -9}};
        memory.rotate(shift, 0, rotations);
        CHECK(cellar_test::is_rotated_by(memory, frequencies, shift, rotations));
    }
}
