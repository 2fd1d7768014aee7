// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/element/storage_format.hpp>
#include <cellar/element/stored_format.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>

namespace cellar {

namespace detail {

/// A storage format as a value, where it is known at run time only. `scales` is null if there is no second plane. Units
/// and scales are bytes of one head, aligned for both.
struct FormatCodec {
    StoredFormat (*units)();
    StoredFormat (*scales)();
    std::uint64_t unit_bytes;
    std::uint64_t scale_bytes; ///< 0 if there are no scales
    int values_per_unit;
    int values_together; ///< a head has a multiple of so many values
    int max_dim;         ///< and at most so many
    int (*scales_in)(int dim);
    void (*decode)(const std::byte* units, const std::byte* scales, std::span<float> values);
    void (*encode)(std::span<const float> values, std::byte* units, std::byte* scales);

    bool suits(std::uint64_t dim) const {
        return dim <= static_cast<std::uint64_t>(max_dim) && dim % static_cast<std::uint64_t>(values_together) == 0;
    }
    std::uint64_t units_of(std::uint64_t dim) const { return dim / static_cast<std::uint64_t>(values_per_unit); }
    std::uint64_t scales_of(std::uint64_t dim) const {
        return static_cast<std::uint64_t>(scales_in(static_cast<int>(dim)));
    }
    std::uint64_t head_bytes(std::uint64_t dim) const {
        return units_of(dim) * unit_bytes + scales_of(dim) * scale_bytes;
    }
};

template <StorageFormat F>
constexpr int values_together() {
    constexpr int served = has_scale_plane<F> && ScaleOf<F>::values != whole_head ? ScaleOf<F>::values : 1;
    return std::lcm(std::lcm(values_per_unit<F>, served), values_per_rotation<F>);
}

template <StorageFormat F>
void decode_head(const std::byte* units, const std::byte* scales, std::span<float> values) {
    const auto dim = static_cast<int>(values.size());
    const std::span of_units{reinterpret_cast<const unit_of<F>*>(units), values.size() / values_per_unit<F>};
    if constexpr (has_scale_plane<F>) {
        const auto count = static_cast<std::size_t>(scales_in<F>(dim));
        format_of<F>::decode(of_units, std::span{reinterpret_cast<const scale_of<F>*>(scales), count}, values);
    } else {
        format_of<F>::decode(of_units, values);
    }
}
template <StorageFormat F>
void encode_head(std::span<const float> values, std::byte* units, std::byte* scales) {
    const auto dim = static_cast<int>(values.size());
    const std::span of_units{reinterpret_cast<unit_of<F>*>(units), values.size() / values_per_unit<F>};
    if constexpr (has_scale_plane<F>) {
        const auto count = static_cast<std::size_t>(scales_in<F>(dim));
        format_of<F>::encode(values, of_units, std::span{reinterpret_cast<scale_of<F>*>(scales), count});
    } else {
        format_of<F>::encode(values, of_units);
    }
}

template <StorageFormat F>
constexpr auto scales_function() -> StoredFormat (*)() {
    if constexpr (has_scale_plane<F>) return &stored_scales_of<F>;
    return nullptr;
}

template <StorageFormat F>
inline constexpr FormatCodec codec_of{&stored_units_of<F>,
                                      scales_function<F>(),
                                      sizeof(unit_of<F>),
                                      has_scale_plane<F> ? sizeof(scale_of<F>) : 0,
                                      values_per_unit<F>,
                                      values_together<F>(),
                                      Element<F> ? INT32_MAX : max_encoded_dim,
                                      &scales_in<F>,
                                      &decode_head<F>,
                                      &encode_head<F>};

/// Units and scales of heads, one head behind the other.
template <class Byte>
struct HeadPlanes {
    Byte* units;
    Byte* scales; ///< anything if there are none
};

/// Decodes and encodes n heads of `dim` values, one at a time. Both formats suit them: longer heads than others may
/// have are of elements, and converted in parts.
inline void convert_heads(const FormatCodec& from, HeadPlanes<const std::byte> source, const FormatCodec& to,
                          HeadPlanes<std::byte> target, std::uint64_t n, std::uint64_t dim) {
    float values[max_encoded_dim];
    for (std::uint64_t left = n * dim, part = 0; left > 0; left -= part) {
        part = std::min({left, dim, std::uint64_t{max_encoded_dim}});
        const std::span head{static_cast<float*>(values), static_cast<std::size_t>(part)};
        from.decode(source.units, source.scales, head);
        to.encode(head, target.units, target.scales);
        source.units += from.units_of(part) * from.unit_bytes;
        target.units += to.units_of(part) * to.unit_bytes;
        if (from.scales != nullptr) source.scales += from.scales_of(part) * from.scale_bytes;
        if (to.scales != nullptr) target.scales += to.scales_of(part) * to.scale_bytes;
    }
}

} // namespace detail

/// Storage formats as a value: see `formats`.
using FormatList = std::span<const detail::FormatCodec>;

/// A list of storage formats, for the `convert_from` of `LoadOptions` and `mpi::ReceiveOptions`.
template <StorageFormat... Formats>
inline constexpr std::array<detail::FormatCodec, sizeof...(Formats)> formats{detail::codec_of<Formats>...};

/// Formats to convert keys and values to: see `stored_as`.
struct StoredAs {
    const detail::FormatCodec* keys = nullptr; ///< null: as they are
    const detail::FormatCodec* values = nullptr;
};

/// The formats of keys and of values outside of their cache, for `SaveOptions::store_as`, `mpi::SendOptions::send_as`
/// and `CacheLimits::offload_as`.
template <StorageFormat Keys, StorageFormat Values = Keys>
inline constexpr StoredAs stored_as{&detail::codec_of<Keys>, &detail::codec_of<Values>};

} // namespace cellar
