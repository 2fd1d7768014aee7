// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/simd/vector.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#if defined(CELLAR_HAS_NEON) && defined(__linux__)
#include <sys/auxv.h>
#endif

/// Sums of products of 32 pairs of signed bytes, one type for each kind of instructions. Each but VnniProducts has
///   Vector: whose lanes the sums have,
///   codes<N>(from): N bytes of keys, 16 or 32, which several queries are multiplied by, and zeros after them,
///   sums(codes, queries): in all lanes together, the sum of the products, exactly. No byte of the queries is -128.
namespace cellar::detail {

/// In lanes of 32 bits. On SSE2, and on 64-bit ARM without dot products, compilers multiply numbers of 16 bits.
struct BaselineProducts {
    using Vector = BaselineVector;

    using Bytes = std::int8_t __attribute__((vector_size(8)));
    using Shorts = std::int16_t __attribute__((vector_size(16)));
    using Half = std::int16_t __attribute__((vector_size(8)));
    struct Codes {
        Shorts shorts[4];
    };

    template <int N>
    static Codes codes(const std::int8_t* from) {
        Codes codes{};
        for (int i = 0; i < N / 8; ++i) codes.shorts[i] = widen(from + std::ptrdiff_t{8} * i);
        return codes;
    }

    static Vector::Ints sums(const Codes& codes, const std::int8_t* queries) {
        Vector::Ints sum{};
        for (int i = 0; i < 4; ++i) {
            const Shorts products = codes.shorts[i] * widen(queries + std::ptrdiff_t{8} * i); // at most 128 * 127
            Half parts[2];
            std::memcpy(parts, &products, sizeof(parts));
            sum += __builtin_convertvector(parts[0], Vector::Ints) + __builtin_convertvector(parts[1], Vector::Ints);
        }
        return sum;
    }

private:
    static Shorts widen(const std::int8_t* from) {
        Bytes bytes;
        std::memcpy(&bytes, from, sizeof(bytes));
        return __builtin_convertvector(bytes, Shorts);
    }
};

#ifdef CELLAR_HAS_NEON

// Without -march=armv8.2-a, assemblers refuse the name of the instruction; with an attribute in its place, functions
// could not inline those that are compiled with other flags. So its bits are put together: for each register, a symbol
// has its number.
#if defined(__ARM_FEATURE_DOTPROD)
#define CELLAR_SDOT "sdot %0.4s, %1.16b, %2.16b"
#else
#define CELLAR_SDOT                                                                                                    \
    ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n"                   \
    ".equ .Lcellar_v\\n, \\n\n"                                                                                        \
    ".endr\n\t"                                                                                                        \
    ".inst 0x4e809400 | .Lcellar_%2 << 16 | .Lcellar_%1 << 5 | .Lcellar_%0"
#endif

/// The dot products of ARMv8.2 multiply signed bytes.
struct NeonProducts {
    using Vector = BaselineVector;

    using Bytes = std::int8_t __attribute__((vector_size(16)));
    struct Codes {
        Bytes bytes[2];
    };

    static bool is_available() {
#if defined(__ARM_FEATURE_DOTPROD)
        return true;
#elif defined(__linux__)
        constexpr unsigned long dot_products = 1UL << 20; // HWCAP_ASIMDDP
        return (::getauxval(AT_HWCAP) & dot_products) != 0;
#else
        return false;
#endif
    }

    template <int N>
    static Codes codes(const std::int8_t* from) {
        Codes codes{};
        std::memcpy(&codes, from, N);
        return codes;
    }
    static Vector::Ints sums(const Codes& codes, const std::int8_t* queries) {
        Bytes bytes[2];
        std::memcpy(bytes, queries, sizeof(bytes));
        Vector::Ints sum{};
        asm(CELLAR_SDOT : "+w"(sum) : "w"(codes.bytes[0]), "w"(bytes[0]));
        asm(CELLAR_SDOT : "+w"(sum) : "w"(codes.bytes[1]), "w"(bytes[1]));
        return sum;
    }
};

#undef CELLAR_SDOT

#endif

#ifdef CELLAR_HAS_X86_VECTORS

#define CELLAR_AVX512_VNNI gnu::target("avx512vnni,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")

// Assembly, because the compilers have different builtins for these instructions.

#define CELLAR_INLINE [[CELLAR_AVX2, gnu::always_inline]] static inline

struct Avx2Bytes {
    using Bytes = std::int8_t __attribute__((vector_size(32)));

    template <int N>
    CELLAR_INLINE Bytes load(const std::int8_t* from) {
        Bytes bytes;
        if constexpr (N == 16) {
            asm("vmovdqu %1, %x0" : "=x"(bytes) : "m"(*reinterpret_cast<const std::int8_t(*)[16]>(from)));
        } else {
            std::memcpy(&bytes, from, sizeof(bytes));
        }
        return bytes;
    }
};

/// AVX2 multiplies unsigned bytes by signed ones: magnitudes by what has the sign of the product.
struct Avx2Products {
    using Vector = Avx2Vector;

    using Bytes = Avx2Bytes::Bytes;
    using Shorts = std::int16_t __attribute__((vector_size(32)));
    struct Codes {
        Bytes bytes;
        Bytes magnitudes; // unsigned
    };

    template <int N>
    CELLAR_INLINE Codes codes(const std::int8_t* from) {
        Codes codes;
        codes.bytes = Avx2Bytes::load<N>(from);
        asm("vpabsb %1, %0" : "=x"(codes.magnitudes) : "x"(codes.bytes));
        return codes;
    }
    CELLAR_INLINE Vector::Ints sums(const Codes& codes, const std::int8_t* queries) {
        Bytes bytes = Avx2Bytes::load<32>(queries); // NOLINT(misc-const-correctness): an instruction changes it
        Shorts pairs;                               // at most 2 * 128 * 127, which fits
        asm("vpsignb %1, %0, %0" : "+x"(bytes) : "x"(codes.bytes));
        asm("vpmaddubsw %2, %1, %0" : "=x"(pairs) : "x"(codes.magnitudes), "x"(bytes));
        Vector::Ints sums;
        asm("vpmaddwd %2, %1, %0" : "=x"(sums) : "x"(pairs), "x"(Shorts{} + 1));
        return sums;
    }
};

#undef CELLAR_INLINE
#define CELLAR_INLINE [[CELLAR_AVX512_VNNI, gnu::always_inline]] static inline

/// The instructions for neural networks multiply unsigned bytes by signed ones: codes that a bias made unsigned by
/// queries, four neighbouring ones of each of 16 cells at a time. What the bias adds is the same for all cells.
struct VnniProducts {
    using Bytes = Avx2Bytes::Bytes;
    /// Lane c belongs to cell c.
    using Columns = Avx512Vector::Ints;

    static bool is_available() {
        return Avx512Vector::is_available() && static_cast<bool>(__builtin_cpu_supports("avx512vnni"));
    }

    /// The N bytes at rows[c] + at of cells c = 0, 1, ..., 15, 16 or 32: four of each in to[0], the next four in to[1],
    /// ...
    template <int N>
    CELLAR_INLINE void columns(const std::int8_t* const* rows, std::ptrdiff_t at, Columns* to) {
        if constexpr (N == 16) {
            transpose_fours(every_fourth(rows, at), every_fourth(rows + 1, at), every_fourth(rows + 2, at),
                            every_fourth(rows + 3, at), to);
        } else {
            // Vectors have two times four lanes of cells 0 to 3, or of 8 to 11, and as many of the next four cells.
            Columns low[4];
            Columns high[4];
            const auto* const other = rows + 8;
            transpose_fours(two_rows(rows, at), two_rows(rows + 1, at), two_rows(rows + 2, at), two_rows(rows + 3, at),
                            low);
            transpose_fours(two_rows(other, at), two_rows(other + 1, at), two_rows(other + 2, at),
                            two_rows(other + 3, at), high);
            for (int i = 0; i < 4; ++i) to[i] = join<0>(low[i], high[i], Lanes{});
            for (int i = 0; i < 4; ++i) to[4 + i] = join<1>(low[i], high[i], Lanes{});
        }
    }
    /// Adds the products of unsigned codes and of the same four bytes of a query.
    CELLAR_INLINE Columns add(Columns sum, Columns codes, const std::int8_t* query) {
        asm("vpdpbusd %2%{1to16%}, %1, %0"
            : "+v"(sum)
            : "v"(codes), "m"(*reinterpret_cast<const std::int8_t(*)[4]>(query)));
        return sum;
    }

    /// 16 bytes of two rows side by side: byte i of `row`, then that of `next`.
    CELLAR_INLINE Avx2Vector::Ints zip_bytes(const std::int8_t* row, const std::int8_t* next) {
        using Half = std::int32_t __attribute__((vector_size(16)));
        Half a;
        Half b;
        Half low;
        Half high;
        std::memcpy(&a, row, sizeof(a));
        std::memcpy(&b, next, sizeof(b));
        asm("vpunpcklbw %2, %1, %0" : "=v"(low) : "v"(a), "v"(b));
        asm("vpunpckhbw %2, %1, %0" : "=v"(high) : "v"(a), "v"(b));
        return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
    }
    /// Bytes as words of 16 bits.
    CELLAR_INLINE Columns words(Avx2Vector::Ints bytes) {
        Columns words;
        asm("vpmovsxbw %1, %0" : "=v"(words) : "v"(bytes));
        return words;
    }
    /// Adds the products of two words in each lane.
    CELLAR_INLINE Columns add_words(Columns sum, Columns a, Columns b) {
        asm("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
        return sum;
    }
    /// The first one in lanes 0 to 7, the second one in the others.
    CELLAR_INLINE Columns broadcast(const std::int32_t* first, const std::int32_t* second) {
        Columns both;
        asm("vpbroadcastd %1, %0" : "=v"(both) : "m"(*first));
        asm("vpbroadcastd %1, %0%{%2%}" : "+v"(both) : "m"(*second), "Yk"(std::uint16_t{0xff00}));
        return both;
    }

    /// Words of two rows side by side, or sums of their products with weights: of elements d of 32, 0 to 7 and 16 to 23
    /// in the first half, the others in the second one.
    struct Pairs {
        Columns first, second;
    };

    /// Of N codes of each row, 16 or 32.
    template <int N>
    CELLAR_INLINE Pairs pairs(const std::int8_t* row, const std::int8_t* next) {
        const Bytes a = Avx2Bytes::load<N>(row);
        const Bytes b = Avx2Bytes::load<N>(next);
        Bytes low;
        Bytes high;
        asm("vpunpcklbw %2, %1, %0" : "=v"(low) : "v"(a), "v"(b));
        asm("vpunpckhbw %2, %1, %0" : "=v"(high) : "v"(a), "v"(b));
        Columns first;
        Columns second;
        asm("vpmovsxbw %1, %0" : "=v"(first) : "v"(low));
        asm("vpmovsxbw %1, %0" : "=v"(second) : "v"(high));
        return {first, second};
    }
    /// Elements 0 to 15 and 16 to 31.
    CELLAR_INLINE void in_order(Pairs sums, Avx512Vector::Floats* to) {
        const Columns low =
            __builtin_shufflevector(sums.first, sums.second, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
        const Columns high = __builtin_shufflevector(sums.first, sums.second, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26,
                                                     27, 28, 29, 30, 31);
        to[0] = __builtin_convertvector(low, Avx512Vector::Floats);
        to[1] = __builtin_convertvector(high, Avx512Vector::Floats);
    }

private:
    using Lanes = std::make_index_sequence<16>;

    // The bytes of rows 0, 4, 8 and 12.
    CELLAR_INLINE Columns every_fourth(const std::int8_t* const* rows, std::ptrdiff_t at) {
        using Row = const std::int8_t(*)[16];
        Columns all;
        asm("vbroadcasti32x4 %1, %0" : "=v"(all) : "m"(*reinterpret_cast<Row>(rows[0] + at)));
        asm("vbroadcasti32x4 %1, %0%{%2%}"
            : "+v"(all)
            : "m"(*reinterpret_cast<Row>(rows[4] + at)), "Yk"(std::uint16_t{0xf0}));
        asm("vbroadcasti32x4 %1, %0%{%2%}"
            : "+v"(all)
            : "m"(*reinterpret_cast<Row>(rows[8] + at)), "Yk"(std::uint16_t{0xf00}));
        asm("vbroadcasti32x4 %1, %0%{%2%}"
            : "+v"(all)
            : "m"(*reinterpret_cast<Row>(rows[12] + at)), "Yk"(std::uint16_t{0xf000}));
        return all;
    }
    // The 32 bytes of rows 0 and 4.
    CELLAR_INLINE Columns two_rows(const std::int8_t* const* rows, std::ptrdiff_t at) {
        Avx2Vector::Ints a;
        Avx2Vector::Ints b;
        std::memcpy(&a, rows[0] + at, sizeof(a));
        std::memcpy(&b, rows[4] + at, sizeof(b));
        return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    }
    // Lane i of each four lanes of a, b, c and d becomes four lanes of to[i].
    CELLAR_INLINE void transpose_fours(Columns a, Columns b, Columns c, Columns d, Columns* to) {
        const Columns ab[2] = {zip<1, 0>(a, b, Lanes{}), zip<1, 1>(a, b, Lanes{})};
        const Columns cd[2] = {zip<1, 0>(c, d, Lanes{}), zip<1, 1>(c, d, Lanes{})};
        to[0] = zip<2, 0>(ab[0], cd[0], Lanes{});
        to[1] = zip<2, 1>(ab[0], cd[0], Lanes{});
        to[2] = zip<2, 0>(ab[1], cd[1], Lanes{});
        to[3] = zip<2, 1>(ab[1], cd[1], Lanes{});
    }
    // Of each eight lanes of a, then of b, the first half, or with `Half` = 1 the second one.
    template <int Half, std::size_t... I>
    CELLAR_INLINE Columns join(Columns a, Columns b, std::index_sequence<I...>) {
        return __builtin_shufflevector(a, b, static_cast<int>(I / 4 * 8 + 4 * std::size_t{Half} + I % 4)...);
    }
    // Of each four lanes, the first half, or with `Half` = 1 the second one, of a and b, interleaved `Width` at a time.
    template <int Width, int Half, std::size_t... I>
    CELLAR_INLINE Columns zip(Columns a, Columns b, std::index_sequence<I...>) {
        constexpr auto place = [](std::size_t i) {
            constexpr std::size_t width{Width};
            const std::size_t in_four = i % 4;
            return i - in_four + 2 * std::size_t{Half} + in_four / (2 * width) * width + in_four % width
                   + in_four / width % 2 * 16;
        };
        return __builtin_shufflevector(a, b, static_cast<int>(place(I))...);
    }
};

#undef CELLAR_INLINE

#endif

} // namespace cellar::detail
