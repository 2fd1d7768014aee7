// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/format/detail/encoders.hpp>
#include <cellar/format/detail/numbers.hpp>
#include <cellar/format/detail/run.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace cellar::detail {

template <class Format>
struct DecodeBlocks {
    template <class Unit>
    [[gnu::always_inline]] static void run(const Unit* units, float* values, std::size_t n) {
        for (std::size_t i = 0; i < n; ++i) Format::decode_unit(units[i], values + i * Format::values_per_unit);
    }
};

/// What formats of blocks share: a block of `Values` values is an integer for each, and a factor for each
/// `ValuesPerFactor` of them, perhaps with an offset. `Format` has, always inlined and with loops of constant length,
///
/// - `encoding`, and the same for single blocks, `void encode_unit(const float* values, unit&)`
/// - `void unpack_unit(const unit&, code* codes, factor* factors)`, with `factor* offsets` if `Offsets`.
/// - if codes have 4 bits, what `looks_up_codes` asks for, and `void factors_of(const unit&, factor* factors)`.
template <class Format, class Unit, int Values, class Factor, int ValuesPerFactor = Values, bool Offsets = false>
struct InBlocks {
    using unit = Unit;
    using code = std::int8_t;
    using factor = Factor;
    static constexpr int values_per_unit = Values;
    static constexpr int values_per_factor = ValuesPerFactor;
    static constexpr bool has_offsets = Offsets;
    using encodes_several_heads = Format; ///< `encode` takes the values of several heads, too

    static void encode(std::span<const float> values, std::span<unit> units) {
        encode_blocks<Format>(values.data(), units.data(), units.size());
    }
    static void decode(std::span<const unit> units, std::span<float> values) {
        run<DecodeBlocks<Format>>(units.data(), values.data(), units.size());
    }

    /// For attention: value i is codes[i] * factors[i / values_per_factor] + offsets[i / values_per_factor].
    [[gnu::always_inline]] static void unpack(std::span<const unit> units, std::span<code> codes,
                                              std::span<factor> factors) requires(!Offsets) {
        for (std::size_t i = 0; i < units.size(); ++i)
            Format::unpack_unit(units.data()[i], codes.data() + i * Values, factors.data() + i * per_unit);
    }
    [[gnu::always_inline]] static void unpack(std::span<const unit> units, std::span<code> codes,
                                              std::span<factor> factors, std::span<factor> offsets) requires(Offsets) {
        for (std::size_t i = 0; i < units.size(); ++i)
            Format::unpack_unit(units.data()[i], codes.data() + i * Values, factors.data() + i * per_unit,
                                offsets.data() + i * per_unit);
    }

    static constexpr int per_unit = Values / ValuesPerFactor;

    /// The factors alone, for a format with `levels` that the codes are looked up in.
    template <class... Offset>
    [[gnu::always_inline]] static void unpack_factors(std::span<const unit> units, factor* factors,
                                                      Offset*... offsets) {
        for (std::size_t i = 0; i < units.size(); ++i)
            Format::factors_of(units.data()[i], factors + i * per_unit, (offsets + i * per_unit)...);
    }

    [[gnu::always_inline]] CELLAR_FUNCTION static void decode_unit(const unit& from, float* values) {
        code codes[std::size_t{Values}];
        factor factors[std::size_t{per_unit}];
        if constexpr (Offsets) {
            factor offsets[std::size_t{per_unit}];
            Format::unpack_unit(from, codes, factors, offsets);
            for (std::ptrdiff_t f = 0; f < per_unit; ++f)
                multiples<ValuesPerFactor>(codes + f * ValuesPerFactor, static_cast<float>(factors[f]),
                                           static_cast<float>(offsets[f]), values + f * ValuesPerFactor);
        } else {
            Format::unpack_unit(from, codes, factors);
            for (std::ptrdiff_t f = 0; f < per_unit; ++f)
                multiples<ValuesPerFactor>(codes + f * ValuesPerFactor, static_cast<float>(factors[f]),
                                           values + f * ValuesPerFactor);
        }
    }
};

} // namespace cellar::detail
