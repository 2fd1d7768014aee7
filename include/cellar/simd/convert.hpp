// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/simd/vector.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace cellar::detail {

template <class From, class To>
CELLAR_SIMD_INLINE void convert_16(const From* from, To* to) {
    using namespace simd::native;
    for (int i = 0; i < 16; i += 2 * lanes)
        Vector::store(to + i, to + i + lanes, Vector::load(from + i), Vector::load(from + i + lanes));
}

/// Converts [from, from + n) to [to, to + n), which must not overlap, where n is at least 16. The last elements may be
/// converted twice.
template <class From, class To>
CELLAR_SIMD_FUNCTION void convert_vectors(const From* from, To* to, std::int64_t n) {
    for (std::int64_t i = 0; i <= n - 16; i += 16) convert_16(from + i, to + i);
    if (n % 16 != 0) convert_16(from + n - 16, to + n - 16);
}

/// The same in a plain loop, for any n.
template <class From, class To>
void convert_elements(const From* from, To* to, std::int64_t n) {
    constexpr std::int64_t chunk = 16; // a loop of constant length compiles to vector code at -O2, too
    const std::int64_t whole = n - n % chunk;
    for (std::int64_t i = 0; i < whole; i += chunk)
        for (std::int64_t k = i; k < i + chunk; ++k) to[k] = static_cast<To>(from[k]);
    for (std::int64_t i = whole; i < n; ++i) to[i] = static_cast<To>(from[i]);
}

/// Converts or copies, with vector instructions where the processor has them.
template <class From, class To>
void convert_run(const From* from, To* to, std::int64_t n) {
    if constexpr (std::is_same_v<From, To>) {
        if (n > 0) std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(To));
    } else {
        if constexpr (simd::native::Vector::converts) {
            if (n >= 16 && simd::is_available()) return convert_vectors(from, to, n);
        }
        convert_elements(from, to, n);
    }
}

} // namespace cellar::detail
