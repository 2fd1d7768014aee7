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

/// True if a device or other threads do the work. Processor time would then measure only the thread that waits.
inline bool real_time_only = false;

/// Times an interval of each iteration and reports the median as the counter `ns` and the 99th percentile as `p99`. The
/// interval may last a few hundred nanoseconds, between work that is not timed. Every figure includes the time that it
/// takes to read the clock, which `limit/clock` measures. After an interval of more than 50 us, the next one is
/// measured in the thread's processor time, which other programs on the machine affect less.
class Stopwatch {
public:
    void start() {
        benchmark::ClobberMemory();
        if (long_) cpu_ = thread_time();
        start_ = Clock::now();
    }

    /// Ends an interval that contained `operations` equal operations.
    void stop(int operations = 1) {
        double passed = std::chrono::duration<double, std::nano>(Clock::now() - start_).count();
        if (long_) passed = thread_time() - cpu_;
        benchmark::ClobberMemory();
        long_ = passed > 50'000 && !real_time_only;
        last_ = passed / operations;
        if (samples_.size() < max_samples) samples_.push_back(last_);
    }

    /// Discards the samples so far.
    void forget() { samples_.clear(); }

    double last_seconds() const { return last_ * 1e-9; }

    double median() { return percentile(0.5); }

    void report(benchmark::State& state) {
        state.counters["ns"] = median();
        state.counters["p99"] = percentile(0.99);
    }

private:
    using Clock = std::chrono::steady_clock;
    static constexpr std::size_t max_samples = std::size_t{1} << 22;

    static double thread_time() {
        std::timespec t{};
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
    }

    double percentile(double fraction) {
        if (samples_.empty()) return 0;
        const auto at = static_cast<std::ptrdiff_t>(fraction * static_cast<double>(samples_.size() - 1));
        std::nth_element(samples_.begin(), samples_.begin() + at, samples_.end());
        return samples_[static_cast<std::size_t>(at)];
    }

    Clock::time_point start_;
    double cpu_ = 0;
    double last_ = 0;
    bool long_ = false;
    std::vector<double> samples_;
};

/// Runs `iteration(watch)` repeatedly. Each call starts and stops the watch once.
template <class Iteration>
void measure(benchmark::State& state, Iteration iteration) {
    Stopwatch watch;
    iteration(watch); // warms up: touching memory for the first time is not measured
    watch.forget();
    for (auto _ : state) {
        iteration(watch);
        state.SetIterationTime(watch.last_seconds());
    }
    watch.report(state);
}

/// Registers a benchmark that uses a Stopwatch. `iterations`: a fixed number, for a benchmark whose preparation takes
/// much longer than the measured part; 0 lets the library choose.
template <class Function>
void add(const std::string& name, Function function, int iterations = 0) {
    auto* const registered = benchmark::RegisterBenchmark(name.c_str(), function)->UseManualTime();
    if (iterations != 0) registered->Iterations(iterations);
}

} // namespace cellar::bench
