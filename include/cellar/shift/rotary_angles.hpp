// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cellar {

/// The angles by which keys at any position are rotated, as cosines and sines: for each pair of elements, position *
/// frequency. They are made of small tables: the angle of a position is the sum of those of its digits, and cosines and
/// sines of sums are products of complex numbers. So an angle is off by a few roundings to float at most, whatever the
/// position. The tables take 3 KB for each pair, or 3.5 KB where pairs are neighbours.
///
/// A list of cosines or sines has an entry for each pair. Where pairs are neighbours, it has one for each element, and
/// the sine of the first element of a pair is negative.
class RotaryAngles {
public:
    /// The positions of a block differ in their last digit alone.
    static constexpr std::int32_t block = 64;

    /// The frequencies of the pairs of a layer, in radians per position, and where these pairs are: as `RopeShift`
    /// has them for `Neox` and `Interleaved`.
    template <class Rotation>
    RotaryAngles(const std::vector<double>& frequencies, const Rotation& rotation)
        : frequencies_{frequencies},
          first_{rotation.first(0)},
          second_{rotation.second(0)},
          within_(static_cast<std::size_t>(std::int64_t{2} * block * stride())),
          digits_(static_cast<std::size_t>(higher_digits * values * pairs())) {
        for (int i = 0; i < block; ++i)
            for (int pair = 0; pair < pairs(); ++pair)
                set(pair, angle(pair, i), &within_[place(i)], &within_[place(i)] + stride());
        std::size_t n = 0;
        double unit = block;
        for (int digit = 0; digit < higher_digits; ++digit) {
            for (int value = 0; value < values; ++value)
                for (int pair = 0; pair < pairs(); ++pair) digits_[n++] = angle(pair, value * unit);
            unit *= values;
        }
    }

    int pairs() const { return static_cast<int>(frequencies_.size()); }
    /// The angle by which a pair turns from one position to the next, in radians.
    double frequency(int pair) const { return frequencies_[static_cast<std::size_t>(pair)]; }
    /// The elements of a pair.
    int first(int pair) const { return neighbours() ? first_ + 2 * pair : first_ + pair; }
    int second(int pair) const { return neighbours() ? second_ + 2 * pair : second_ + pair; }
    /// True if the elements of a pair are neighbours. Else all first ones are, and so are all second ones.
    bool neighbours() const { return second_ == first_ + 1; }

    /// The entries of a list.
    int count() const { return neighbours() ? 2 * pairs() : pairs(); }
    /// The length of a list: a multiple of 16, so that vectors fit.
    std::int64_t stride() const { return std::int64_t{count() + 15} / 16 * 16; }

    /// Of position i of a block, relative to its first one.
    const float* cosines(std::int32_t i) const { return within_.data() + place(i); }
    /// The sines, stored as `cosines` are.
    const float* sines(std::int32_t i) const { return cosines(i) + stride(); }

    /// Writes the lists of the first position of a block: position `number` * block.
    void of_block(std::int32_t number, float* to_cosines, float* to_sines) const {
        const Angle* of_digits[higher_digits];
        int n = 0;
        for (int digit = 0; digit < higher_digits; ++digit, number /= values)
            if (number % values != 0)
                of_digits[n++] = digits_.data() + std::ptrdiff_t{digit * values + number % values} * pairs();
        for (int pair = 0; pair < pairs(); ++pair) {
            Angle sum{1, 0};
            for (int i = 0; i < n; ++i) sum = sum + of_digits[i][pair];
            set(pair, sum, to_cosines, to_sines);
        }
    }

private:
    // Positions have 31 bits: 6 for the place in a block, and 5 for each of the other digits.
    static constexpr int higher_digits = 5;
    static constexpr int values = 32;

    struct Angle {
        double cosine;
        double sine;

        friend Angle operator+(const Angle& a, const Angle& b) {
            return {a.cosine * b.cosine - a.sine * b.sine, a.sine * b.cosine + a.cosine * b.sine};
        }
    };

    Angle angle(int pair, double position) const {
        return {std::cos(position * frequency(pair)), std::sin(position * frequency(pair))};
    }

    std::size_t place(std::int32_t i) const { return static_cast<std::size_t>(std::int64_t{2} * i * stride()); }

    void set(int pair, const Angle& of, float* to_cosines, float* to_sines) const {
        const auto cosine = static_cast<float>(of.cosine);
        const auto sine = static_cast<float>(of.sine);
        if (!neighbours()) {
            to_cosines[pair] = cosine;
            to_sines[pair] = sine;
            return;
        }
        const std::ptrdiff_t first = std::ptrdiff_t{2} * pair;
        to_cosines[first] = to_cosines[first + 1] = cosine;
        to_sines[first] = -sine;
        to_sines[first + 1] = sine;
    }

    std::vector<double> frequencies_;
    int first_; // the elements of pair 0
    int second_;
    std::vector<float> within_; // [block, 2, stride]
    std::vector<Angle> digits_; // [higher_digits, values, pairs]
};

} // namespace cellar
