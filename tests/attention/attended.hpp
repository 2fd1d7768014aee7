// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/attention/attend.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace attention_test {

using Floats = std::vector<float>;

/// The sets of instructions that this processor has.
inline std::vector<cellar::detail::Instructions> instructions() {
    using enum cellar::detail::Instructions;
    std::vector<cellar::detail::Instructions> found{baseline};
    if (cellar::detail::best_instructions() >= avx2) found.push_back(avx2);
    if (cellar::detail::best_instructions() >= avx512) found.push_back(avx512);
    if (cellar::detail::best_instructions() >= amx) found.push_back(amx);
    return found;
}

/// Numbers between -1 and 1 that look random: the same ones for the same `first`.
inline Floats wave(int n, int first) {
    Floats floats(static_cast<std::size_t>(n));
    for (int i = 0; i < n; ++i)
        floats[static_cast<std::size_t>(i)] = static_cast<float>(std::sin(first + 1.7 * i + 0.3 * i * i));
    return floats;
}

/// Threads of the test's own.
struct SomeThreads {
    int n;
    int count() const { return n; }
    template <class F>
    void run(F&& f) const {
        std::vector<std::thread> threads;
        for (int i = 1; i < n; ++i) threads.emplace_back([&f, i] { f(i); });
        f(0);
        for (std::thread& thread : threads) thread.join();
    }
};

/// How far a result may be from the exact one. A score is a sum of key_dim products, each at most `product` in all: its
/// error is at most (key_dim + 4) * product * u, and 4 u of itself from the scale, the bias and the cap. With s the
/// error of all scores, weights are off by a factor of 1 + s + 4 u, both above and below the line; values add a
/// rounding for each of n cells.
inline double bound(int key_dim, double product, double score, double bias, double value, std::int64_t cells) {
    constexpr double u = 0x1p-24;
    const double s = (key_dim + 4) * product * u + 4 * (score + bias + 1) * u;
    return value * (2 * s + (static_cast<double>(cells) + 16) * u);
}

} // namespace attention_test
