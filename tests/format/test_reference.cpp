// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "heads.hpp"
#include "reference.hpp"
#include <cellar/format/affine.hpp>
#include <cellar/format/blocks.hpp>
#include <cellar/format/fp4.hpp>

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

// Every bit that a format stores, and every value that it reads, beside plain loops.

namespace test_reference {

using namespace cellar;
using namespace cellar_test;
using reference::Bytes;
using Values = std::span<const float>;
using Stored = std::span<const std::uint8_t>;

namespace {

constexpr int dim = 128;
constexpr int wide_dim = 17 * 32; ///< as many blocks as AVX-512 encodes at a time, and another one

template <class Unit>
Bytes bytes_of(const std::vector<Unit>& units) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(units.data());
    return {bytes, bytes + units.size() * sizeof(Unit)};
}

/// What some processors encode and decode with.
template <class F>
struct Level {
    const char* name;
    void (*encode)(const float*, typename F::unit*, std::size_t);
    void (*decode)(const typename F::unit*, float*, std::size_t);
};
/// Of those that this one can run.
template <class F>
std::vector<Level<F>> levels() {
    using Decode = detail::DecodeBlocks<F>;
    std::vector<Level<F>> all{{"every processor", detail::EncodeBlocks<F>::template run<typename F::unit>,
                               Decode::template run<typename F::unit>}};
#ifdef CELLAR_HAS_ENCODERS
    if (detail::simd::is_available())
        all.push_back({"vectors", detail::encoders::encode<F>,
                       detail::run_with_vectors<Decode, const typename F::unit*, float*, std::size_t>});
#endif
#ifdef CELLAR_HAS_X86_VECTORS
    if constexpr (std::is_same_v<F, iq4_nl>) {
        if (detail::Avx512Vector::is_available())
            all.push_back({"wide vectors", detail::encoders::encode_with_wide_vectors<F>,
                           detail::run_with_wide_vectors<Decode, const typename F::unit*, float*, std::size_t>});
    }
#endif
    return all;
}

/// Encodes blocks of heads with `encode`, compares the bytes, and what `decode` makes of them with the values.
template <class F, class Encode, class Decode>
void check(const std::vector<Head>& heads, const Encode& encode, const Decode& decode) {
    for (const Head& head : heads) {
        CAPTURE(head.kind);
        Bytes expected;
        std::vector<float> decoded;
        for (std::size_t i = 0; i < head.values.size(); i += F::values_per_unit) {
            const Bytes unit = encode(Values{head.values}.subspan(i, F::values_per_unit));
            expected.insert(expected.end(), unit.begin(), unit.end());
            const std::vector<float> values = decode(unit);
            decoded.insert(decoded.end(), values.begin(), values.end());
        }
        const StoredHead<F> stored{head.values};
        REQUIRE(bytes_of(stored.units) == expected);
        REQUIRE(same_bits(stored.decoded(), decoded));

        for (const Level<F>& level : levels<F>()) {
            CAPTURE(level.name);
            std::vector<typename F::unit> units(stored.units.size());
            std::vector<float> read(head.values.size());
            level.encode(head.values.data(), units.data(), units.size());
            level.decode(units.data(), read.data(), units.size());
            REQUIRE(bytes_of(units) == expected);
            REQUIRE(same_bits(read, decoded));
        }
    }
}

/// Heads of any bits: numbers of all exponents, some of them equal, infinities, NaNs and zeros of both signs.
std::vector<Head> heads_of_any_bits(int count, int size = dim) {
    std::mt19937 random{20261128};
    std::vector<Head> heads = infinite_heads(size);
    append(heads, extreme_heads(size));
    append(heads, edge_heads(size));
    const auto bits = [&](std::uint32_t mask) { return static_cast<std::uint32_t>(random()) & mask; };
    for (int n = 0; n < count; ++n) {
        const std::uint32_t exponent = bits(0xff) << 23;
        const auto of_one_exponent = [&](std::uint32_t mask) { return std::bit_cast<float>(exponent | bits(mask)); };
        heads.push_back(make_head("any bits", size, [&](int) { return std::bit_cast<float>(bits(~0U)); }));
        heads.push_back(make_head("of one exponent", size, [&](int) { return of_one_exponent(0x807fffff); }));
        heads.push_back(make_head("of few magnitudes", size, [&](int) { return of_one_exponent(0x80700000); }));
        heads.push_back(make_head("with zeros of both signs", size, [&](int i) {
            return bits(3) != 0 ? static_cast<float>(bits(7)) - 3 : i % 2 != 0 ? 0.0F : -0.0F;
        }));
    }
    return heads;
}
template <class F>
void check_levels(const std::vector<Head>& heads) {
    for (const Head& head : heads) {
        CAPTURE(F::name);
        CAPTURE(head.kind);
        const std::size_t all = head.values.size() / F::values_per_unit;
        std::vector<typename F::unit> expected(all);
        for (std::size_t n = 0; n <= all; ++n) {
            detail::EncodeBlocks<F>::run(head.values.data(), expected.data(), n);
            for (const Level<F>& level : levels<F>()) {
                CAPTURE(level.name);
                std::vector<typename F::unit> units(all);
                level.encode(head.values.data(), units.data(), n);
                REQUIRE(bytes_of(units) == bytes_of(expected));
            }
        }
    }
}

/// The same for groups of a format with scales and biases.
template <int Bits, int Group>
void check_groups(const std::vector<Head>& heads) {
    using F = Affine<Bits, Group>;
    using Plain = detail::AffineGroup<Bits, Group>;
    for (const Head& head : heads) {
        CAPTURE(F::name);
        CAPTURE(head.kind);
        for (std::size_t groups = 0; groups <= head.values.size() / Group; ++groups) {
            const StoredHead<F> stored{Values{head.values}.first(groups * Group)};
            std::vector<typename F::unit> units(groups * Group / 32);
            for (std::size_t i = 0; i < groups; ++i) {
                const auto pair = Plain::encode(head.values.data() + Group * i, units.data() + Group / 32 * i);
                REQUIRE(stored.scales[i].scale.bits == pair.scale.bits);
                REQUIRE(stored.scales[i].bias.bits == pair.bias.bits);
            }
            REQUIRE(bytes_of(stored.units) == bytes_of(units));
        }
    }
}

/// Without differences that overflow.
std::vector<Head> without_the_largest(std::vector<Head> heads) {
    std::erase_if(heads, [](const Head& head) { return head.kind == "the largest"; });
    return heads;
}

template <int Bits, int Group>
void check_affine() {
    using F = Affine<Bits, Group>;
    for (const Head& head : without_the_largest(finite_heads(2 * Group, 20))) {
        CAPTURE(head.kind);
        Bytes expected;
        std::vector<float> decoded;
        const StoredHead<F> stored{head.values};
        for (std::size_t group = 0; group < 2; ++group) {
            const reference::AffineGroup own{Values{head.values}.subspan(Group * group, Group), Bits};
            const Bytes numbers = own.bytes(Bits);
            expected.insert(expected.end(), numbers.begin(), numbers.end());
            const auto scale = static_cast<half>(own.scale);
            const auto bias = static_cast<half>(own.bias);
            REQUIRE(stored.scales[group].scale.bits == scale.bits);
            REQUIRE(stored.scales[group].bias.bits == bias.bits);
            for (const int n : own.numbers)
                decoded.push_back(static_cast<float>(n) * static_cast<float>(scale) + static_cast<float>(bias));
        }
        REQUIRE(bytes_of(stored.units) == expected);
        REQUIRE(same_bits(stored.decoded(), decoded));
    }
}

} // namespace

TEST_CASE("q8_0 stores the nearest multiples of a scale") {
    check<q8_0>(finite_heads(dim, 50), reference::encode_q8_0, reference::decode_q8_0);
}

TEST_CASE("q4_0 and q5_0 store multiples of a scale that the value of largest magnitude decides") {
    const auto encode = [](int bits) { return [=](Values block) { return reference::encode_signed(block, bits); }; };
    const auto decode = [](int bits) { return [=](Stored b) { return reference::decode_steps(b, bits, false); }; };
    check<q4_0>(finite_heads(dim, 50), encode(4), decode(4));
    check<q5_0>(finite_heads(dim, 50), encode(5), decode(5));
}

TEST_CASE("q4_1 and q5_1 store steps from the smallest value on") {
    const auto encode = [](int bits) { return [=](Values block) { return reference::encode_minimum(block, bits); }; };
    const auto decode = [](int bits) { return [=](Stored b) { return reference::decode_steps(b, bits, true); }; };
    check<q4_1>(without_the_largest(finite_heads(dim, 50)), encode(4), decode(4));
    check<q5_1>(without_the_largest(finite_heads(dim, 50)), encode(5), decode(5));
}

TEST_CASE("iq4_nl stores the nearest of 16 levels, and a scale of least squares") {
    for (const int n : {dim, wide_dim}) {
        std::vector<Head> heads = usual_heads(n, 50); // sums of fourth powers neither overflow nor vanish
        append(heads, edge_heads(n));
        check<iq4_nl>(heads, reference::encode_iq4_nl, reference::decode_iq4_nl);
    }
}

TEST_CASE("mxfp4 stores the nearest of 8 magnitudes times a power of two") {
    check<mxfp4>(finite_heads(dim, 50), reference::encode_mxfp4, reference::decode_mxfp4);
}

TEST_CASE("nvfp4 stores the nearest of 8 magnitudes times a scale of 8 bits") {
    const auto encode = [](bool four) { return [=](Values unit) { return reference::encode_nvfp4(unit, four); }; };
    std::vector<Head> heads = usual_heads(dim, 20);
    append(heads, edge_heads(dim));
    check<nvfp4>(heads, encode(false), reference::decode_nvfp4);
    check<nvfp4_four_over_six>(heads, encode(true), reference::decode_nvfp4);
}

TEST_CASE("numbers of 4 bits are those of the OCP table, times powers of two or numbers of E4M3") {
    const std::vector<float> numbers{0, 0.5F, 1, 1.5F, 2, 3, 4, 6, -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6};
    const auto scaled = [&](float scale) {
        std::vector<float> all;
        for (const float x : numbers) all.push_back(x * scale);
        return all;
    };
    // Byte i of a group has number i in its lower half, and i + n / 2 in the upper one.
    for (int exponent = 1; exponent < 255; ++exponent) { // E8M0: 255 is a NaN
        Bytes bytes{static_cast<std::uint8_t>(exponent)};
        for (int code = 0; code < 16; ++code) bytes.push_back(static_cast<std::uint8_t>(code * 17));
        std::vector<mxfp4::unit> unit(1);
        std::memcpy(unit.data(), bytes.data(), sizeof(mxfp4::unit));
        std::vector<float> found(32);
        mxfp4::decode(unit, found);
        const std::vector<float> expected = scaled(std::ldexp(1.0F, exponent - 127));
        for (std::size_t i = 0; i < 32; ++i) REQUIRE(found[i] == expected[i % 16]); // zeros have no sign
    }
    for (int scale = 0; scale < 0x7f; ++scale) { // E4M3 without sign: 0x7f is a NaN
        std::vector<nvfp4::unit> unit(1);
        auto* const bytes = reinterpret_cast<std::uint8_t*>(unit.data());
        for (int group = 0; group < 4; ++group) bytes[group] = static_cast<std::uint8_t>(scale);
        for (int i = 0; i < 32; ++i) bytes[4 + i] = static_cast<std::uint8_t>(i % 8 | (i % 8 + 8) << 4);
        std::vector<float> found(64);
        nvfp4::decode(unit, found);
        const int fraction = scale % 8;
        const float by = scale < 8 ? std::ldexp(static_cast<float>(fraction), -9)
                                   : std::ldexp(static_cast<float>(8 + fraction), scale / 8 - 10);
        const std::vector<float> expected = scaled(by);
        for (std::size_t i = 0; i < 64; ++i) REQUIRE(found[i] == expected[i % 16]);
    }
}

TEST_CASE("vectors encode any floats to the bits of plain loops, and no more blocks than there are") {
    const std::vector<Head> heads = heads_of_any_bits(100);
    check_levels<q8_0>(heads);
    check_levels<q4_0>(heads);
    check_levels<q4_1>(heads);
    check_levels<q5_0>(heads);
    check_levels<q5_1>(heads);
    check_levels<iq4_nl>(heads);
    check_levels<iq4_nl>(heads_of_any_bits(50, wide_dim));
    check_levels<mxfp4>(heads);
    check_levels<nvfp4>(heads);
    check_levels<nvfp4_four_over_six>(heads);
}

TEST_CASE("vectors encode any groups of floats to the bits of plain loops") {
    std::vector<Head> heads = heads_of_any_bits(60);
    append(heads, usual_heads(dim, 60));
    heads.push_back(
        make_head("less than half of the least step", dim, [](int i) { return i % 3 == 0 ? -4.5e-8 : 4e-8; }));
    check_groups<2, 32>(heads);
    check_groups<3, 64>(heads);
    check_groups<4, 32>(heads);
    check_groups<4, 64>(heads);
    check_groups<4, 128>(heads);
    check_groups<6, 64>(heads);
    check_groups<8, 64>(heads);
}

TEST_CASE("vectors decide as plain loops do beside the middles between numbers of 4 bits, for all scales") {
    std::vector<Head> heads;
    for (int scale = 0x78; scale < 0x7f * 8; ++scale) { // as E4M3, and beyond
        const float by = std::ldexp(static_cast<float>(8 + scale % 8), scale / 8 - 64);
        heads.push_back(make_head("middles", dim, [&](int i) {
            constexpr float middles[] = {0.25F, 0.75F, 1.25F, 1.75F, 2.5F, 3.5F, 5};
            const float middle = i % 16 == 0 ? 6 * by : by * middles[i % 7];
            const float towards = i / 16 % 3 == 0 ? middle : i / 16 % 3 == 1 ? 0 : 2 * middle;
            return (i % 2 == 0 ? 1.0F : -1.0F) * (i % 16 == 0 ? middle : std::nextafter(middle, towards));
        }));
    }
    check_levels<mxfp4>(heads);
    check_levels<nvfp4>(heads);
}

TEST_CASE("vectors decide as plain loops do beside the middles between levels of iq4_nl") {
    std::vector<Head> heads;
    for (int scale = 0; scale < 64; ++scale) {
        const float by = std::ldexp(static_cast<float>(64 + scale), scale - 40);
        heads.push_back(make_head("middles", wide_dim, [&](int i) {
            const auto at = static_cast<std::size_t>(i % 15);
            const int twice = detail::iq4_levels[at] + detail::iq4_levels[at + 1];
            const float middle = by * static_cast<float>(twice) / 2;
            const float towards = i / 15 % 3 == 0 ? middle : i / 15 % 3 == 1 ? 0 : 2 * middle;
            return i % 32 == 0 ? -127 * by : std::nextafter(middle, towards);
        }));
    }
    check_levels<iq4_nl>(heads);
}

TEST_CASE("several heads are encoded as one by one") {
    for (const Head& head : usual_heads(8 * dim, 3)) {
        CAPTURE(head.kind);
        const auto check = [&]<class F>(const StoredHead<F>& all) {
            for (std::size_t i = 0; i < 8; ++i) {
                const StoredHead<F> one{Values{head.values}.subspan(i * dim, dim)};
                const std::size_t units = one.units.size();
                REQUIRE(std::memcmp(all.units.data() + i * units, one.units.data(), units * sizeof(one.units[0])) == 0);
            }
        };
        check(StoredHead<q8_0>{head.values});
        check(StoredHead<q4_1>{head.values});
        check(StoredHead<iq4_nl>{head.values});
        check(StoredHead<mxfp4>{head.values});
        check(StoredHead<nvfp4>{head.values});
        check(StoredHead<Affine<4>>{head.values});
    }
}

TEST_CASE("affine groups have the numbers, scales and biases of MLX") {
    check_affine<2, 64>();
    check_affine<3, 64>();
    check_affine<4, 32>();
    check_affine<4, 64>();
    check_affine<6, 128>();
    check_affine<8, 64>();
}

} // namespace test_reference
