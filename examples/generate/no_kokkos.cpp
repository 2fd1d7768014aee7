// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "kokkos.hpp"

#include <stdexcept>

namespace llama {

std::unique_ptr<KokkosRuntime> start_kokkos() {
    throw std::runtime_error{"built without Kokkos: it was not found, or CELLAR_WITH_KOKKOS is off"};
}

} // namespace llama
