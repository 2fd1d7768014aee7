// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

/// Copies and prefetches in units of cache lines.
namespace cellar::detail {

inline constexpr std::int64_t line_bytes = 64;

/// Which cache to prefetch into. Addresses a power of two apart conflict in the small first-level cache, so early
/// prefetches go to the second level. Processors may drop such prefetches.
enum class CacheLevel { first = 3, second = 2 };

/// Prefetches n elements that will be read. Always inlined, because GCC 12 drops calls of functions that only prefetch.
template <CacheLevel Level, class T>
[[gnu::always_inline]] inline void prefetch(const T* first, std::int64_t n) {
#if defined(__GNUC__)
    constexpr std::int64_t line = sizeof(T) < line_bytes ? line_bytes / std::int64_t{sizeof(T)} : 1;
    for (std::int64_t i = 0; i < n; i += line) __builtin_prefetch(first + i, 0, static_cast<int>(Level));
#endif
}

/// A copy; inlined for a single element.
template <class E>
void copy_run(const E* from, E* to, std::int64_t n) {
    if (n == 1) {
        *to = *from;
    } else if (n > 0) { // without elements, pointers may be null
        std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(E));
    }
}

#if defined(__SSE2__) && defined(__GNUC__) && !defined(__CUDACC__)

inline constexpr bool streams = true;

// With the compilers' builtins, because <emmintrin.h> is not part of the standard library.
inline void stream_line(const void* from, void* to) {
    using Words = long long __attribute__((vector_size(16), may_alias));
    Words words[4];
    std::memcpy(words, from, sizeof(words));
    for (int k = 0; k < 4; ++k) {
#if defined(__clang__)
        __builtin_nontemporal_store(words[k], static_cast<Words*>(to) + k);
#else
        __builtin_ia32_movntdq(static_cast<Words*>(to) + k, words[k]);
#endif
    }
}
inline void streamed() {
    __builtin_ia32_sfence();
}

#elif defined(__aarch64__) && defined(__GNUC__) && !defined(__CUDACC__)

inline constexpr bool streams = true;

// A hint, which the processor may ignore. The order of other threads' reads is that of ordinary stores.
inline void stream_line(const void* from, void* to) {
    using Words = long long __attribute__((vector_size(16), may_alias));
    struct [[gnu::may_alias]] Pair {
        Words words[2];
    };
    for (int k = 0; k < 2; ++k) {
        Words first, second; // not as a pair, which g++ would copy to the stack first
        std::memcpy(&first, static_cast<const Pair*>(from)[k].words, sizeof(first));
        std::memcpy(&second, static_cast<const Pair*>(from)[k].words + 1, sizeof(second));
        asm("stnp %q1, %q2, %0" : "=Q"(static_cast<Pair*>(to)[k]) : "w"(first), "w"(second));
    }
}
inline void streamed() {}

#else

inline constexpr bool streams = false;

inline void stream_line(const void*, void*) {}
inline void streamed() {}

#endif

/// A copy that bypasses the caches: whole lines are written without being read first. `streamed` must follow. While it
/// copies, it prefetches as many elements from `ahead` on, if given.
template <class E>
void stream_run(const E* from, E* to, std::int64_t n, const E* ahead = nullptr) {
    if constexpr (!streams) {
        copy_run(from, to, n);
        // NOLINTNEXTLINE(misc-redundant-expression): they differ for some types
    } else if constexpr (sizeof(E) != alignof(E)) { // such units do not begin at every line
        return stream_run(reinterpret_cast<const std::byte*>(from), reinterpret_cast<std::byte*>(to),
                          n * std::int64_t{sizeof(E)}, reinterpret_cast<const std::byte*>(ahead));
    } else {
        constexpr std::int64_t line = line_bytes / std::int64_t{sizeof(E)};
        if (n < line) return copy_run(from, to, n);
        const auto address = reinterpret_cast<std::uintptr_t>(to);
        const auto before = static_cast<std::int64_t>((64 - address % 64) % 64 / sizeof(E));
        copy_run(from, to, before);
        std::int64_t i = before;
        for (; i + line <= n; i += line) {
            if (ahead != nullptr) __builtin_prefetch(ahead + i, 0, static_cast<int>(CacheLevel::second));
            stream_line(from + i, to + i);
        }
        copy_run(from + i, to + i, n - i);
    }
}

} // namespace cellar::detail
