// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/function.hpp>
#include <cellar/shift/shift.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace cellar {

/// Pairs element i with element i + pairs (GPT-NeoX, transformers).
struct Neox {
    CELLAR_FUNCTION static constexpr int first(int pair, int) { return pair; }
    CELLAR_FUNCTION static constexpr int second(int pair, int pairs) { return pair + pairs; }
};

/// Pairs neighbours, 2i with 2i + 1 (GPT-J, Meta's Llama, llama2.c).
struct Interleaved {
    CELLAR_FUNCTION static constexpr int first(int pair, int) { return 2 * pair; }
    CELLAR_FUNCTION static constexpr int second(int pair, int) { return 2 * pair + 1; }
};

/// Turns keys that carry rotary position embeddings (RoFormer, arXiv:2104.09864): moving a key by delta turns pair i by
/// delta * frequency i, because rotations add up.
///
/// The frequencies, in radians per position, must be those of the model (see frequencies.hpp). A constant that the
/// model multiplies cosines and sines by (YaRN's attention factor) is kept as it is.
template <class Pairing = Neox>
class RopeShift {
public:
    static constexpr bool possible = true;

    struct Factor {
        float cosine;
        float sine;
    };

    class Rotation {
    public:
        CELLAR_FUNCTION constexpr Rotation(int begin, int pairs) : begin_{begin}, pairs_{pairs} {}

        CELLAR_FUNCTION constexpr int pairs() const { return pairs_; }
        CELLAR_FUNCTION constexpr int first(int pair) const { return begin_ + Pairing::first(pair, pairs_); }
        CELLAR_FUNCTION constexpr int second(int pair) const { return begin_ + Pairing::second(pair, pairs_); }
        CELLAR_FUNCTION static constexpr void turn(float& a, float& b, Factor factor) {
            const float turned = a * factor.cosine - b * factor.sine;
            b = a * factor.sine + b * factor.cosine;
            a = turned;
        }

    private:
        int begin_;
        int pairs_;
    };

    /// All layers alike: one frequency per pair. Fewer pairs than half of a head leave its further elements alone;
    /// `begin` is the first element of a head that turns.
    explicit RopeShift(std::vector<double> frequencies, int begin = 0)
        : RopeShift{std::vector<std::vector<double>>(1, std::move(frequencies)), begin, Private{}} {}

    /// Frequencies of every layer, none for a layer without rotary embeddings.
    static RopeShift per_layer(std::vector<std::vector<double>> frequencies, int begin = 0) {
        return {std::move(frequencies), begin, Private{}};
    }

    Rotation rotation(int layer) const { return {begin_, static_cast<int>(frequencies(layer).size())}; }

    /// Reckoned in double, so that large deltas lose nothing.
    Factor factor(int layer, int pair, std::int32_t delta) const {
        const double angle = delta * frequencies(layer)[static_cast<std::size_t>(pair)];
        return {static_cast<float>(std::cos(angle)), static_cast<float>(std::sin(angle))};
    }

private:
    struct Private {};

    RopeShift(std::vector<std::vector<double>> frequencies, int begin, Private)
        : frequencies_{std::move(frequencies)}, begin_{begin} {
        CELLAR_EXPECTS(!frequencies_.empty(), "RopeShift: no layer, expected at least one");
        CELLAR_EXPECTS(begin >= 0, "RopeShift: the first rotary element is ", begin, ", expected 0 or more");
    }

    const std::vector<double>& frequencies(int layer) const {
        const std::size_t layers = frequencies_.size();
        if (layers == 1) return frequencies_.front();
        CELLAR_EXPECTS(layer >= 0 && static_cast<std::size_t>(layer) < layers, "RopeShift: layer ", layer,
                       ", expected one of the ", layers, " that it has frequencies for");
        return frequencies_[static_cast<std::size_t>(layer)];
    }

    std::vector<std::vector<double>> frequencies_; // one entry: for all layers
    int begin_;
};

} // namespace cellar
