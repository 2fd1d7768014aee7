// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/attention/detail/tile_kernels.hpp>

#include <cstdint>

namespace attention_test {

/// 16 lanes, by whatever instructions there are. Its vectors are never passed: all is inlined, as in the kernels.
struct WideVector {
    static constexpr int lanes = 16;
    using Floats = float __attribute__((vector_size(64)));
    using Ints = std::int32_t __attribute__((vector_size(64)));

    template <class E>
    [[gnu::always_inline]] static inline Floats load(const E* from) {
        return load_some(from, lanes);
    }
    /// Eight elements, and zeros behind them.
    template <class E>
    [[gnu::always_inline]] static inline Floats load_eight(const E* from) {
        return load_some(from, lanes / 2);
    }
    [[gnu::always_inline]] static inline Floats in_register(Floats floats) { return floats; }

private:
    template <class E>
    [[gnu::always_inline]] static inline Floats load_some(const E* from, int n) {
        Floats floats{};
        for (int i = 0; i < n; ++i) floats[i] = static_cast<float>(from[i]);
        return floats;
    }
};

} // namespace attention_test
