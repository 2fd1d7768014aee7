// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cellar/backend/kokkos.hpp>

// The ladder and the agreement with the Eigen backend on a device, if Kokkos was built for one. Left out are the
// conformance cases and the naive model, because they read keys and values on the host.
#if defined(KOKKOS_ENABLE_CUDA) || defined(KOKKOS_ENABLE_HIP)
#define CELLAR_BACKEND cellar::KokkosBackend<>
#include "backend/agreement.hpp"
#include "backend/kokkos/passes.hpp"
#include "backend/kokkos/states.hpp"
#include "backend/ladder.hpp"
#include "backend/masks.hpp"

TEST_CASE("a device agrees with the Eigen backend") {
    cellar_test::check_agreement<CELLAR_BACKEND>(3, 3000);
}

TEST_CASE("passes on a device equal those on the host") {
    cellar_test::check_passes<CELLAR_BACKEND, cellar::StandardV<cellar::half>>();
    cellar_test::check_passes<CELLAR_BACKEND, cellar::PermutedV<float>>();
}

TEST_CASE("states on a device equal those on the host") {
    cellar_test::check_states<CELLAR_BACKEND>();
}

TEST_CASE("a device writes masks") {
    cellar_test::check_written_masks<CELLAR_BACKEND>();
}
#endif
