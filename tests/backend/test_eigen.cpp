// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cellar/backend/eigen.hpp>

#define CELLAR_BACKEND cellar::EigenBackend
#include "backend/ladder.hpp"
