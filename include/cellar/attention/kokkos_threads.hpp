// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <Kokkos_Core.hpp>

#include <utility>

namespace cellar {

/// The threads of an execution space on the host (OpenMP, Threads, Serial), for `attend`.
template <class ExecutionSpace = Kokkos::DefaultHostExecutionSpace>
class KokkosThreads {
    static_assert(Kokkos::SpaceAccessibility<ExecutionSpace, Kokkos::HostSpace>::accessible,
                  "KokkosThreads: expected an execution space on the host");

public:
    explicit KokkosThreads(ExecutionSpace space = ExecutionSpace{}) : space_{std::move(space)} {}

    /// How many threads `run` uses.
    int count() const { return space_.concurrency(); }

    /// Calls f(0) to f(count() - 1), divided among the threads. Blocks until all calls have returned.
    template <class F>
    void run(F&& f) const {
        Kokkos::parallel_for("cellar::attend", Kokkos::RangePolicy<ExecutionSpace>(space_, 0, count()),
                             [&f](int i) { f(i); });
        space_.fence("cellar::attend");
    }

private:
    ExecutionSpace space_;
};

} // namespace cellar
