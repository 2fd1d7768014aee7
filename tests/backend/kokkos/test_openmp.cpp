// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cellar/backend/kokkos.hpp>

#ifdef KOKKOS_ENABLE_OPENMP
#define CELLAR_BACKEND cellar::KokkosBackend<Kokkos::OpenMP>
#include "backend/kokkos/suite.hpp"
#endif
