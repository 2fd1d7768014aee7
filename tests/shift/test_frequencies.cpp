// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "violations.hpp"
#include <cellar/shift/frequencies.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

namespace test_frequencies {

namespace {

void check_all(const std::vector<double>& actual, const std::vector<double>& expected) {
    REQUIRE(actual.size() == expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i) CHECK(actual[i] == doctest::Approx(expected[i]).epsilon(1e-12));
}

} // namespace

TEST_CASE("plain frequencies are powers of the base") {
    check_all(cellar::rope_frequencies(8), {1.0, 0.1, 0.01, 0.001});
    check_all(cellar::rope_frequencies(4, 1e6), {1.0, 0.001});
    check_all(cellar::rope_frequencies(2), {1.0});
}

TEST_CASE("linear scaling divides all frequencies by the factor") {
    check_all(cellar::linear_scaled(cellar::rope_frequencies(8), 4.0), {0.25, 0.025, 0.0025, 0.00025});
}

TEST_CASE("each frequency is divided by its own factor") {
    const std::vector<float> factors{1.0F, 2.0F, 8.0F, 0.5F};
    check_all(cellar::divided_by(cellar::rope_frequencies(8), factors), {1.0, 0.05, 0.00125, 0.002});
    CHECK(cellar::divided_by({}, {}).empty());
}

// As a GGUF file of Llama 3.1 has them: the factors are floats.
TEST_CASE("Llama 3.1's scaling may be factors of a file") {
    const auto plain = cellar::rope_frequencies(128, 5e5);
    const auto scaled = cellar::llama3_scaled(plain, {});
    std::vector<float> factors;
    for (std::size_t i = 0; i < plain.size(); ++i) factors.push_back(static_cast<float>(plain[i] / scaled[i]));
    const auto divided = cellar::divided_by(plain, factors);
    for (std::size_t i = 0; i < plain.size(); ++i) CHECK(divided[i] == doctest::Approx(scaled[i]).epsilon(1e-7));
}

TEST_CASE("NTK-aware scaling keeps the highest frequency and divides the lowest by the factor") {
    check_all(cellar::ntk_scaled(cellar::rope_frequencies(8), 8.0), {1.0, 0.05, 0.0025, 0.000125});
    // The published form: the base times factor^(d / (d - 2)).
    check_all(cellar::ntk_scaled(cellar::rope_frequencies(128, 5e5), 4.0),
              cellar::rope_frequencies(128, 5e5 * std::pow(4.0, 128.0 / 126.0)));
    check_all(cellar::ntk_scaled({1.0}, 4.0), {1.0});
}

// Llama 3.1: 128 rotary elements, base 500000, factor 8, 8192 positions. Within these positions, pairs up to 28 make
// more than 4 full rotations, pairs from 35 on less than one.
TEST_CASE("Llama 3.1's scaling has a ramp over the number of full rotations") {
    const auto plain = cellar::rope_frequencies(128, 5e5);
    const auto scaled = cellar::llama3_scaled(plain, {});
    for (std::size_t i = 0; i < 29; ++i) CHECK(scaled[i] == plain[i]);
    CHECK(scaled[29] == doctest::Approx(0.002166570763503359).epsilon(1e-12));
    CHECK(scaled[30] == doctest::Approx(0.0013718935677611381).epsilon(1e-12));
    CHECK(scaled[33] == doctest::Approx(0.00031269375038406517).epsilon(1e-12));
    CHECK(scaled[34] == doctest::Approx(0.0001785078127679964).epsilon(1e-12));
    for (std::size_t i = 35; i < 64; ++i) CHECK(scaled[i] == doctest::Approx(plain[i] / 8).epsilon(1e-12));
}

// DeepSeek: 64 rotary elements, base 10000, factor 40, 4096 positions. Pair 10.47 would make 32 full rotations, pair
// 22.51 one. The ramp goes from 10 to 23.
TEST_CASE("YaRN has a ramp over the pairs") {
    const auto plain = cellar::rope_frequencies(64);
    const auto scaled = cellar::yarn_scaled(plain, 1e4, {.factor = 40, .original_context = 4096});
    for (std::size_t i = 0; i <= 10; ++i) CHECK(scaled[i] == plain[i]);
    CHECK(scaled[11] == doctest::Approx(0.03900692656714386).epsilon(1e-12));
    CHECK(scaled[16] == doctest::Approx(0.0055).epsilon(1e-12));
    CHECK(scaled[22] == doctest::Approx(0.0001778279410038922).epsilon(1e-12));
    for (std::size_t i = 23; i < 32; ++i) CHECK(scaled[i] == doctest::Approx(plain[i] / 40).epsilon(1e-12));
}

// gpt-oss: base 150000, factor 32, 4096 positions. The ramp goes from 8.09 to 17.40.
TEST_CASE("YaRN's ramp may begin and end between pairs") {
    const auto plain = cellar::rope_frequencies(64, 150000);
    const auto scaled =
        cellar::yarn_scaled(plain, 150000, {.factor = 32, .original_context = 4096, .whole_pairs = false});
    CHECK(scaled[8] == plain[8]);
    CHECK(scaled[9] == doctest::Approx(0.03170569618466377).epsilon(1e-12));
    CHECK(scaled[17] == doctest::Approx(0.0001293187012450632).epsilon(1e-12));
    CHECK(scaled[18] == doctest::Approx(plain[18] / 32).epsilon(1e-12));
}

TEST_CASE("YaRN's ramp stays within the pairs and is never empty") {
    check_all(cellar::yarn_scaled(cellar::rope_frequencies(8), 1e4, {.factor = 4, .original_context = 16}),
              {1.0, 0.025, 0.0025, 0.00025});
    check_all(cellar::yarn_scaled(cellar::rope_frequencies(8), 1e4, {.factor = 4, .original_context = 1}),
              {1.0, 0.025, 0.0025, 0.00025});
}

// 64 rotary elements, base 10000, factor 4, 131072 positions. Pair 22.51 would make 32 full rotations, pair 34.55 one,
// but the last pair is 31. The ramp goes from 22 to 35.
TEST_CASE("YaRN's ramp may end behind the last pair") {
    const auto plain = cellar::rope_frequencies(64);
    const auto scaled = cellar::yarn_scaled(plain, 1e4, {.factor = 4, .original_context = 131072});
    for (std::size_t i = 0; i <= 22; ++i) CHECK(scaled[i] == plain[i]);
    CHECK(scaled[23] == doctest::Approx(0.0012565875033846707).epsilon(1e-12));
    CHECK(scaled[30] == doctest::Approx(9.575350669440352e-05).epsilon(1e-12));
    CHECK(scaled[31] == doctest::Approx(6.411160731554442e-05).epsilon(1e-12));
}

// 8 rotary elements, base 10, 4096 positions. Pair 11.26 would make one full rotation; 7 is the last element's index.
TEST_CASE("YaRN's ramp ends no later than the index of the last rotary element") {
    const cellar::YarnScaling scaling{.factor = 4, .original_context = 4096, .beta_fast = 1000};
    check_all(cellar::yarn_scaled(cellar::rope_frequencies(8, 10), 10, scaling),
              {1.0, 0.5020904689199546, 0.2484646732989441, 0.12066895996692689});
}

// YaRN as printed in its paper, with DeepSeek's parameters.
TEST_CASE("the formula of YaRN's paper is Llama 3.1's with other factors") {
    const auto plain = cellar::rope_frequencies(64);
    const auto scaled = cellar::llama3_scaled(plain, {40, 4096, 1, 32});
    CHECK(scaled[10] == plain[10]);
    CHECK(scaled[11] == doctest::Approx(0.03618846976203885).epsilon(1e-12));
    CHECK(scaled[16] == doctest::Approx(0.0019858102604251395).epsilon(1e-12));
    CHECK(scaled[22] == doctest::Approx(5.3364242987000305e-05).epsilon(1e-12));
    CHECK(scaled[23] == doctest::Approx(plain[23] / 40).epsilon(1e-12));
}

TEST_CASE("a number of rotary elements that is odd or below 1 is a violation") {
    for (const int dims : {7, 0, -2})
        CHECK(violation_of([&] { cellar::rope_frequencies(dims); })
              == "rope_frequencies: " + std::to_string(dims) + " rotary elements, expected an even number above 0");
}

TEST_CASE("a parameter that makes no frequencies is a violation") {
    using namespace cellar;
    const std::vector<double> plain = rope_frequencies(8);
    const auto says = [](const std::string& what, double number) {
        return what + " is " + std::to_string(number) + ", expected a finite number above 0";
    };
    constexpr double infinity = std::numeric_limits<double>::infinity();
    for (const double bad : {0.0, -1.0, infinity, std::nan("")}) {
        CHECK(violation_of([&] { rope_frequencies(8, bad); }) == says("rope_frequencies: the base", bad));
        CHECK(violation_of([&] { linear_scaled(plain, bad); }) == says("linear_scaled: the factor", bad));
        CHECK(violation_of([&] { ntk_scaled(plain, bad); }) == says("ntk_scaled: the factor", bad));
        const std::vector<float> factors{1, 1, 1, static_cast<float>(bad)};
        CHECK(violation_of([&] { divided_by(plain, factors); }) == says("divided_by: the factor", bad));
        CHECK(violation_of([&] { llama3_scaled(plain, {.factor = bad}); }) == says("llama3_scaled: the factor", bad));
        CHECK(violation_of([&] { llama3_scaled(plain, {.original_context = bad}); })
              == says("llama3_scaled: the original_context", bad));
        CHECK(violation_of([&] { yarn_scaled(plain, 1e4, {.factor = bad, .original_context = 4096}); })
              == says("yarn_scaled: the factor", bad));
        CHECK(violation_of([&] { yarn_scaled(plain, 1e4, {.factor = 4, .original_context = bad}); })
              == says("yarn_scaled: the original_context", bad));
        CHECK(violation_of([&] { yarn_scaled(plain, 1e4, {.factor = 4, .original_context = 4096, .beta_slow = bad}); })
              == says("yarn_scaled: the beta_slow", bad));
    }
    const std::vector<float> too_few{1, 1, 1};
    CHECK(violation_of([&] { divided_by(plain, too_few); })
          == "divided_by: 3 factors, expected 4, one for each frequency");
    CHECK(violation_of([&] { llama3_scaled(plain, {.low_frequency_factor = 4}); })
          == says("llama3_scaled: the difference of the high and the low frequency factor", 0));
    CHECK(violation_of([&] { yarn_scaled(plain, 1.0, {.factor = 4, .original_context = 4096}); })
          == says("yarn_scaled: the logarithm of the base", 0));
    CHECK(violation_of([&] { yarn_scaled(plain, 1e4, {.factor = 4, .original_context = 4096, .beta_fast = 1}); })
          == says("yarn_scaled: the difference of beta_fast and beta_slow", 0));
}

} // namespace test_frequencies
