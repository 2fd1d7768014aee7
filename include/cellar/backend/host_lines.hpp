// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/host_convert.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

/// Pieces of memory as the processor fetches and writes them, in lines of 64 bytes.
namespace cellar::detail {

/// The processor's caches. The first one is small, and what lies a power of two apart pushes one another out of it: what
/// is asked for long before it is read goes to the second one. Of that, processors may do nothing now and then.
enum class CacheLevel { first = 3, second = 2 };

/// Asks for what will be read.
template <CacheLevel Level, class T>
void prefetch(const T* first, std::int64_t n) {
#if defined(__GNUC__)
    constexpr std::int64_t line = 64 / sizeof(T);
    for (std::int64_t i = 0; i < n; i += line) __builtin_prefetch(first + i, 0, static_cast<int>(Level));
#endif
}

/// A copy that is inlined for a single element.
template <class E>
void copy_run(const E* from, E* to, std::int64_t n) {
    if (n == 1) {
        *to = *from;
    } else if (n > 0) { // with none there may be no memory
        std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(E));
    }
}

#if defined(__SSE2__) && defined(__GNUC__) && !defined(__CUDACC__)

// By the compilers' own names, as <emmintrin.h> is not of the standard library.
struct Streamed {
    using Words = long long __attribute__((vector_size(16)));

    static void write(const void* from, void* to) {
        Words words;
        std::memcpy(&words, from, sizeof(words));
#if defined(__clang__)
        __builtin_nontemporal_store(words, static_cast<Words*>(to));
#else
        __builtin_ia32_movntdq(static_cast<Words*>(to), words);
#endif
    }
};

/// A copy past the caches: whole lines of memory are written without being read before. To be followed by `streamed`.
template <class E>
void stream_run(const E* from, E* to, std::int64_t n) {
    constexpr std::int64_t line = 64 / sizeof(E);
    if (n < line) return copy_run(from, to, n);
    const auto address = reinterpret_cast<std::uintptr_t>(to);
    const auto before = static_cast<std::int64_t>((64 - address % 64) % 64 / sizeof(E));
    copy_run(from, to, before);
    std::int64_t i = before;
    for (; i + line <= n; i += line)
        for (std::int64_t k = 0; k < line; k += 16 / std::int64_t{sizeof(E)}) Streamed::write(from + i + k, to + i + k);
    copy_run(from + i, to + i, n - i);
}
inline void streamed() {
    __builtin_ia32_sfence();
}

#else

template <class E>
void stream_run(const E* from, E* to, std::int64_t n) {
    copy_run(from, to, n);
}
inline void streamed() {}

#endif

/// The same, or a conversion.
template <class From, class To>
void stream(const From* from, To* to, std::int64_t n) {
    if constexpr (std::is_same_v<From, To>) {
        stream_run(from, to, n);
    } else {
        convert(from, to, n);
    }
}

} // namespace cellar::detail
