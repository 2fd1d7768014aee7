// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/attention/detail/tile.hpp>
#include <cellar/attention/detail/vector.hpp>
#include <cellar/backend/host/lines.hpp>
#include <cellar/element/bfloat16.hpp>
#include <cellar/element/half.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#if defined(CELLAR_HAS_X86_VECTORS) && defined(__linux__) && !defined(__ILP32__) && !defined(CELLAR_WITHOUT_AMX)
#define CELLAR_HAS_AMX 1
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace cellar::detail {

/// A matrix unit has registers of 16 rows of 64 bytes: matrices of floats [16, 16], or of bfloat16 [16, 32].
inline constexpr std::int64_t matrix_rows = 16;
inline constexpr std::int64_t matrix_depth = 32;
inline constexpr std::int64_t matrix_bytes = 1024;

/// A float has up to three pieces: see kernels_for_matrix_unit.hpp.
inline constexpr int max_pieces = 3;

/// How many pieces hold an element without a loss.
template <class E>
inline constexpr int pieces_of = std::is_same_v<E, bfloat16> ? 1
                                 : std::is_same_v<E, half>   ? 2
                                                             : max_pieces;

/// Kernels take two by two matrices at a time.
constexpr std::int64_t matrices_for(std::int64_t rows) {
    return (rows + 2 * matrix_rows - 1) / (2 * matrix_rows) * 2;
}
/// The steps of a sum of n products.
constexpr std::int64_t steps_of(std::int64_t n) {
    return (n + matrix_depth - 1) / matrix_depth;
}
constexpr std::int64_t split_bytes(std::int64_t rows, std::int64_t n, int pieces) {
    return pieces * matrices_for(rows) * steps_of(n) * matrix_bytes;
}

/// Rows that were split into pieces.
struct SplitRows {
    const std::byte* matrices;
    int pieces;
};

/// out [rows, width] = left [rows, n] * right [n, width], or += if `adds`. Width is a multiple of 16.
struct Product {
    std::int64_t rows;
    std::int64_t n;
    std::int64_t width;
    float* out;
    std::ptrdiff_t stride;
    bool adds;
};

/// The kernels of a matrix unit. Null where there is none.
struct MatrixKernels {
    bool (*split_left)(const float*, std::ptrdiff_t, int, std::int64_t, int, std::byte*) = nullptr;
    void (*multiply)(const SplitRows&, const SplitRows&, const Product&, const FetchedRows&) = nullptr;

    explicit operator bool() const { return multiply != nullptr; }
};

#ifdef CELLAR_HAS_AMX

/// The registers of Intel's AMX.
struct AmxMatrices {
    static bool are_there() {
        constexpr unsigned needed = 1U << 22 | 1U << 24; // AMX-BF16 and AMX-TILE
        unsigned registers[4] = {};
        return Avx512Vector::is_available()
               && __get_cpuid_count(7, 0, &registers[0], &registers[1], &registers[2], &registers[3]) != 0
               && (registers[3] & needed) == needed;
    }
    /// Asks Linux for permission to use them, for the whole process.
    static bool are_permitted() {
        constexpr long ask = 0x1023;   // ARCH_REQ_XCOMP_PERM
        constexpr long tile_data = 18; // XFEATURE_XTILEDATA
        return ::syscall(SYS_arch_prctl, ask, tile_data) == 0;
    }

    [[gnu::target("amx-tile,amx-bf16"), gnu::always_inline]] static inline void start() {
        struct alignas(64) {
            std::uint8_t palette, start_row, reserved[14];
            std::uint16_t row_bytes[16];
            std::uint8_t rows[16];
        } config{};
        config.palette = 1;
        for (int i = 0; i < 8; ++i) {
            config.row_bytes[i] = std::uint16_t{line_bytes};
            config.rows[i] = std::uint8_t{matrix_rows};
        }
        asm volatile("ldtilecfg %0" : : "m"(config));
    }
    [[gnu::target("amx-tile,amx-bf16"), gnu::always_inline]] static inline void stop() {
        asm volatile("tilerelease" : : : "memory");
    }
    template <int Matrix>
    [[gnu::target("amx-tile,amx-bf16"), gnu::always_inline]] static inline void zero() {
        asm volatile("tilezero {%%tmm%c0|tmm%c0}" : : "i"(Matrix));
    }
    template <int Matrix>
    [[gnu::target("amx-tile,amx-bf16"), gnu::always_inline]] static inline void load(const std::byte* from) {
        asm volatile("tileloadd {(%0,%1,1), %%tmm%c2|tmm%c2, [%0+%1*1]}"
                     :
                     : "r"(from), "r"(std::int64_t{line_bytes}), "i"(Matrix)
                     : "memory");
    }
    template <int Sum, int Left, int Right>
    [[gnu::target("amx-tile,amx-bf16"), gnu::always_inline]] static inline void multiply() {
        asm volatile("tdpbf16ps {%%tmm%c2, %%tmm%c1, %%tmm%c0|tmm%c0, tmm%c1, tmm%c2}"
                     :
                     : "i"(Sum), "i"(Left), "i"(Right));
    }
    template <int Matrix>
    [[gnu::target("amx-tile,amx-bf16"), gnu::always_inline]] static inline void
    store(float* to) { // NOLINT(readability-non-const-parameter): the instruction writes there
        asm volatile("tilestored {%%tmm%c2, (%0,%1,1)|[%0+%1*1], tmm%c2}"
                     :
                     : "r"(to), "r"(std::int64_t{line_bytes}), "i"(Matrix)
                     : "memory");
    }
};

#endif

inline bool has_matrix_unit() {
#ifdef CELLAR_HAS_AMX
    return AmxMatrices::are_there();
#else
    return false;
#endif
}

} // namespace cellar::detail
