// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/kernel/pack.hpp>

#include <cstdint>

namespace cellar::detail::kernel {

/// Expands the rows of a mask [tokens, history] from bits, whole words of 64 per row, into packs of N elements. N
/// divides 64 and the history. Its indices are (token, 0, pack).
template <class T, int N>
struct WriteMask {
    using Value = Pack<T, N>;

    const std::uint64_t* bits;
    T visible;
    T hidden;
    Pack<T, N>* mask;
    std::int64_t history;

    CELLAR_FUNCTION Value read(std::int64_t token, std::int64_t, std::int64_t pack) const {
        const std::int64_t cell = pack * N;
        const std::uint64_t word = bits[token * ((history + 63) / 64) + cell / 64] >> (cell % 64);
        Value value;
        for (int i = 0; i < N; ++i) value.elements[i] = (word >> i & 1) != 0 ? visible : hidden;
        return value;
    }
    CELLAR_FUNCTION void write(std::int64_t token, std::int64_t, std::int64_t pack, const Value& value) const {
        mask[token * (history / N) + pack] = value;
    }
};

} // namespace cellar::detail::kernel
