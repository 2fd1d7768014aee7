// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

namespace cellar {

namespace detail {

template <class R>
concept has_pairs = requires(const R r, int pair) {
    { r.pairs() } -> std::same_as<int>;
    { r.first(pair) } -> std::same_as<int>;
    { r.second(pair) } -> std::same_as<int>;
};
template <class R, class Factor>
concept has_pair_rotate = requires(const R r, float& a, float& b, const Factor factor) {
    r.rotate(a, b, factor);
};

} // namespace detail

/// How the keys of one layer are rotated, as a value that kernels carry. For each of `pairs()` pairs, the elements
/// `first(pair)` and `second(pair)` of every head are changed together by `rotate(a, b, factor)`. No element belongs to
/// two pairs; elements of no pair stay as they are.
///
/// A rotation may declare `static constexpr bool by_angle = true`. Then factors have floats `cosine` and `sine`, and
/// `rotate` gives (a * cosine - b * sine, a * sine + b * cosine), which a backend may compute itself.
template <class R, class Factor>
concept PairRotation = std::is_trivially_copyable_v<R> && detail::has_pairs<R> && detail::has_pair_rotate<R, Factor>;

namespace detail {

template <class S>
concept has_possible = requires {
    { S::possible } -> std::convertible_to<bool>;
};

} // namespace detail

/// True if shifted keys must be rotated. A policy that shifts without rotating has `rotates = false`.
template <detail::has_possible S>
inline constexpr bool rotates_keys = [] {
    if constexpr (requires { S::rotates; }) {
        return S::possible && S::rotates;
    } else {
        return bool{S::possible};
    }
}();

/// True if keys are stored without positions, and `attend` rotates them as it reads them: `RotateOnRead`.
template <class S>
inline constexpr bool rotates_on_read = requires {
    requires S::rotates_on_read;
};

class RotaryAngles;

namespace detail {

// clang-format off
template <class S>
concept has_angles = requires(const S s, int layer) {
    { s.angles(layer) } -> std::same_as<const RotaryAngles&>;
};
template <class S>
concept has_factor =
    std::is_trivially_copyable_v<typename S::Factor>
    && std::default_initializable<typename S::Factor>
    && requires(const S s, int layer, int pair, std::int32_t delta) {
        { s.factor(layer, pair, delta) } -> std::same_as<typename S::Factor>;
    };
// clang-format on
template <class S>
concept has_rotation = requires(const S s, int layer) {
    { s.rotation(layer) } -> PairRotation<typename S::Factor>;
};

} // namespace detail

/// What happens to a stored key when its token moves to another position.
///
/// - `possible`: false if stored tokens cannot move; then nothing else is needed.
/// - `rotates`: false if keys stay as they are when their tokens move; then nothing else is needed. True if left out.
/// - `rotation(layer)`: how that layer's keys are rotated.
/// - `factor(layer, pair, delta)`: what rotates that pair by `delta` positions. Called on the host, once per layer,
///   pair and delta.
/// - `rotates_on_read`: true for `RotateOnRead`, which has `rotation(layer)` and `angles(layer)`. False if left out.
///
/// Laws: rotating by d and then by -d changes nothing; rotating by a and then by b equals rotating by a + b. Both hold
/// up to rounding.
// clang-format off
template <class S>
concept ShiftPolicy =
    std::copyable<S>
    && detail::has_possible<S>
    && (!rotates_keys<S> || (detail::has_factor<S> && detail::has_rotation<S>))
    && (!rotates_on_read<S> || (!rotates_keys<S> && detail::has_angles<S>));
// clang-format on

namespace detail {

/// How the elements of pairs lie in a head.
enum class PairPlaces {
    apart,      ///< the first elements are consecutive, and so are the second ones, as with `Neox`
    neighbours, ///< pair follows pair, as with `Interleaved`
    other,
};

/// Of pairs [begin, end), at least one.
template <has_pairs R>
constexpr PairPlaces pair_places(const R& r, int begin, int end) {
    bool apart = true;
    bool neighbours = true;
    for (int pair = begin; pair < end; ++pair) {
        const int i = pair - begin;
        apart = apart && r.first(pair) == r.first(begin) + i && r.second(pair) == r.second(begin) + i;
        neighbours = neighbours && r.first(pair) == r.first(begin) + 2 * i && r.second(pair) == r.first(pair) + 1;
    }
    return apart ? PairPlaces::apart : neighbours ? PairPlaces::neighbours : PairPlaces::other;
}

/// The smallest head dimension that a rotation fits into: one more than the last element it changes.
template <has_pairs R>
constexpr int min_dim(const R& r) {
    int min = 0;
    for (int pair = 0; pair < r.pairs(); ++pair) {
        if (r.first(pair) >= min) min = r.first(pair) + 1;
        if (r.second(pair) >= min) min = r.second(pair) + 1;
    }
    return min;
}

} // namespace detail

} // namespace cellar
