// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/named_only.hpp>

#include <chrono>

namespace cellar::mpi {

/// How ranks keep their memories alike.
struct LockstepOptions {
    NamedOnly named_only{};
    /// Every operation compares calls and bookkeeping of all ranks, and a rank that differs is a violation. Costs a
    /// message to every other rank, and O(runs). The default of a program that is compiled with `NDEBUG` is false.
#if defined(NDEBUG)
    bool compares = false;
#else
    bool compares = true;
#endif
    /// How long an operation waits for the other ranks. 0: without limit.
    std::chrono::milliseconds time_limit = std::chrono::seconds{60};
};

} // namespace cellar::mpi
