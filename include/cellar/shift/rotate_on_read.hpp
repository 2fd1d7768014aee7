// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/shift/rope_shift.hpp>
#include <cellar/shift/rotary_angles.hpp>
#include <cellar/shift/shift.hpp>

#include <concepts>
#include <cstddef>
#include <utility>
#include <vector>

namespace cellar {

/// Keys are stored without rotary positions, and `attend` rotates each key by the position that its token has now.
/// A shift then touches no key: nothing is rotated, encoded again or copied, and shared cells stay shared. So keys do
/// not drift, however often their tokens move, and text that is put together from parts has exact positions.
///
/// - `put` takes keys before their rotation; queries are rotated as always. A constant by which the model multiplies
///   cosines and sines (YaRN's attention factor) goes into the rotary elements of the keys before `put`.
/// - Everything else that reads keys gets them without positions: `keys`, `rows`, `gather`, snapshots, files, other
///   processes. A file or a transfer of such keys is refused by caches of other shifts, and theirs by this one.
/// - Values that are the first elements of the keys (MLA) are not rotated.
/// - Rotary positions must be those of the tokens: not for M-RoPE.
/// - `attend` computes in float, a tile of keys at a time, on the host. A device refuses it when it is compiled.
///
/// Cost: a product of complex numbers for each pair of each key that is read, and of each position in a tile. See
/// docs/how-to/keep-a-long-chat.md.
template <class Pairing = Neox>
    requires(std::same_as<Pairing, Neox> || std::same_as<Pairing, Interleaved> || std::same_as<Pairing, RunTimePairing>)
class RotateOnRead {
public:
    static constexpr bool possible = true;
    static constexpr bool rotates = false; // what is stored
    static constexpr bool rotates_on_read = true;

    using Rotation = typename RopeShift<Pairing>::Rotation;

    /// The model's rotation. Computes tables for each different list of frequencies: see `RotaryAngles`.
    RotateOnRead(RopeShift<Pairing> rotary) // NOLINT(google-explicit-constructor): the same numbers, applied later
        : rotary_{std::move(rotary)} {
        std::vector<std::size_t> of_angles; // the layer that each was made for
        for (std::size_t layer = 0; layer < rotary_.layers(); ++layer) {
            const auto& frequencies = rotary_.frequencies(static_cast<int>(layer));
            std::size_t i = 0;
            while (i < angles_.size() && rotary_.frequencies(static_cast<int>(of_angles[i])) != frequencies) ++i;
            if (i == angles_.size()) {
                of_angles.push_back(layer);
                angles_.emplace_back(frequencies, rotary_.rotation(static_cast<int>(layer)));
            }
            of_layer_.push_back(i);
        }
    }

    RotateOnRead() = delete; // give the frequencies: RotateOnRead<>{RopeShift<>{rope_frequencies(rotary_dim, base)}}

    /// See `RopeShift`.
    bool fits(std::size_t layers) const { return rotary_.fits(layers); }
    std::size_t layers() const { return rotary_.layers(); }
    /// Of a layer of the cache, in radians per position. O(1).
    const std::vector<double>& frequencies(int layer) const { return rotary_.frequencies(layer); }
    Rotation rotation(int layer) const { return rotary_.rotation(layer); }

    /// Of a layer of the cache. O(1).
    const RotaryAngles& angles(int layer) const {
        return angles_[of_layer_.size() == 1 ? 0 : of_layer_[static_cast<std::size_t>(layer)]];
    }

private:
    RopeShift<Pairing> rotary_;
    std::vector<RotaryAngles> angles_;  // of each different list of frequencies
    std::vector<std::size_t> of_layer_; // which of them; one for all layers if these are alike
};

} // namespace cellar
