// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Masks and passes of device work, on the cores of the host.
#include "backend/kokkos/device_on_host.hpp"
#include "backend/kokkos/passes.hpp"
#include "backend/masks.hpp"
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

using namespace cellar;
using cellar_test::DeviceOnHost;

static_assert(WritesMasks<DeviceOnHost> && UploadsCells<DeviceOnHost>);
static_assert(!WritesMasks<KokkosBackend<Kokkos::DefaultHostExecutionSpace>>);
static_assert(!UploadsCells<KokkosBackend<Kokkos::DefaultHostExecutionSpace>>);

TEST_CASE("device work in passes: as on the host") {
    cellar_test::check_passes<DeviceOnHost, StandardV<cellar::half>>();
    cellar_test::check_passes<DeviceOnHost, PermutedV<float>>();
}

TEST_CASE("masks on the device: every element and size") {
    cellar_test::check_written_masks<DeviceOnHost>();
}

TEST_CASE("masks on the device: as the host writes them") {
    cellar_test::check_masks_of_passes<DeviceOnHost>();
}

TEST_CASE("masks on the device: a reserved pass sees all, and no mask moves after it") {
    cellar_test::check_reserved_masks<DeviceOnHost>();
}
