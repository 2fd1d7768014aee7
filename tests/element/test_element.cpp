// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cellar/element/element.hpp>

#include <Eigen/Core>
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

namespace test_element {

namespace {

template <class E>
struct Reference;
template <>
struct Reference<cellar::half> {
    using type = Eigen::half;
    static constexpr std::uint32_t dropped_bits = 13;
};
template <>
struct Reference<cellar::bfloat16> {
    using type = Eigen::bfloat16;
    static constexpr std::uint32_t dropped_bits = 16;
};

/// True if the float converts to the same bits as in Eigen. A NaN may become any NaN.
template <class E>
bool converts_like_eigen(float value) {
    const E ours{value};
    const typename Reference<E>::type theirs{value};
    if (std::isnan(value)) return std::isnan(static_cast<float>(ours));
    return ours.bits == std::bit_cast<std::uint16_t>(theirs);
}

std::vector<float> edge_floats() {
    const float infinity = std::numeric_limits<float>::infinity();
    std::vector<float> floats{0.0f,
                              infinity,
                              std::numeric_limits<float>::quiet_NaN(),
                              std::numeric_limits<float>::signaling_NaN(),
                              std::numeric_limits<float>::max(),
                              std::numeric_limits<float>::min(),
                              std::numeric_limits<float>::denorm_min(),
                              65504.0f,  // the largest half
                              65519.99f, // rounds down to it
                              65520.0f,  // rounds up to infinity
                              65536.0f,
                              0x1p-14f, // the smallest normal half
                              0x1p-24f, // the smallest half
                              0x1p-25f, // ties to zero
                              0x1.000002p-25f};
    const std::size_t n = floats.size();
    for (std::size_t i = 0; i < n; ++i) {
        floats.push_back(-floats[i]);
        floats.push_back(std::nextafter(floats[i], 0.0f));
        floats.push_back(std::nextafter(floats[i], infinity));
    }
    return floats;
}

} // namespace

static_assert(std::is_trivially_copyable_v<cellar::half> && sizeof(cellar::half) == 2);
static_assert(std::is_trivially_copyable_v<cellar::bfloat16> && sizeof(cellar::bfloat16) == 2);
static_assert(std::is_trivially_default_constructible_v<cellar::half>);
static_assert(std::is_trivially_default_constructible_v<cellar::bfloat16>);
static_assert(cellar::Element<float> && cellar::Element<cellar::half> && cellar::Element<cellar::bf16>);
static_assert(!cellar::Element<double> && !cellar::Element<int> && !cellar::Element<const float>);
static_assert(!std::is_convertible_v<float, cellar::half>, "rounding must be explicit");
static_assert(!std::is_convertible_v<cellar::half, float>);
static_assert(static_cast<float>(cellar::half{1.5f}) == 1.5f, "at compile time too");
static_assert(static_cast<float>(cellar::bf16{-0.15625f}) == -0.15625f);

TEST_CASE_TEMPLATE("all 65,536 bit patterns convert to the same float as in Eigen", E, cellar::half, cellar::bfloat16) {
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
        const auto pattern = static_cast<std::uint16_t>(bits);
        const auto ours = static_cast<float>(E::from_bits(pattern));
        const auto theirs = static_cast<float>(std::bit_cast<typename Reference<E>::type>(pattern));
        const bool same = std::isnan(theirs)
                              ? std::isnan(ours) && std::signbit(ours) == std::signbit(theirs)
                              : std::bit_cast<std::uint32_t>(ours) == std::bit_cast<std::uint32_t>(theirs);
        if (!same) FAIL_CHECK("bits ", bits, ": ", ours, ", Eigen: ", theirs);
    }
}

TEST_CASE_TEMPLATE("all 65,536 bit patterns survive the round trip through float", E, cellar::half, cellar::bfloat16) {
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
        const auto value = static_cast<float>(E::from_bits(static_cast<std::uint16_t>(bits)));
        const E again{value};
        if (std::isnan(value)) {
            if (!std::isnan(static_cast<float>(again))) FAIL_CHECK("NaN of bits ", bits);
        } else if (again.bits != bits) {
            FAIL_CHECK("bits ", bits, " came back as ", again.bits);
        }
    }
}

TEST_CASE_TEMPLATE("ties, and the floats just below and above them, round as in Eigen", E, cellar::half,
                   cellar::bfloat16) {
    constexpr std::uint32_t tie = 1u << (Reference<E>::dropped_bits - 1);
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
        const auto lower = static_cast<float>(E::from_bits(static_cast<std::uint16_t>(bits)));
        const auto upper = static_cast<float>(E::from_bits(static_cast<std::uint16_t>(bits + 1)));
        if (!std::isfinite(lower) || !std::isfinite(upper)) continue;
        const float middle = lower + (upper - lower) / 2;
        for (const float value : {std::nextafter(middle, lower), middle, std::nextafter(middle, upper)})
            if (!converts_like_eigen<E>(value)) FAIL_CHECK("float ", value);
        // The same by bits, because the computed middle may be rounded itself.
        const std::uint32_t word = std::bit_cast<std::uint32_t>(lower);
        for (const std::uint32_t w : {word + tie - 1, word + tie, word + tie + 1})
            if (!converts_like_eigen<E>(std::bit_cast<float>(w))) FAIL_CHECK("word ", w);
    }
}

TEST_CASE_TEMPLATE("random floats and edge cases round as in Eigen", E, cellar::half, cellar::bfloat16) {
    for (const float value : edge_floats())
        if (!converts_like_eigen<E>(value)) FAIL_CHECK("float ", value);
    std::mt19937 random{1};
    for (int i = 0; i < 2'000'000; ++i) {
        const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
        if (!converts_like_eigen<E>(value)) FAIL_CHECK("float ", value);
    }
    std::normal_distribution<float> usual{0.0f, 2.0f};
    for (int i = 0; i < 1'000'000; ++i) {
        const float value = usual(random);
        if (!converts_like_eigen<E>(value)) FAIL_CHECK("float ", value);
    }
}

} // namespace test_element
