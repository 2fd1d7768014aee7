// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/element/storage_format.hpp>
#include <cellar/format/detail/numbers.hpp>
#include <cellar/format/detail/run.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string_view>

namespace cellar {

/// 8 bits a value, and a scale of 32 bits for each head in a plane of their own: a cache's rows of bytes, as engines
/// with kernels for int8 have them. Errors are at most a / 253, where a is the largest magnitude in the head.
///
/// A head with an infinity or a NaN decodes to values none of which is finite. One whose magnitudes are below 2^-119
/// decodes to zeros. What was decoded is encoded to the same bits again.
struct int8_per_head {
    using unit = std::int8_t;
    using scale = float;
    using code = std::int8_t; // attention takes the units as they are
    static constexpr int values_per_unit = 1;
    static constexpr int values_per_scale = whole_head;
    static constexpr std::string_view name = "int8_per_head";

    static void encode(std::span<const float> values, std::span<unit> units, std::span<scale> scales) {
        if (!values.empty()) detail::run<Encode>(values.data(), units.data(), scales.data(), std::ssize(values));
    }
    static void decode(std::span<const unit> units, std::span<const scale> scales, std::span<float> values) {
        if (!values.empty()) detail::run<Decode>(units.data(), scales.data(), values.data(), std::ssize(values));
    }

    CELLAR_FUNCTION static void encode_group(const float* values, int n, unit* units, scale& to) {
        std::int32_t largest = 0;
        for (int i = 0; i < n; ++i) {
            const std::int32_t magnitude = detail::magnitude_of(values[i]);
            largest = magnitude > largest ? magnitude : largest;
        }
        to = scale_of(largest);
        const float inverse = detail::inverse_of(to);
        for (int i = 0; i < n; ++i) detail::nearest_steps<1>(values + i, inverse, units + i);
    }
    CELLAR_FUNCTION static void decode_unit(const unit& from, const scale& by, float* value) {
        detail::multiples<1>(&from, by, value);
    }

private:
    /// Of the largest magnitude, as bits.
    [[gnu::always_inline]] CELLAR_FUNCTION static scale scale_of(std::int32_t largest) {
        const float exact = __builtin_bit_cast(float, largest) / 127;
        return exact < 0x1p-126F ? 0 : exact;
    }

    struct Encode {
        [[gnu::always_inline]] static void run(const float* values, unit* units, scale* to, std::ptrdiff_t n) {
            std::int32_t largest = 0;
            detail::for_each_chunk(n, [&]<int N>(std::ptrdiff_t i) CELLAR_ALWAYS_INLINE {
                const std::int32_t magnitude = detail::magnitude_of(detail::largest_magnitude<N>(values + i));
                largest = magnitude > largest ? magnitude : largest;
            });
            *to = scale_of(largest);
            const float inverse = detail::inverse_of(*to);
            detail::for_each_chunk(n, [&]<int N>(std::ptrdiff_t i) CELLAR_ALWAYS_INLINE {
                detail::nearest_steps<N>(values + i, inverse, units + i);
            });
        }
    };
    struct Decode {
        [[gnu::always_inline]] static void run(const unit* units, const scale* scales, float* values,
                                               std::ptrdiff_t n) {
            const float by = *scales;
            detail::for_each_chunk(n, [&]<int N>(std::ptrdiff_t i)
                                          CELLAR_ALWAYS_INLINE { detail::multiples<N>(units + i, by, values + i); });
        }
    };
};

} // namespace cellar
