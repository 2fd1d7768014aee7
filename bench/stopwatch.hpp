// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <ctime>
#include <string>
#include <vector>

namespace cellar::bench {

/// Set where a device works: the processor time of the thread that waits for it says nothing.
inline bool work_is_elsewhere = false;

/// Times a part of a benchmark's iteration and reports the median over all iterations as the counter `ns` (and the 99th
/// percentile as `p99`): the part of one iteration may be a few hundred nanoseconds among work that is not timed. The
/// clock's own time is in every figure; the benchmark `clock` says what it is. Work of more than 50 us is measured in the
/// processor time of the thread, so that other programs on the machine count for less.
class Stopwatch {
public:
    void start() {
        benchmark::ClobberMemory();
        if (long_) cpu_ = thread_time();
        start_ = Clock::now();
    }

    /// Ends an interval in which the same thing was done `operations` times.
    void stop(int operations = 1) {
        double passed = std::chrono::duration<double, std::nano>(Clock::now() - start_).count();
        if (long_) passed = thread_time() - cpu_;
        benchmark::ClobberMemory();
        long_ = passed > 50'000 && !work_is_elsewhere;
        last_ = passed / operations;
        if (samples_.size() < most_samples) samples_.push_back(last_);
    }

    /// What was timed so far does not count.
    void forget() { samples_.clear(); }

    double last_seconds() const { return last_ * 1e-9; }

    double median() { return percentile(0.5); }

    void report(benchmark::State& state) {
        state.counters["ns"] = median();
        state.counters["p99"] = percentile(0.99);
    }

private:
    using Clock = std::chrono::steady_clock;
    static constexpr std::size_t most_samples = std::size_t{1} << 22;

    static double thread_time() {
        std::timespec t{};
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
    }

    double percentile(double part) {
        if (samples_.empty()) return 0;
        const auto at = static_cast<std::ptrdiff_t>(part * static_cast<double>(samples_.size() - 1));
        std::nth_element(samples_.begin(), samples_.begin() + at, samples_.end());
        return samples_[static_cast<std::size_t>(at)];
    }

    Clock::time_point start_;
    double cpu_ = 0;
    double last_ = 0;
    bool long_ = false;
    std::vector<double> samples_;
};

/// Runs `iteration(watch)`, which starts and stops the watch once, over and over.
template <class Iteration>
void measure(benchmark::State& state, Iteration iteration) {
    Stopwatch watch;
    iteration(watch); // memory that is touched for the first time is not what is measured
    watch.forget();
    for (auto _ : state) {
        iteration(watch);
        state.SetIterationTime(watch.last_seconds());
    }
    watch.report(state);
}

/// Registers a benchmark of a Stopwatch. `iterations`: 0, or how often, where bringing back the state that is measured
/// takes much longer than the measured part.
template <class Function>
void add(const std::string& name, Function function, int iterations = 0) {
    auto* const registered = benchmark::RegisterBenchmark(name.c_str(), function)->UseManualTime();
    if (iterations != 0) registered->Iterations(iterations);
}

} // namespace cellar::bench
