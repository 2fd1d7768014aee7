// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/kernel/pack.hpp>

#include <cstdint>

namespace cellar::kernel {

/// Spells out one pack of a mask [tokens, history] whose rows are given as bits, 64 to a word, in whole words. Packs
/// are independent: any order. N divides 64 and the history.
template <class T, int N>
struct WriteMask {
    const std::uint64_t* bits;
    T visible;
    T hidden;
    Pack<T, N>* mask;
    std::int64_t history;

    CELLAR_FUNCTION void operator()(std::int64_t index) const {
        const std::int64_t packs = history / N;
        const std::int64_t row = index / packs;
        const std::int64_t cell = index % packs * N;
        const std::uint64_t word = bits[row * ((history + 63) / 64) + cell / 64] >> (cell % 64);
        Pack<T, N> pack;
        for (int i = 0; i < N; ++i) pack.elements[i] = (word >> i & 1) != 0 ? visible : hidden;
        mask[index] = pack;
    }
};

} // namespace cellar::kernel
