// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a device must pass: the ladder, the agreement with the Eigen backend, passes, states and masks. On a device, if
// Kokkos was built for one, else on `Late`. Attention is in test_device_attention.cpp. Left out are the conformance
// cases and the naive model, because they read keys and values on the host. scripts/gpu-test selects these cases by
// "device: ", and those of the ladder by `TheDevice`, of which no other source may make a template's case: its name
// would be one or the other.
#include "backend/kokkos/device_on_host.hpp"
#include <cellar/backend/kokkos.hpp>

#define CELLAR_BACKEND cellar_test::TheDevice
#include "backend/agreement.hpp"
#include "backend/kokkos/offloading.hpp"
#include "backend/kokkos/passes.hpp"
#include "backend/kokkos/prefixes.hpp"
#include "backend/kokkos/states.hpp"
#include "backend/ladder.hpp"
#include "backend/masks.hpp"

namespace test_device {

TEST_CASE("device: agrees with the Eigen backend") {
    cellar_test::check_agreement<CELLAR_BACKEND>(3, 3000);
}

TEST_CASE("device: passes equal those on the host") {
    cellar_test::check_passes<CELLAR_BACKEND, cellar::StandardV<cellar::half>>();
    cellar_test::check_passes<CELLAR_BACKEND, cellar::PermutedV<float>>();
}

TEST_CASE("device: states equal those on the host") {
    cellar_test::check_states<CELLAR_BACKEND>();
}

TEST_CASE("device: rows are offloaded and reloaded while passes of other sequences go on, as on the host") {
    for (const cellar::OffloadTo to :
         {cellar::OffloadTo::host, cellar::OffloadTo::pinned_host, cellar::OffloadTo::backend}) {
        cellar_test::check_offloading<CELLAR_BACKEND, cellar::StandardV<cellar::half>>(to);
        cellar_test::check_offloading<CELLAR_BACKEND, cellar::PermutedV<float>>(to);
    }
}

TEST_CASE("device: rows that are offloaded are divided and joined wherever they are, as on the host") {
    for (const cellar::OffloadTo to :
         {cellar::OffloadTo::host, cellar::OffloadTo::pinned_host, cellar::OffloadTo::backend}) {
        for (const cellar::OffloadTo other :
             {cellar::OffloadTo::host, cellar::OffloadTo::pinned_host, cellar::OffloadTo::backend}) {
            cellar_test::check_parts<CELLAR_BACKEND, cellar::StandardV<cellar::half>>(to, other);
            cellar_test::check_parts<CELLAR_BACKEND, cellar::PermutedV<float>>(to, other);
        }
    }
}

TEST_CASE("device: states are offloaded and reloaded while passes of other sequences go on, as on the host") {
    for (const cellar::OffloadTo to :
         {cellar::OffloadTo::host, cellar::OffloadTo::pinned_host, cellar::OffloadTo::backend})
        cellar_test::check_state_offloading<CELLAR_BACKEND>(to);
}

TEST_CASE("device: the prefixes of a tree are offloaded and come back wherever they are, as on the host") {
    for (const cellar::OffloadTo to :
         {cellar::OffloadTo::host, cellar::OffloadTo::pinned_host, cellar::OffloadTo::backend}) {
        cellar_test::check_prefix_offloading<CELLAR_BACKEND, cellar::StandardV<cellar::half>>(to);
        cellar_test::check_prefix_offloading<CELLAR_BACKEND, cellar::PermutedV<float>>(to);
    }
}

TEST_CASE("device: masks of every element type, at sizes around words") {
    cellar_test::check_written_masks<CELLAR_BACKEND>();
}

} // namespace test_device
