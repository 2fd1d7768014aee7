// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>

namespace cellar {

class HostBackend;

// The default arguments stand here and nowhere else.

template <class States, BackendPolicy Backend = HostBackend>
class RecurrentMemory;

} // namespace cellar
