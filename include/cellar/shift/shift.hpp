// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

namespace cellar {

template <class R>
concept has_pairs = requires(const R r, int pair) {
    { r.pairs() } -> std::same_as<int>;
    { r.first(pair) } -> std::same_as<int>;
    { r.second(pair) } -> std::same_as<int>;
};
template <class R, class Factor>
concept has_turn = requires(const R r, float& a, float& b, const Factor factor) {
    r.turn(a, b, factor);
};

/// How the keys of one layer are turned, as a value that kernels carry: the elements `first(pair)` and `second(pair)`
/// of each head, for each of `pairs()` pairs, are changed together by `turn(a, b, factor)`. No element belongs to two
/// pairs; elements in no pair stay.
template <class R, class Factor>
concept rotation = std::is_trivially_copyable_v<R> && has_pairs<R> && has_turn<R, Factor>;

template <class S>
concept has_possible = requires {
    { S::possible } -> std::convertible_to<bool>;
};
/// Whether keys that move to another position become others: not where a policy has `turns`, and it is false.
template <has_possible S>
inline constexpr bool turns_keys = [] {
    if constexpr (requires { S::turns; }) {
        return S::possible && S::turns;
    } else {
        return bool{S::possible};
    }
}();
template <class S>
concept has_factor =
    std::is_trivially_copyable_v<typename S::Factor> && std::default_initializable<typename S::Factor> && requires(
        const S s, int layer, int pair, std::int32_t delta) {
    { s.factor(layer, pair, delta) } -> std::same_as<typename S::Factor>;
};
template <class S>
concept has_rotation = requires(const S s, int layer) {
    { s.rotation(layer) } -> rotation<typename S::Factor>;
};

/// What becomes of a stored key when its position changes.
///
/// - `possible`: false if keys cannot be moved to another position; then nothing else is needed.
/// - `turns`: false if they can, and stay what they are; then nothing else is needed, either. True if left out.
/// - `rotation(layer)`: how that layer's keys are turned.
/// - `factor(layer, pair, delta)`: what turns that pair by `delta` positions; asked on the host, once per layer, pair
///   and delta.
///
/// Laws: a turn by d and then by -d changes nothing, one by a and then by b is one by a + b, both to rounding.
template <class S>
concept shift_policy = std::copyable<S> && has_possible<S> &&(!turns_keys<S> || (has_factor<S> && has_rotation<S>));

/// Whether the first elements of pairs [begin, end) lie side by side, and so do the second ones.
template <has_pairs R>
constexpr bool lie_in_two_spans(const R& r, int begin, int end) {
    for (int pair = begin + 1; pair < end; ++pair)
        if (r.first(pair) != r.first(pair - 1) + 1 || r.second(pair) != r.second(pair - 1) + 1) return false;
    return true;
}

/// One more than the last element of a head that the rotation touches: the least dim it works on.
template <has_pairs R>
constexpr int least_dim(const R& r) {
    int least = 0;
    for (int pair = 0; pair < r.pairs(); ++pair) {
        if (r.first(pair) >= least) least = r.first(pair) + 1;
        if (r.second(pair) >= least) least = r.second(pair) + 1;
    }
    return least;
}

} // namespace cellar
