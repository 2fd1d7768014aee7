// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "jobs.hpp"

#include <cstddef>
#include <cstring>
#include <vector>

/// The machine's limits: reading the clock, which is part of every figure, and copying memory.
namespace cellar::bench {
namespace {

void measure_clock(benchmark::State& state) {
    measure(state, [](Stopwatch& watch) {
        watch.start();
        watch.stop();
    });
}

void measure_memcpy(benchmark::State& state) {
    constexpr std::size_t bytes = std::size_t{64} << 20;
    const std::vector<char> from(bytes, 1);
    std::vector<char> to(bytes, 2);
    measure(state, [&](Stopwatch& watch) {
        watch.start();
        std::memcpy(to.data(), from.data(), bytes);
        watch.stop();
    });
    state.SetBytesProcessed(static_cast<std::int64_t>(bytes) * state.iterations());
}

} // namespace

void add_limits() {
    add("limit/clock", measure_clock);
    add("limit/memcpy_64MiB", measure_memcpy);
}

} // namespace cellar::bench
