// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cellar/backend/kokkos.hpp>

#ifdef KOKKOS_ENABLE_SERIAL
#define CELLAR_BACKEND cellar::KokkosBackend<Kokkos::Serial>
#include "backend/kokkos/suite.hpp"
#endif
