// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cellar/backend/host.hpp>

#define CELLAR_BACKEND cellar::HostBackend
#include "backend/ladder.hpp"
