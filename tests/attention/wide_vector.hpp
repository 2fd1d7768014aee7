// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/attention/detail/tile_kernels.hpp>

#include <cstdint>

// How to pass wide vectors, which are never passed: all is inline. To the end of the file, where templates are made.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace attention_test {

/// 16 lanes, by whatever instructions there are.
struct WideVector {
    static constexpr int lanes = 16;
    using Floats = float __attribute__((vector_size(64)));
    using Ints = std::int32_t __attribute__((vector_size(64)));

    template <class E>
    static constexpr bool loads = true;

    template <class E>
    static Floats load(const E* from) {
        return load_some(from, lanes);
    }
    /// Eight elements, and zeros behind them.
    template <class E>
    static Floats load_half(const E* from) {
        return load_some(from, lanes / 2);
    }
    static Floats in_register(Floats floats) { return floats; }

private:
    template <class E>
    static Floats load_some(const E* from, int n) {
        Floats floats{};
        for (int i = 0; i < n; ++i) floats[i] = static_cast<float>(from[i]);
        return floats;
    }
};

} // namespace attention_test
