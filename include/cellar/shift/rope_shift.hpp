// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/function.hpp>
#include <cellar/shift/shift.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
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

/// One of these two, where only a file says which. Keys rotate to the same bits, at the same cost.
struct RunTimePairing {
    bool interleaved; ///< false: as `Neox`

    CELLAR_FUNCTION constexpr int first(int pair, int) const { return interleaved ? 2 * pair : pair; }
    CELLAR_FUNCTION constexpr int second(int pair, int pairs) const {
        return interleaved ? 2 * pair + 1 : pair + pairs;
    }
};

/// Rotates keys that carry rotary position embeddings (RoFormer, arXiv:2104.09864). Moving a key by delta positions
/// rotates pair i by delta * frequency i, because rotations add up.
///
/// The frequencies, in radians per position, must be those of the model (see frequencies.hpp). A constant by which the
/// model multiplies cosines and sines (YaRN's attention factor) is unaffected.
///
/// `RopeShift<RunTimePairing>` takes the pairing as its second argument: {frequencies, {.interleaved = true}}.
template <class Pairing = Neox>
class RopeShift {
    static constexpr bool at_run_time = !std::is_empty_v<Pairing>;

public:
    static constexpr bool possible = true;

    /// The cosine and the sine of an angle.
    struct Factor {
        float cosine;
        float sine;
    };

    /// The pairs of elements of a layer that are rotated, and their rotation: what kernels get.
    class Rotation : Pairing { // a base, so that one without members takes no space
    public:
        static constexpr bool by_angle = true;

        CELLAR_FUNCTION constexpr Rotation(int begin, int pairs, Pairing pairing = {})
            : Pairing{pairing}, begin_{begin}, pairs_{pairs} {}

        CELLAR_FUNCTION constexpr int pairs() const { return pairs_; }
        CELLAR_FUNCTION constexpr int first(int pair) const { return begin_ + Pairing::first(pair, pairs_); }
        CELLAR_FUNCTION constexpr int second(int pair) const { return begin_ + Pairing::second(pair, pairs_); }
        CELLAR_FUNCTION static constexpr void rotate(float& a, float& b, Factor factor) {
            const float rotated = a * factor.cosine - b * factor.sine;
            b = a * factor.sine + b * factor.cosine;
            a = rotated;
        }

    private:
        int begin_;
        int pairs_;
    };

    /// All layers alike: one frequency per pair. Fewer pairs than half of a head leave its further elements alone;
    /// `begin` is the first element of a head that is rotated.
    explicit RopeShift(const std::vector<double>& frequencies, int begin = 0,
                       Where where = Where::current()) requires(!at_run_time)
        : RopeShift{for_all_layers(frequencies, where), Pairing{}, begin, true, where} {}
    /// The same, with a pairing that is known at run time.
    RopeShift(const std::vector<double>& frequencies, Pairing pairing, int begin = 0,
              Where where = Where::current()) requires(at_run_time)
        : RopeShift{for_all_layers(frequencies, where), pairing, begin, true, where} {}

    RopeShift() = delete; // give the frequencies: RopeShift<>{rope_frequencies(rotary_dim, base)}

    /// Frequencies for each layer of the cache; an empty list for a layer without rotary embeddings.
    static RopeShift per_layer(std::vector<std::vector<double>> frequencies, int begin = 0,
                               Where where = Where::current()) requires(!at_run_time) {
        return {std::move(frequencies), Pairing{}, begin, false, where};
    }
    /// The same, with a pairing that is known at run time.
    static RopeShift per_layer(std::vector<std::vector<double>> frequencies, Pairing pairing, int begin = 0,
                               Where where = Where::current()) requires(at_run_time) {
        return {std::move(frequencies), pairing, begin, false, where};
    }

    /// True for any number of layers if it was made for all layers alike, else for as many as it has frequencies for.
    bool fits(std::size_t layers) const { return for_all_ || layers == frequencies_.size(); }
    /// The layers that it has frequencies for; 1 if these are for all.
    std::size_t layers() const { return frequencies_.size(); }

    /// Of a layer of the cache, in radians per position. O(1).
    const std::vector<double>& frequencies(int layer) const {
        const std::size_t layers = frequencies_.size();
        if (for_all_) return frequencies_.front();
        CELLAR_EXPECTS(layer >= 0 && static_cast<std::size_t>(layer) < layers, "RopeShift: layer ", layer,
                       ", expected 0 to ", layers - 1, ", the layers it has frequencies for");
        return frequencies_[static_cast<std::size_t>(layer)];
    }
    /// Of a layer of the cache. O(1).
    Rotation rotation(int layer) const { return {begin_, static_cast<int>(frequencies(layer).size()), pairing_}; }

    /// Computed in double, so that large deltas lose no precision.
    Factor factor(int layer, int pair, std::int32_t delta) const {
        const double angle = delta * frequencies(layer)[static_cast<std::size_t>(pair)];
        return {static_cast<float>(std::cos(angle)), static_cast<float>(std::sin(angle))};
    }

private:
    // Of a head; so that twice the pairs and the first element make an int.
    static constexpr int max_elements = 1 << 28;

    RopeShift(std::vector<std::vector<double>> frequencies, Pairing pairing, int begin, bool for_all, Where where)
        : frequencies_{std::move(frequencies)}, for_all_{for_all}, begin_{begin}, pairing_{pairing} {
        const detail::Caller caller{where};
        CELLAR_EXPECTS(!frequencies_.empty(), "RopeShift: no layer, expected at least one");
        CELLAR_EXPECTS(begin >= 0 && begin < max_elements, "RopeShift: the first rotary element is ", begin,
                       ", expected 0 to ", max_elements - 1);
        for (const std::vector<double>& layer : frequencies_) {
            CELLAR_EXPECTS(layer.size() < max_elements, "RopeShift: ", layer.size(),
                           " frequencies, expected fewer than ", std::size_t{max_elements});
            for (std::size_t pair = 0; pair < layer.size(); ++pair)
                CELLAR_EXPECTS(std::isfinite(layer[pair]), "RopeShift: the frequency of pair ", pair, " of layer ",
                               &layer - frequencies_.data(), " is ", std::to_string(layer[pair]),
                               ", expected a finite one");
        }
    }

    static std::vector<std::vector<double>> for_all_layers(const std::vector<double>& frequencies, Where where) {
        CELLAR_EXPECTS_AT(where, !frequencies.empty(), "RopeShift: no frequencies, expected one for each pair");
        return {frequencies};
    }

    std::vector<std::vector<double>> frequencies_; // of each layer, or once for all
    bool for_all_;
    int begin_;
    Pairing pairing_;
};

} // namespace cellar
