// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cellar/shift/frequencies.hpp>
#include <cellar/shift/rotate_on_read.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace test_rotate_on_read {

using namespace cellar;

namespace {

/// The cosine and the sine of a pair at a position, as attention makes them of the tables.
struct Found {
    float cosine;
    float sine;
};
Found at(const RotaryAngles& angles, int pair, std::int32_t position) {
    std::vector<float> cosines(static_cast<std::size_t>(angles.stride())), sines = cosines;
    angles.of_block(position / RotaryAngles::block, cosines.data(), sines.data());
    const std::int32_t place = position % RotaryAngles::block;
    const auto i = static_cast<std::size_t>(angles.neighbours() ? 2 * pair + 1 : pair);
    const float cosine = angles.cosines(place)[i], sine = angles.sines(place)[i];
    return {cosines[i] * cosine - sines[i] * sine, sines[i] * cosine + cosines[i] * sine};
}

template <class Pairing>
double largest_error(const RotateOnRead<Pairing>& shift, const std::vector<double>& frequencies) {
    std::mt19937 random{7};
    std::vector<std::int32_t> positions{0, 1, 63, 64, 65, 2047, 2048, 4095, 131071, 1 << 20, 1 << 26};
    for (int i = 0; i < 200; ++i) positions.push_back(static_cast<std::int32_t>(random() >> (5 + i % 20)));
    double largest = 0;
    for (const std::int32_t position : positions)
        for (std::size_t pair = 0; pair < frequencies.size(); ++pair) {
            const Found found = at(shift.angles(0), static_cast<int>(pair), position);
            const double angle = position * frequencies[pair];
            largest =
                std::max({largest, std::abs(found.cosine - std::cos(angle)), std::abs(found.sine - std::sin(angle))});
        }
    return largest;
}

} // namespace

TEST_CASE("the angles of any position are those of the frequencies, up to a few roundings") {
    for (const int dims : {2, 6, 64, 128})
        for (const double base : {10.0, 10000.0, 500000.0}) {
            const auto frequencies = rope_frequencies(dims, base);
            CHECK(largest_error<Neox>(RopeShift<>{frequencies}, frequencies) < 4 * 0x1p-24);
            CHECK(largest_error<Interleaved>(RopeShift<Interleaved>{frequencies}, frequencies) < 4 * 0x1p-24);
        }
    const std::vector<double> odd{-3.0, 0.0, 1e-9};
    CHECK(largest_error<Neox>(RopeShift<>{odd}, odd) < 4 * 0x1p-24);
}

TEST_CASE("angles have the pairs of the shift that they are made of") {
    const auto frequencies = rope_frequencies(6);
    const auto check = [&](const auto& shift, const auto& rope) {
        const auto rotation = rope.rotation(0);
        const RotaryAngles& angles = shift.angles(0);
        REQUIRE(angles.pairs() == rotation.pairs());
        for (int pair = 0; pair < rotation.pairs(); ++pair) {
            CHECK(angles.first(pair) == rotation.first(pair));
            CHECK(angles.second(pair) == rotation.second(pair));
            CHECK(angles.frequency(pair) == frequencies[static_cast<std::size_t>(pair)]);
        }
    };
    const RopeShift<> apart{frequencies, 3};
    check(RotateOnRead<>{apart}, apart);
    const RopeShift<Interleaved> neighbours{frequencies, 3};
    check(RotateOnRead<Interleaved>{neighbours}, neighbours);
    for (const bool interleaved : {false, true}) {
        const RopeShift<RunTimePairing> either{frequencies, {interleaved}, 3};
        check(RotateOnRead<RunTimePairing>{either}, either);
    }
}

TEST_CASE("layers with the same frequencies share their tables, and a layer may have none") {
    const std::vector<double> one{1.0, 0.1}, other{0.5};
    const RotateOnRead<> shift{RopeShift<>::per_layer({one, other, {}, one, other})};
    CHECK(&shift.angles(3) == &shift.angles(0));
    CHECK(&shift.angles(4) == &shift.angles(1));
    CHECK(shift.angles(2).pairs() == 0);
    CHECK(shift.angles(1).pairs() == 1);
    CHECK((shift.fits(5) && !shift.fits(4) && shift.layers() == 5));
    const RotateOnRead<> for_all{RopeShift<>{one}};
    CHECK(&for_all.angles(79) == &for_all.angles(0));
    CHECK(for_all.fits(80));
}

} // namespace test_rotate_on_read
