// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "formats.hpp"
#include <cellar/element/half.hpp>
#include <cellar/element/storage_format.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

// Storage formats that can be unpacked to codes, one of each kind. `decode` does not call `unpack`.

namespace cellar_test {

/// Bytes in blocks of 32, whose factor is a half.
struct CodedBlocks : BlocksOf32 {
    using code = std::int8_t;
    using factor = cellar::half;
    static constexpr int values_per_factor = 32;
    static constexpr std::string_view name = "test_coded_blocks";

    static void unpack(std::span<const unit> units, std::span<code> codes, std::span<factor> factors) {
        for (std::size_t i = 0; i < units.size(); ++i) {
            factors[i] = units[i].scale;
            for (std::size_t k = 0; k < 32; ++k) codes[32 * i + k] = units[i].steps[k];
        }
    }
};

/// A byte for each value, and one scale for each head: units are the codes.
struct CodedHeads : ScaledHeads {
    using code = std::int8_t;
    static constexpr std::string_view name = "test_coded_heads";
};

/// Four bits in blocks of N values, from a least value on.
template <int N>
struct CodedNibbles {
    struct unit {
        float step;
        float least;
        std::uint8_t pairs[std::size_t{N} / 2];
    };
    using code = std::int8_t;
    static constexpr int values_per_unit = N;
    static constexpr int values_per_factor = N;
    static constexpr bool has_offsets = true;
    static constexpr std::string_view name = "test_coded_nibbles";

    static void encode(std::span<const float> values, std::span<unit> units) {
        for (std::size_t i = 0; i < units.size(); ++i) {
            const auto block = values.subspan(N * i, N);
            const auto [least, most] = std::minmax_element(block.begin(), block.end());
            units[i] = {(*most - *least) / 15, *least, {}};
            const auto bits = [&](std::size_t k) {
                return static_cast<unsigned>(units[i].step == 0 ? 0 : std::round((block[k] - *least) / units[i].step));
            };
            for (std::size_t k = 0; k < N / 2; ++k)
                units[i].pairs[k] = static_cast<std::uint8_t>(bits(k) | bits(k + N / 2) << 4);
        }
    }
    static void decode(std::span<const unit> units, std::span<float> values) {
        for (std::size_t i = 0; i < values.size(); ++i) {
            const unit& block = units[i / N];
            const std::size_t k = i % N;
            const int number = k < N / 2 ? block.pairs[k] % 16 : block.pairs[k - N / 2] / 16;
            values[i] = static_cast<float>(number) * block.step + block.least;
        }
    }
    static void unpack(std::span<const unit> units, std::span<code> codes, std::span<float> factors,
                       std::span<float> offsets) {
        for (std::size_t i = 0; i < units.size(); ++i) {
            factors[i] = units[i].step;
            offsets[i] = units[i].least;
            for (std::size_t k = 0; k < N / 2; ++k) {
                codes[N * i + k] = static_cast<code>(units[i].pairs[k] & 15);
                codes[N * i + N / 2 + k] = static_cast<code>(units[i].pairs[k] >> 4);
            }
        }
    }
};

/// The upper byte of a half, and one scale for each head.
struct CodedHalves {
    using unit = std::uint8_t;
    using scale = cellar::half;
    using code = cellar::half;
    using factor = cellar::half;
    static constexpr int values_per_unit = 1;
    static constexpr int values_per_scale = cellar::whole_head;
    static constexpr int values_per_factor = cellar::whole_head;
    static constexpr std::string_view name = "test_coded_halves";

    static cellar::half half_of(unit byte) { return cellar::half::from_bits(static_cast<std::uint16_t>(byte << 8)); }

    static void encode(std::span<const float> values, std::span<unit> units, std::span<scale> scales) {
        scales[0] = cellar::half{0.5F};
        for (std::size_t i = 0; i < values.size(); ++i)
            units[i] = static_cast<unit>((cellar::half{2 * values[i]}.bits + 0x80) >> 8);
    }
    static void decode(std::span<const unit> units, std::span<const scale> scales, std::span<float> values) {
        for (std::size_t i = 0; i < values.size(); ++i)
            values[i] = static_cast<float>(half_of(units[i])) * static_cast<float>(scales[0]);
    }
    static void unpack(std::span<const unit> units, std::span<const scale> scales, std::span<code> codes,
                       std::span<factor> factors) {
        factors[0] = scales[0];
        for (std::size_t i = 0; i < units.size(); ++i) codes[i] = half_of(units[i]);
    }
};

/// Neighbouring values as a pair, turned by an angle whose cosine is 0.6.
struct TurnedPairs {
    static void rotate(std::span<float> head) { turn(head, 0.8F); }
    static void undo(std::span<float> head) { turn(head, -0.8F); }

private:
    static void turn(std::span<float> head, float sine) {
        for (std::size_t i = 0; i < head.size(); i += 2) {
            const float a = head[i];
            head[i] = 0.6F * a - sine * head[i + 1];
            head[i + 1] = sine * a + 0.6F * head[i + 1];
        }
    }
};

/// A format of one plane, of turned heads.
template <class F>
struct Turned {
    using stored = F;
    using rotation = TurnedPairs;
    using unit = typename F::unit;
    static constexpr int values_per_unit = F::values_per_unit;
    static constexpr std::string_view name = "test_turned";

    static void encode(std::span<const float> values, std::span<unit> units) {
        std::vector<float> turned(values.begin(), values.end());
        rotation::rotate(turned);
        F::encode(turned, units);
    }
    static void decode(std::span<const unit> units, std::span<float> values) {
        F::decode(units, values);
        rotation::undo(values);
    }
};

} // namespace cellar_test
