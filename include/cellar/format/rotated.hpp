// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/base/head_parts.hpp>
#include <cellar/element/storage_format.hpp>
#include <cellar/format/detail/name.hpp>
#include <cellar/format/detail/run.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <span>
#include <string_view>

namespace cellar {

namespace detail {

template <class R>
concept has_rotation_name = std::convertible_to<decltype(R::name), std::string_view>;
template <class R>
concept rotates_parts = std::integral_constant<bool, (R::values_per_rotation >= 1)>::value;
template <class R>
concept rotates_there_and_back = requires(std::span<float> head) {
    R::rotate(head);
    R::undo(head);
};

} // namespace detail

/// An orthogonal map of the values of a head, as a class with static members:
/// - `values_per_rotation`: a head has a multiple of so many values.
/// - `rotate(head)`, `undo(head)`: the map, and its inverse, in place. They do not throw.
/// - `name`: the first part of names of formats.
///
/// Keys that are rotated like their queries have the same scores, and a rotation spreads outliers over all values.
template <class R>
concept HeadRotation = detail::has_rotation_name<R> && detail::rotates_parts<R> && detail::rotates_there_and_back<R>;

/// The normalised Hadamard transform of each `N` neighbouring values, its own inverse: log2(N) additions a value.
template <int N>
    requires(N >= 2 && N <= detail::max_encoded_dim && (N & (N - 1)) == 0)
struct Hadamard {
    static constexpr int values_per_rotation = N;

private:
    static constexpr detail::FormatName text = detail::FormatName{}.add("hadamard").add(N);

public:
    static constexpr std::string_view name = text.view();

    static void rotate(std::span<float> head) { detail::run<Transform>(head.data(), std::ssize(head)); }
    static void undo(std::span<float> head) { rotate(head); }

    /// On a device, see `DeviceFormat`: the same sums, for all parts at a time.
    template <class Team>
    CELLAR_FUNCTION static void rotate(const Team& team, const HeadParts& parts, const HeadParts& free) {
        constexpr std::int32_t apart = N / 2;
        bool in_parts = true;
        for (int bit = 1; bit < N; bit *= 2) {
            for (std::int32_t i = team.team_rank(); i < parts.count * apart; i += team.team_size()) {
                const float* const from = (in_parts ? parts : free)(i / apart) + i % apart;
                float* const to = (in_parts ? free : parts)(i / apart) + std::int64_t{2} * (i % apart);
                to[0] = from[0] + from[apart];
                to[1] = from[0] - from[apart];
            }
            team.team_barrier();
            in_parts = !in_parts;
        }
        for (std::int32_t i = team.team_rank(); i < parts.count * N; i += team.team_size())
            parts(i / N)[i % N] = (in_parts ? parts : free)(i / N)[i % N] * factor();
        team.team_barrier();
    }
    template <class Team>
    CELLAR_FUNCTION static void undo(const Team& team, const HeadParts& parts, const HeadParts& free) {
        rotate(team, parts, free);
    }

private:
    /// 1 / sqrt(N).
    CELLAR_FUNCTION static constexpr float factor() {
        float found = 1;
        int n = N;
        for (; n >= 4; n /= 4) found /= 2;
        return n == 2 ? found * 0x1.6a09e6p-1F : found;
    }

    struct Transform {
        [[gnu::always_inline]] static void run(float* values, std::ptrdiff_t n) {
            for (std::ptrdiff_t i = 0; i < n; i += N) {
                float part[std::size_t{N}];
                float next[std::size_t{N}];
                std::memcpy(part, values + i, sizeof(part));
                for (int bit = 1; bit < N; bit *= 4) {
                    add_pairs(part, next);
                    if (2 * bit < N) {
                        add_pairs(next, part);
                    } else {
                        std::memcpy(part, next, sizeof(part));
                    }
                }
                for (int k = 0; k < N; ++k) values[i + k] = part[k] * factor();
            }
        }
        /// One bit of the index: the highest one becomes the lowest one. So all steps have the same loop.
        [[gnu::always_inline]] static void add_pairs(const float* __restrict from, float* __restrict to) {
            for (std::ptrdiff_t i = 0; i < N / 2; ++i) {
                to[2 * i] = from[i] + from[i + N / 2];
                to[2 * i + 1] = from[i] - from[i + N / 2];
            }
        }
    };
};

namespace detail {

/// The second plane of a format, if it has one.
template <class F>
struct ScalesOf {};
template <class F>
    requires has_scale_plane<F>
struct ScalesOf<F> {
    using scale = typename F::scale;
    static constexpr int values_per_scale = F::values_per_scale;
};

} // namespace detail

/// A format whose heads are rotated before they are encoded, and back after they are decoded: what is stored, moved and
/// saved is `F`. Heads without outliers of their own lose a little, those with outliers gain most: see
/// docs/how-to/store-in-fewer-bits.md.
template <HeadRotation Rotation, StorageFormat F>
struct Rotated : detail::ScalesOf<F> {
    using rotation = Rotation;
    using stored = detail::format_of<F>;
    using unit = detail::unit_of<F>;
    static constexpr int values_per_unit = detail::values_per_unit<F>;
    static constexpr int values_per_rotation = Rotation::values_per_rotation;

private:
    static constexpr detail::FormatName text = detail::FormatName{}.add(Rotation::name).add(".").add(stored::name);

public:
    static constexpr std::string_view name = text.view();

    static void encode(std::span<const float> values, std::span<unit> units) requires(!detail::has_scale_plane<F>) {
        float rotated[detail::max_encoded_dim];
        stored::encode(rotate(values, rotated), units);
    }
    static void encode(std::span<const float> values, std::span<unit> units,
                       std::span<detail::scale_of<F>> scales) requires detail::has_scale_plane<F> {
        float rotated[detail::max_encoded_dim];
        stored::encode(rotate(values, rotated), units, scales);
    }
    static void decode(std::span<const unit> units, std::span<float> values) requires(!detail::has_scale_plane<F>) {
        stored::decode(units, values);
        Rotation::undo(values);
    }
    static void decode(std::span<const unit> units, std::span<const detail::scale_of<F>> scales,
                       std::span<float> values) requires detail::has_scale_plane<F> {
        stored::decode(units, scales, values);
        Rotation::undo(values);
    }

private:
    static std::span<const float> rotate(std::span<const float> values, float* to) {
        std::copy(values.begin(), values.end(), to);
        Rotation::rotate({to, values.size()});
        return {to, values.size()};
    }
};

} // namespace cellar
