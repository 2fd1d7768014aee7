// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "format/heads.hpp"
#include "format/reference.hpp"
#include <cellar/format/blocks.hpp>
#include <cellar/format/fp4.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstring>
#include <ggml.h>
#include <random>
#include <span>
#include <string>
#include <vector>

// Every bit beside ggml's own.

namespace test_ggml {

using namespace cellar;
using namespace cellar_test;

namespace {

constexpr int dim = 128;

/// Without heads for which ggml converts numbers to integers that these cannot hold: scales without a finite inverse,
/// and differences that overflow.
std::vector<Head> heads(int random_heads) {
    std::vector<Head> all = finite_heads(dim, random_heads);
    std::erase_if(all, [](const Head& head) {
        return head.kind == "the largest" || head.kind == "subnormal" || head.kind == "2^-149" || head.kind == "2^-140"
               || head.kind == "2^-126";
    });
    return all;
}

template <class F>
std::vector<typename F::unit> chunk_of(ggml_type type, const Head& head) {
    std::vector<typename F::unit> units(head.values.size() / F::values_per_unit);
    ggml_quantize_chunk(type, head.values.data(), units.data(), 0, 1, dim, nullptr);
    return units;
}
/// What caches are written with.
template <class F>
std::vector<typename F::unit> written(ggml_type type, const Head& head) {
    std::vector<typename F::unit> units(head.values.size() / F::values_per_unit);
    ggml_get_type_traits(type)->from_float_ref(head.values.data(), units.data(), dim);
    return units;
}

template <class F, class Encode>
void check_bits(ggml_type type, const std::vector<Head>& all, const Encode& encode) {
    REQUIRE(ggml_type_size(type) == sizeof(typename F::unit));
    REQUIRE(ggml_blck_size(type) == F::values_per_unit);
    REQUIRE(std::string{ggml_type_name(type)} == F::name);
    for (const Head& head : all) {
        CAPTURE(F::name);
        CAPTURE(head.kind);
        const std::vector<typename F::unit> expected = encode(type, head);
        const StoredHead<F> stored{head.values};
        REQUIRE(std::memcmp(stored.units.data(), expected.data(), expected.size() * sizeof(expected[0])) == 0);
    }
}
template <class F>
void check_chunks(ggml_type type) {
    check_bits<F>(type, heads(2000), chunk_of<F>);
}

/// Random bytes as units, with the scales that `is_valid` accepts.
template <class F, class IsValid>
void check_values(ggml_type type, const IsValid& is_valid) {
    std::mt19937 random{3};
    std::vector<typename F::unit> units;
    while (units.size() < 4000) {
        unsigned char bytes[sizeof(typename F::unit)];
        for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random());
        typename F::unit unit;
        std::memcpy(&unit, bytes, sizeof(unit));
        if (is_valid(unit)) units.push_back(unit);
    }
    std::vector<float> expected(units.size() * F::values_per_unit);
    std::vector<float> values(expected.size());
    ggml_get_type_traits(type)->to_float(units.data(), expected.data(), static_cast<std::int64_t>(expected.size()));
    F::decode(std::span{units}, std::span{values});
    CAPTURE(F::name);
    CHECK(same_bits(values, expected));
}
template <class F>
void check_values(ggml_type type) {
    check_values<F>(type, [](const auto&) { return true; });
}

} // namespace

TEST_CASE("blocks have the bytes of ggml_quantize_chunk") {
    check_chunks<q8_0>(GGML_TYPE_Q8_0);
    check_chunks<q4_0>(GGML_TYPE_Q4_0);
    check_chunks<q4_1>(GGML_TYPE_Q4_1);
    check_chunks<q5_0>(GGML_TYPE_Q5_0);
    check_chunks<q5_1>(GGML_TYPE_Q5_1);
}

TEST_CASE("iq4_nl has the bytes that caches are written with") {
    std::vector<Head> all = usual_heads(dim, 2000);
    append(all, edge_heads(dim));
    std::erase_if(all,
                  [](const Head& head) { return head.kind.find("zero") != std::string::npos; }); // codes are left over
    check_bits<iq4_nl>(GGML_TYPE_IQ4_NL, all, written<iq4_nl>);
}

TEST_CASE("mxfp4 has the bytes of ggml_quantize_chunk") {
    check_chunks<mxfp4>(GGML_TYPE_MXFP4);
}

TEST_CASE("nvfp4 has the bytes of ggml_quantize_chunk where scales are between 2^-6 and 240") {
    std::vector<Head> all = usual_heads(dim, 2000); // others round differently in ggml, and 256 becomes 448
    std::erase_if(all, [](const Head& head) {
        for (std::size_t i = 0; i < head.values.size(); i += 16) {
            const float largest = cellar_test::reference::largest(std::span{head.values}.subspan(i, 16));
            if (largest < 6 * 0x1p-6F || largest > 6 * 240) return true;
        }
        return false;
    });
    check_bits<nvfp4>(GGML_TYPE_NVFP4, all, chunk_of<nvfp4>);
}

TEST_CASE("blocks decode to the values of to_float") {
    check_values<q8_0>(GGML_TYPE_Q8_0);
    check_values<q4_0>(GGML_TYPE_Q4_0);
    check_values<q4_1>(GGML_TYPE_Q4_1);
    check_values<q5_0>(GGML_TYPE_Q5_0);
    check_values<q5_1>(GGML_TYPE_Q5_1);
    check_values<iq4_nl>(GGML_TYPE_IQ4_NL);
    check_values<mxfp4>(GGML_TYPE_MXFP4, [](const mxfp4::unit& unit) { return unit.scale != 255; });
    check_values<nvfp4>(GGML_TYPE_NVFP4, [](nvfp4::unit& unit) {
        for (std::uint8_t& scale : unit.scales) scale &= 0x7f;
        for (const std::uint8_t scale : unit.scales)
            if (scale == 0x7f) return false; // a NaN, which ggml takes for zero
        return true;
    });
}

} // namespace test_ggml
