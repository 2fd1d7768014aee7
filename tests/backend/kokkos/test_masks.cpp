// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Masks by device work on the host's cores.
#include "backend/kokkos/device_on_host.hpp"
#include "backend/masks.hpp"
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

namespace test_masks {

using namespace cellar;
using cellar_test::LateDevice;

static_assert(WritesMasks<LateDevice> && UploadsCells<LateDevice>);
static_assert(!WritesMasks<KokkosBackend<Kokkos::DefaultHostExecutionSpace>>);
static_assert(!UploadsCells<KokkosBackend<Kokkos::DefaultHostExecutionSpace>>);

TEST_CASE("masks by device work: equal to those of the host") {
    cellar_test::check_masks_of_passes<LateDevice>();
}

TEST_CASE("masks by device work: a reserved pass sees all cells, and later masks are at the same address") {
    cellar_test::check_reserved_masks<LateDevice>();
}

} // namespace test_masks
