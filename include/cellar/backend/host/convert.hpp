// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/element/element.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace cellar::detail {

#if defined(__x86_64__) && defined(__GNUC__)

// Uses the processor's instructions for eight halves at a time if it has them, also in programs compiled for processors
// without. With the compilers' builtins, because <immintrin.h> costs every translation unit half a second.
struct HalfConversion {
    using Floats = float __attribute__((vector_size(32)));
    using Halves = short __attribute__((vector_size(16)));

    static constexpr std::int64_t width = 8;

    // Every processor with AVX2 has F16C, which not all compilers can query.
    static bool is_available() { return static_cast<bool>(__builtin_cpu_supports("avx2")); }

    [[gnu::target("avx,f16c")]] static void run(const half* from, float* to, std::int64_t n) {
        for (std::int64_t i = 0; i < n; i += width) {
            Halves halves;
            std::memcpy(&halves, from + i, sizeof(halves));
            const Floats floats = __builtin_ia32_vcvtph2ps256(halves);
            std::memcpy(to + i, &floats, sizeof(floats));
        }
    }

    [[gnu::target("avx,f16c")]] static void run(const float* from, half* to, std::int64_t n) {
        constexpr int to_nearest_even = 0;
        for (std::int64_t i = 0; i < n; i += width) {
            Floats floats;
            std::memcpy(&floats, from + i, sizeof(floats));
            const Halves halves = __builtin_ia32_vcvtps2ph256(floats, to_nearest_even);
            std::memcpy(to + i, &halves, sizeof(halves));
        }
    }

    /// Rotates pairs (first[i], second[i]) by factors[i], for i < n, where n is a multiple of `width`.
    template <class Rotation, class Factor>
    [[gnu::target("avx,f16c")]] static void rotate(const Rotation& rotation, const Factor* factors, half* first,
                                                   half* second, std::int64_t n) {
        for (std::int64_t i = 0; i < n; i += width) {
            float a[width];
            float b[width];
            run(first + i, a, width);
            run(second + i, b, width);
            for (std::int64_t k = 0; k < width; ++k) rotation.rotate(a[k], b[k], factors[i + k]);
            run(a, first + i, width);
            run(b, second + i, width);
        }
    }
};

#else

struct HalfConversion {
    static constexpr std::int64_t width = 1;

    static bool is_available() { return false; }

    template <class Rotation, class Factor>
    static void rotate(const Rotation&, const Factor*, half*, half*, std::int64_t) {}

    template <class From, class To>
    static void run(const From*, To*, std::int64_t) {}
};

#endif

/// Converts or copies [from, from + n) to [to, to + n), which must not overlap.
template <class From, class To>
void convert(const From* from, To* to, std::int64_t n) {
    if constexpr (std::is_same_v<From, To>) {
        if (n > 0) std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(To));
    } else {
        std::int64_t i = 0;
        if constexpr (std::is_same_v<From, half> || std::is_same_v<To, half>) {
            if (HalfConversion::is_available()) {
                i = n - n % HalfConversion::width;
                HalfConversion::run(from, to, i);
            }
        }
        constexpr std::int64_t chunk = 16; // a loop of constant length compiles to vector code at -O2, too
        for (; i + chunk <= n; i += chunk)
            for (std::int64_t k = i; k < i + chunk; ++k) to[k] = static_cast<To>(from[k]);
        for (; i < n; ++i) to[i] = static_cast<To>(from[i]);
    }
}

} // namespace cellar::detail
