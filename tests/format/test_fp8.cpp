// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "heads.hpp"
#include "paths.hpp"
#include "reference.hpp"
#include <cellar/format/fp8.hpp>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace test_fp8 {

using namespace cellar;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

template <class F>
std::vector<float> decoded(const std::vector<std::uint8_t>& units) {
    std::vector<float> values(units.size());
    F::decode(units, values);
    return values;
}
template <class F>
std::vector<std::uint8_t> encoded(const std::vector<float>& values) {
    std::vector<std::uint8_t> units(values.size());
    F::encode(values, units);
    return units;
}

std::vector<std::uint8_t> all_patterns() {
    std::vector<std::uint8_t> all;
    for (int bits = 0; bits < 256; ++bits) all.push_back(static_cast<std::uint8_t>(bits));
    return all;
}

/// Beside [[value as bits, unit], ...] of PyTorch.
template <class F>
void check_table(const nlohmann::json& table) {
    std::vector<float> values;
    std::vector<std::uint8_t> expected;
    for (const auto& entry : table.at("encoded")) {
        values.push_back(std::bit_cast<float>(entry.at(0).get<std::uint32_t>()));
        expected.push_back(entry.at(1).get<std::uint8_t>());
    }
    REQUIRE(values.size() > 1000);
    CHECK(encoded<F>(values) == expected);

    std::vector<float> read;
    for (const auto& bits : table.at("decoded")) read.push_back(std::bit_cast<float>(bits.get<std::uint32_t>()));
    CHECK(cellar_test::same_bits(decoded<F>(all_patterns()), read));
}

/// With saturation: the nearest number.
template <class F>
void check_nearest(int exponent_bits, int fraction_bits, int largest) {
    for (const cellar_test::Head& head : cellar_test::finite_heads(97, 30)) {
        const std::vector<float> values = decoded<F>(encoded<F>(head.values));
        for (std::size_t i = 0; i < values.size(); ++i) {
            double least = std::numeric_limits<double>::infinity();
            for (int bits = 0; bits <= largest; ++bits) {
                const double number = cellar_test::reference::small_float(bits, exponent_bits, fraction_bits);
                least = std::min(least, std::abs(number - std::abs(head.values[i])));
            }
            REQUIRE(std::abs(double{values[i]} - head.values[i]) == least);
            REQUIRE(std::signbit(values[i]) == std::signbit(head.values[i]));
        }
    }
}

} // namespace

TEST_CASE("fp8 has the bits of PyTorch's float8, of which E4M3 saturates and E5M2 does not") {
    std::ifstream file{cellar_test::source_dir() + "/tests/format/float8.json"};
    const auto tables = nlohmann::json::parse(file);
    check_table<fp8_e4m3>(tables.at("float8_e4m3fn"));
    check_table<Fp8E5m2<Overflow::is_special>>(tables.at("float8_e5m2"));
}

TEST_CASE("all 256 patterns of fp8 are the numbers of the OCP specification") {
    const auto check = []<class F>(F, int exponent_bits, int fraction_bits, int infinity_code, int first_nan) {
        const std::vector<float> found = decoded<F>(all_patterns());
        for (int bits = 0; bits < 256; ++bits) {
            CAPTURE(bits);
            const int magnitude = bits & 0x7f;
            const float x = found[static_cast<std::size_t>(bits)];
            if (magnitude >= first_nan) {
                CHECK(std::isnan(x));
            } else if (magnitude == infinity_code) {
                CHECK(x == (bits < 128 ? infinity : -infinity));
            } else {
                CHECK(x == cellar_test::reference::small_float(bits, exponent_bits, fraction_bits));
                CHECK(std::signbit(x) == (bits >= 128));
            }
        }
    };
    check(fp8_e4m3{}, 4, 3, -1, 0x7f);
    check(fp8_e5m2{}, 5, 2, 0x7c, 0x7d);
}

TEST_CASE("fp8 that saturates stores the nearest number") {
    check_nearest<fp8_e4m3>(4, 3, 0x7e);
    check_nearest<fp8_e5m2>(5, 2, 0x7b);
}

TEST_CASE("attention multiplies what is decoded, of all patterns") {
    const auto check = []<class F>() {
        std::vector<half> codes(256);
        float factor = 0;
        F::unpack(all_patterns(), codes, {&factor, 1});
        std::vector<float> products;
        for (const half code : codes) products.push_back(static_cast<float>(code) * factor);
        CHECK(cellar_test::same_bits(products, decoded<F>(all_patterns())));
    };
    check.template operator()<fp8_e4m3>();
    check.template operator()<fp8_e5m2>();
}

TEST_CASE("infinities saturate or stay special, and NaNs stay NaNs") {
    const std::vector<float> values{infinity, -infinity, 1e30F, -465.0F, std::nanf(""), -std::nanf("")};
    CHECK(encoded<fp8_e4m3>(values) == std::vector<std::uint8_t>{0x7e, 0xfe, 0x7e, 0xfe, 0x7f, 0xff});
    CHECK(encoded<Fp8E4m3<Overflow::is_special>>(values)
          == std::vector<std::uint8_t>{0x7f, 0xff, 0x7f, 0xff, 0x7f, 0xff});
    CHECK(encoded<fp8_e5m2>(values) == std::vector<std::uint8_t>{0x7b, 0xfb, 0x7b, 0xdf, 0x7f, 0xff});
    CHECK(encoded<Fp8E5m2<Overflow::is_special>>(values)
          == std::vector<std::uint8_t>{0x7c, 0xfc, 0x7c, 0xdf, 0x7f, 0xff});
}

TEST_CASE("without saturation, E4M3 becomes a NaN where the next number would be nearer than 448") {
    std::vector<float> values = decoded<fp8_e4m3>(all_patterns());
    std::erase_if(values, [](float x) { return std::isnan(x); });
    for (const float x : {464.0F, -464.0F, 460.0F}) values.push_back(x);
    CHECK(encoded<Fp8E4m3<Overflow::is_special>>(values) == encoded<fp8_e4m3>(values));
    CHECK(encoded<Fp8E4m3<Overflow::is_special>>({std::nextafter(464.0F, 1e9F), -470.0F, 480.0F, 512.0F})
          == std::vector<std::uint8_t>{0x7f, 0xff, 0x7f, 0x7f});
}

} // namespace test_fp8
