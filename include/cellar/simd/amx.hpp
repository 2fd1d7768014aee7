// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/simd/lines.hpp>
#include <cellar/simd/vector.hpp>

#include <cstddef>
#include <cstdint>

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

#ifdef CELLAR_HAS_AMX

#define CELLAR_AMX gnu::target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")
#define CELLAR_INLINE [[gnu::target("amx-tile,amx-bf16"), gnu::always_inline]] static inline

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

    CELLAR_INLINE void start() {
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
    CELLAR_INLINE void stop() { asm volatile("tilerelease" : : : "memory"); }
    template <int Matrix>
    CELLAR_INLINE void zero() {
        asm volatile("tilezero {%%tmm%c0|tmm%c0}" : : "i"(Matrix));
    }
    template <int Matrix>
    CELLAR_INLINE void load(const std::byte* from) {
        asm volatile("tileloadd {(%0,%1,1), %%tmm%c2|tmm%c2, [%0+%1*1]}"
                     :
                     : "r"(from), "r"(std::int64_t{line_bytes}), "i"(Matrix)
                     : "memory");
    }
    template <int Sum, int Left, int Right>
    CELLAR_INLINE void multiply() {
        asm volatile("tdpbf16ps {%%tmm%c2, %%tmm%c1, %%tmm%c0|tmm%c0, tmm%c1, tmm%c2}"
                     :
                     : "i"(Sum), "i"(Left), "i"(Right));
    }
    template <int Matrix>
    CELLAR_INLINE void store(float* to) { // NOLINT(readability-non-const-parameter): the instruction writes there
        asm volatile("tilestored {%%tmm%c2, (%0,%1,1)|[%0+%1*1], tmm%c2}"
                     :
                     : "r"(to), "r"(std::int64_t{line_bytes}), "i"(Matrix)
                     : "memory");
    }
};

#undef CELLAR_INLINE

#endif

inline bool has_matrix_unit() {
#ifdef CELLAR_HAS_AMX
    return AmxMatrices::are_there();
#else
    return false;
#endif
}

} // namespace cellar::detail
