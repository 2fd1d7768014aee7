// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/base/head_parts.hpp>
#include <cellar/element/convert.hpp>
#include <cellar/element/element.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string_view>
#include <type_traits>

namespace cellar {

/// What is moved as it is, whatever it means: plain data. New memory is zeros, which must be a valid unit.
template <class U>
concept StorageUnit = std::is_trivially_copyable_v<U> && std::is_default_constructible_v<U>;

/// For `values_per_scale`: one scale for all values of a head.
inline constexpr int whole_head = INT32_MAX;

namespace detail {

/// An element as a format: a unit is a value.
template <Element E>
struct ElementFormat {
    using unit = E;
    static constexpr int values_per_unit = 1;
    static constexpr std::string_view name = std::same_as<E, float> ? "f32" : std::same_as<E, half> ? "f16" : "bf16";

    static void encode(std::span<const float> values, std::span<E> units) { convert(values, units); }
    static void decode(std::span<const E> units, std::span<float> values) { convert(units, values); }
};

template <class F>
struct FormatOf {
    using type = F;
};
template <Element E>
struct FormatOf<E> {
    using type = ElementFormat<E>;
};
/// The class that says what a format is: `F`, or that of an element.
template <class F>
using format_of = typename FormatOf<F>::type;

template <class F>
concept has_unit = StorageUnit<typename F::unit>;
template <class F>
concept has_values_per_unit = std::integral_constant<bool, (F::values_per_unit >= 1)>::value;
template <class F>
concept has_format_name = std::convertible_to<decltype(F::name), std::string_view>;
template <class F>
concept has_second_plane = requires {
    typename F::scale;
};
template <class F>
concept has_scales =
    !has_second_plane<
        F> || (StorageUnit<typename F::scale> && std::integral_constant<bool, (F::values_per_scale >= 1)>::value);
template <class F, class... Planes>
concept encodes_to = requires(std::span<const float> values, std::span<Planes>... units) {
    F::encode(values, units...);
};
template <class F, class... Planes>
concept decodes_from = requires(std::span<const Planes>... units, std::span<float> values) {
    F::decode(units..., values);
};
template <class F>
concept encodes_heads = requires {
    requires !has_second_plane<F> && encodes_to<F, typename F::unit>;
}
|| requires {
    requires encodes_to<F, typename F::unit, typename F::scale>;
};
template <class F>
concept decodes_heads = requires {
    requires !has_second_plane<F> && decodes_from<F, typename F::unit>;
}
|| requires {
    requires decodes_from<F, typename F::unit, typename F::scale>;
};

// clang-format off
template <class F>
concept is_format =
    has_unit<F> && has_values_per_unit<F> && has_format_name<F> && has_scales<F>
    && encodes_heads<F> && decodes_heads<F>;
// clang-format on

} // namespace detail

/// How the keys or the values of a head are stored: as units in one plane, and perhaps as scales in a second one. All
/// but `put`, reads as floats, rotations and attention moves units and scales as they are.
///
/// `float`, `half` and `bfloat16` are formats: one value a unit. Any other format is a class with static members:
/// - `unit`, `values_per_unit`: what is moved, and how many neighbouring values of a head it holds.
/// - `scale`, `values_per_scale`: only of a format with two planes. `whole_head`: one for each head.
/// - `values_per_rotation`: only of a format that rotates before it encodes: how many neighbouring values together.
/// - `name`: the format's name in files and messages, a `std::string_view`.
/// - `encode(values, units)`, or `encode(values, units, scales)`: stores the values of one head.
/// - `decode(units, values)`, or `decode(units, scales, values)`: the values of one head.
/// - `encodes_several_heads`: only if `encode` takes the values of several heads, too, which is faster: the format
///   itself, as a type. So a format that is derived from it, and may hide `encode`, does not inherit this.
///
/// Law: encoding what was decoded changes no value by more than encoding did. `encode` and `decode` do not throw. A
/// head has at most 1024 values, a multiple of `values_per_unit`, of `values_per_scale` and of `values_per_rotation`.
///
/// `attend` reads any format. It is faster with one that also says how its units are unpacked to codes, bytes or halves
/// that `attend` multiplies without decoding them:
/// - `code`: `std::int8_t` or `half`.
/// - `values_per_factor`: value i of a head is codes[i] * factors[i / values_per_factor]. A multiple of 16, or
///   `whole_head`; with codes of `half`, `whole_head`.
/// - `factor`: the type of factors, `float` or `half`; `float` if there is no such member.
/// - `has_offsets`: true if offsets[i / values_per_factor], of the same type, are added to the values.
/// - `unpack(units, codes, factors)`, with `scales` after the units, and `offsets` after the factors, if there are
///   any: what one head unpacks to. Loops of constant length over a unit's values become vector instructions;
///   write `CELLAR_VECTOR_LOOP` before those of 16 rounds or fewer.
///
/// If `unit` is `code`, units are the codes and scales the factors, and there is no `unpack`. If a unit has the members
/// `scale`, the factor, and `steps`, the codes, `attend` reads these where they are.
///
/// A format may store rotated heads in another format, `stored`: it then has a type `rotation`, with `rotate(head)` and
/// `undo(head)`, an orthogonal map. `attend` rotates queries, and undoes the rotation of results.
///
/// Devices need more: see `DeviceFormat`.
template <class F>
concept StorageFormat = detail::is_format<detail::format_of<F>>;

namespace detail {

inline constexpr int max_encoded_dim = 1024;

template <StorageFormat F>
using unit_of = typename format_of<F>::unit;
template <StorageFormat F>
inline constexpr int values_per_unit = format_of<F>::values_per_unit;

/// Two planes.
template <class F>
inline constexpr bool has_scale_plane = has_second_plane<format_of<F>>;

template <class F>
struct ScaleOf {
    using type = std::byte; // never stored
    static constexpr int values = whole_head;
};
template <class F>
    requires has_scale_plane<F>
struct ScaleOf<F> {
    using type = typename F::scale;
    static constexpr int values = F::values_per_scale;
};
template <StorageFormat F>
using scale_of = typename ScaleOf<F>::type;

template <class F>
inline constexpr int values_per_rotation = 1;
template <class F>
    requires requires {
        F::values_per_rotation;
    }
inline constexpr int values_per_rotation<F> = F::values_per_rotation;

/// The scales of a head of `dim` values.
template <StorageFormat F>
CELLAR_FUNCTION constexpr int scales_in(int dim) {
    return ScaleOf<F>::values != whole_head ? dim / ScaleOf<F>::values : dim == 0 ? 0 : 1;
}

template <class F>
concept encodes_several_heads = requires {
    requires std::same_as<typename F::encodes_several_heads, F>;
};

/// A format that can be unpacked to codes.
template <class F>
concept unpacks_codes = requires {
    typename F::code;
    requires std::same_as<typename F::code, std::int8_t> || std::same_as<typename F::code, half>;
};
/// Units are the codes, scales the factors.
template <class F>
concept stores_codes = unpacks_codes<F> && has_second_plane<F> && std::same_as<typename F::code, typename F::unit>;

/// Each unit has its codes and their factor.
template <class F>
concept stores_steps = unpacks_codes<F> && requires(const typename F::unit& unit) {
    requires std::same_as<decltype(F::unit::steps), typename F::code[std::size_t{F::values_per_unit}]>;
    requires std::same_as<decltype(F::unit::scale), typename F::factor>;
    requires F::values_per_factor == F::values_per_unit;
    requires !has_second_plane<F>;
};

/// A format of codes of 4 bits, which stand for `levels`. `nibbles`: a pointer to the array of bytes that a unit has
/// them in. Kernels look the codes up, and ask the format for nothing but the factors.
template <class F>
concept looks_up_codes = unpacks_codes<F> && requires(const typename F::unit& unit) {
    F::levels.of_codes;
    requires sizeof(unit.*F::nibbles) * 2 == F::values_per_unit;
};

/// A format of numbers of 8 bits without factors: a sign, and one of the magnitudes in `numbers`, as bfloat16.
template <class F>
concept looks_up_numbers = unpacks_codes<F> && std::same_as<typename F::unit, std::uint8_t> && requires {
    F::numbers.upper;
    requires F::values_per_unit == 1;
    requires F::values_per_factor == whole_head;
    requires !has_second_plane<F>;
};

/// The values that one factor serves.
template <unpacks_codes F>
constexpr int values_per_factor() {
    if constexpr (stores_codes<F>) {
        return F::values_per_scale;
    } else {
        return F::values_per_factor;
    }
}
template <class F>
struct FactorOf {
    using type = float;
};
template <class F>
    requires requires {
        typename F::factor;
    }
struct FactorOf<F> {
    using type = typename F::factor;
};
template <unpacks_codes F>
using factor_of = typename std::conditional_t<stores_codes<F>, ScaleOf<F>, FactorOf<F>>::type;

/// The factors of a head of `dim` values.
template <unpacks_codes F>
constexpr std::int64_t factors_in(std::int64_t dim) {
    constexpr int values = values_per_factor<F>();
    return values == whole_head ? 1 : dim / values;
}
/// Of a head, at most.
template <unpacks_codes F>
inline constexpr int max_factors = static_cast<int>(factors_in<F>(max_encoded_dim));

template <class F>
inline constexpr bool has_offsets = false;
template <class F>
    requires requires {
        F::has_offsets;
    }
inline constexpr bool has_offsets<F> = F::has_offsets;

/// A format that rotates heads, and stores them in another format.
template <class F>
concept rotates_heads = requires {
    typename F::stored;
    typename F::rotation;
};
template <class F>
struct UnrotatedFormat {
    using type = F;
};
template <rotates_heads F>
struct UnrotatedFormat<F> {
    using type = typename F::stored;
};
/// The format of the units, but for a rotation.
template <class F>
using unrotated_format = typename UnrotatedFormat<F>::type;

/// The values of a head that one scale serves, or one unit if there are no scales: they are encoded together.
template <class F>
constexpr int values_of_group(int dim) {
    if constexpr (!has_second_plane<F>) {
        return F::values_per_unit;
    } else {
        return F::values_per_scale == whole_head ? dim : F::values_per_scale;
    }
}
/// The values of a head that are rotated and encoded together.
template <class F>
constexpr int values_of_part(int dim) {
    return std::lcm(values_of_group<unrotated_format<F>>(dim), values_per_rotation<F>);
}

template <class F>
concept encodes_single_units = requires(const float* values, typename F::unit& unit, const typename F::unit& from,
                                        float* to) {
    F::encode_unit(values, unit);
    F::decode_unit(from, to);
};
template <class F>
concept encodes_single_groups = requires(const float* values, int n, typename F::unit* units, typename F::scale& scale,
                                         const typename F::unit& from, const typename F::scale& by, float* to) {
    F::encode_group(values, n, units, scale);
    F::decode_unit(from, by, to);
};
template <class F>
concept encodes_on_device =
    (!has_second_plane<F> && encodes_single_units<F>) || (has_second_plane<F> && encodes_single_groups<F>);

/// A team of threads, as far as rotations use it.
struct TeamArchetype {
    CELLAR_FUNCTION int team_rank() const;
    CELLAR_FUNCTION int team_size() const;
    CELLAR_FUNCTION void team_barrier() const;
};
template <class F>
concept rotates_on_device = !rotates_heads<F> || requires(const TeamArchetype& team, const HeadParts& parts) {
    F::rotation::rotate(team, parts, parts);
    F::rotation::undo(team, parts, parts);
};

} // namespace detail

/// A format that devices encode and decode, too: parts of a head at a time, in functions that are marked
/// `CELLAR_FUNCTION` and call nothing that runs on the host alone. Static members:
/// - `encode_unit(values, unit)`, `decode_unit(unit, values)`: one unit, and a pointer to its values.
/// - with two planes, `encode_group(values, n, units, scale)`: n values, which one scale serves;
///   `decode_unit(unit, scale, values)`: one unit.
///
/// The rotation of a format that rotates heads has `rotate(team, parts, free)` and `undo(team, parts, free)`, called by
/// all threads of a `team`, which has `team_rank()`, `team_size()` and `team_barrier()`. They rotate each part in
/// place; `free` has room for as many. The call follows a barrier, and ends with one.
///
/// Law: the bits are those of `encode` and `decode`.
template <class F>
concept DeviceFormat = StorageFormat<F> && !Element<
                           F> && detail::encodes_on_device<detail::unrotated_format<F>> && detail::rotates_on_device<F>;

} // namespace cellar
