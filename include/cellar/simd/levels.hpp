// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/simd/vector.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

/// Codes of 4 bits, two in a byte, each of which stands for one of 16 levels.
namespace cellar::detail {

/// What codes stand for, and their order: those in the lower bits of `run` bytes, 1, 8 or 16, come before those in the
/// upper bits of the same bytes.
struct Levels {
    std::int8_t of_codes[16];
    int run;

    /// `level(code)`, which is a constant expression.
    template <class Level>
    static constexpr Levels of(Level level, int run) {
        Levels levels{{}, run};
        for (int code = 0; code < 16; ++code) levels.of_codes[code] = static_cast<std::int8_t>(level(code));
        return levels;
    }
};

// Vectors of 16 levels, and of what is looked up in them.
using LevelBytes = std::uint8_t __attribute__((vector_size(16)));

/// Each kind of instructions has `unpack<Table>(from, to)`: the 32 levels of 16 bytes.
struct BaselineLevels {
#ifndef CELLAR_HAS_NEON
    template <const Levels& Table>
    static void unpack(const std::uint8_t* from, std::int8_t* to) {
        constexpr int run = Table.run;
        for (int first = 0; first < 16; first += run)
            for (int i = 0; i < run; ++i) {
                to[2 * first + i] = Table.of_codes[from[first + i] & 0xf];
                to[2 * first + run + i] = Table.of_codes[from[first + i] >> 4];
            }
    }
#else
    template <const Levels& Table>
    static void unpack(const std::uint8_t* from, std::int8_t* to);

    static LevelBytes look_up(LevelBytes table, LevelBytes codes) {
        LevelBytes found;
        asm("tbl %0.16b, {%1.16b}, %2.16b" : "=w"(found) : "w"(table), "w"(codes));
        return found;
    }
#endif
};

#if defined(CELLAR_HAS_NEON) || defined(CELLAR_HAS_X86_VECTORS)

/// Where value i of 32 is: the byte that has its code in its lower bits, or 16 and the byte that has it in its upper
/// ones.
constexpr int place_of_value(int run, std::size_t i) {
    const int value = static_cast<int>(i);
    return value / (2 * run) * run + value % run + value / run % 2 * 16;
}

/// Stores the levels of the lower bits of 16 bytes, and those of the upper bits, in the order of the codes.
template <int Run, std::size_t... I>
[[gnu::always_inline]] inline void store_in_order(LevelBytes low, LevelBytes high, std::int8_t* to,
                                                  std::index_sequence<I...>) {
    const LevelBytes in_order[2] = {__builtin_shufflevector(low, high, place_of_value(Run, I)...),
                                    __builtin_shufflevector(low, high, place_of_value(Run, 16 + I)...)};
    std::memcpy(to, in_order, sizeof(in_order));
}

template <const Levels& Table, class Lookup>
[[gnu::always_inline]] inline void unpack_by(Lookup look_up, const std::uint8_t* from, std::int8_t* to) {
    LevelBytes table;
    LevelBytes both;
    std::memcpy(&table, Table.of_codes, sizeof(table));
    std::memcpy(&both, from, sizeof(both));
    store_in_order<Table.run>(look_up(table, both & 0xf), look_up(table, both >> 4), to,
                              std::make_index_sequence<16>{});
}

#endif

#ifdef CELLAR_HAS_NEON
template <const Levels& Table>
void BaselineLevels::unpack(const std::uint8_t* from, std::int8_t* to) {
    unpack_by<Table>([](LevelBytes table, LevelBytes codes) { return look_up(table, codes); }, from, to);
}
#endif

#ifdef CELLAR_HAS_X86_VECTORS
struct Avx2Levels {
    template <const Levels& Table>
    [[gnu::always_inline]] static void unpack(const std::uint8_t* from, std::int8_t* to) {
        unpack_by<Table>(
            [](LevelBytes table, LevelBytes codes) __attribute__((always_inline)) {
                LevelBytes found;
                asm("vpshufb %2, %1, %0" : "=x"(found) : "x"(table), "x"(codes));
                return found;
            },
            from, to);
    }
};

/// Levels that are looked up in registers, as bytes, and as unsigned ones: larger by `bias`.
template <const Levels& Table>
struct LevelsInVectors {
private:
    static constexpr int lowest() {
        std::int8_t level = 0;
        for (const std::int8_t own : Table.of_codes) level = own < level ? own : level;
        return level;
    }
    static constexpr bool are_codes() {
        for (int code = 0; code < 16; ++code)
            if (Table.of_codes[code] != code + lowest()) return false;
        return true;
    }
    template <int Bias>
    struct Bytes {
        alignas(64) std::uint8_t of_codes[64] = {}; // once for each 16 bytes of a vector

        constexpr Bytes() {
            for (int i = 0; i < 64; ++i) of_codes[i] = static_cast<std::uint8_t>(Table.of_codes[i % 16] + Bias);
        }
    };
    template <int Bias>
    static constexpr Bytes<Bias> bytes{};

public:
    static constexpr int bias = -lowest();

    /// Those of codes, one in each byte of a vector of 32 or 64 bytes.
    template <class V>
    [[CELLAR_AVX512, gnu::always_inline]] static inline V look_up(V codes) {
        return look_up_in<0>(codes);
    }
    template <class V>
    [[CELLAR_AVX512, gnu::always_inline]] static inline V look_up_unsigned(V codes) {
        if constexpr (are_codes()) {
            return codes;
        } else {
            return look_up_in<bias>(codes);
        }
    }

    /// Values of 16 bytes, from those of the codes in the lower bits of each and those in the upper ones, in order.
    template <class V>
    [[CELLAR_AVX512, gnu::always_inline]] static inline void in_order(V lower, V upper, V* to) {
        in_order(lower, upper, to, std::make_index_sequence<16>{});
    }

private:
    template <int Bias, class V>
    [[CELLAR_AVX512, gnu::always_inline]] static inline V look_up_in(V codes) {
        V table;
        V found;
        std::memcpy(&table, bytes<Bias>.of_codes, sizeof(table));
        asm("vpshufb %2, %1, %0" : "=v"(found) : "v"(table), "v"(codes));
        return found;
    }
    template <class V, std::size_t... I>
    [[CELLAR_AVX512, gnu::always_inline]] static inline void in_order(V lower, V upper, V* to,
                                                                      std::index_sequence<I...>) {
        to[0] = __builtin_shufflevector(lower, upper, place_of_value(Table.run, I)...);
        to[1] = __builtin_shufflevector(lower, upper, place_of_value(Table.run, 16 + I)...);
    }
};
#endif

} // namespace cellar::detail
