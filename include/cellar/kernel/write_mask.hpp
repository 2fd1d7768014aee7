// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/base/view.hpp>

#include <cstdint>

namespace cellar::kernel {

/// Spells out one element of a mask whose rows are given as bits, 64 to a word, in whole words. Elements are
/// independent: any order.
template <class T>
struct WriteMask {
    const std::uint64_t* bits;
    T visible;
    T hidden;
    StridedView<T, 2> mask; ///< [tokens, history]

    CELLAR_FUNCTION void operator()(std::int64_t index) const {
        const std::int64_t history = mask.extent(1);
        const std::int64_t row = index / history;
        const std::int64_t cell = index % history;
        const std::uint64_t word = bits[row * ((history + 63) / 64) + cell / 64];
        mask(row, cell) = (word >> (cell % 64) & 1) != 0 ? visible : hidden;
    }
};

} // namespace cellar::kernel
