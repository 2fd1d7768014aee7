// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#if __cplusplus < 202002L
#error "cellar is written in C++20: compile with -std=c++20 or newer"
#endif

#include <cellar/base/function.hpp>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string_view> // std::hash

/// The constructors of ids: explicit, so that `{3}` is neither a position nor a sequence, and as cheap as a number
/// without optimisation, too.
#if defined(__GNUC__)
#define CELLAR_ID CELLAR_FUNCTION __attribute__((always_inline))
#else
#define CELLAR_ID CELLAR_FUNCTION
#endif

namespace cellar {

/// A token's place in its sequence, counted from 0.
struct Position {
    std::int32_t value = 0;

    Position() = default;
    CELLAR_ID explicit constexpr Position(std::int32_t p) : value{p} {}

    constexpr auto operator<=>(const Position&) const = default;
    friend constexpr Position operator+(Position p, std::int32_t n) { return Position{p.value + n}; }
    friend constexpr Position operator-(Position p, std::int32_t n) { return Position{p.value - n}; }
    friend constexpr std::int32_t operator-(Position a, Position b) { return a.value - b.value; }
};

/// As the end of a range of positions: to the end of the sequence.
inline constexpr Position to_end{INT32_MAX};

/// One conversation, beam or user: a number from 0 up to the limits' `sequences`, chosen by the caller.
struct Sequence {
    std::int32_t value = 0;

    Sequence() = default;
    CELLAR_ID explicit constexpr Sequence(std::int32_t s) : value{s} {}

    constexpr auto operator<=>(const Sequence&) const = default;
};

/// As the last argument of `remove`: by how many positions the keys of later tokens are rotated back.
struct RotateBy {
    std::int32_t positions = 0;

    RotateBy() = default;
    CELLAR_ID explicit constexpr RotateBy(std::int32_t n) : positions{n} {}
};

/// The index of the place that holds one token's key and value, the same in every layer.
using Cell = std::int32_t;

/// Cells [first, first + count).
struct CellRange {
    Cell first = 0;
    std::int32_t count = 0;

    constexpr bool operator==(const CellRange&) const = default;
};

} // namespace cellar

template <>
struct std::hash<cellar::Position> {
    std::size_t operator()(cellar::Position p) const noexcept { return std::hash<std::int32_t>{}(p.value); }
};
template <>
struct std::hash<cellar::Sequence> {
    std::size_t operator()(cellar::Sequence s) const noexcept { return std::hash<std::int32_t>{}(s.value); }
};
