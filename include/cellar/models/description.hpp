// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/layout/layer_shape.hpp>
#include <cellar/shift/frequencies.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace cellar::models {

/// What a layer stores. The letters are used in `Description::pattern`.
enum class LayerKind : char {
    sliding = 'S',   ///< keys and values of a window
    full = 'F',      ///< keys and values of all tokens
    recurrent = 'R', ///< a state of constant size
    nothing = '-',   ///< nothing (a feed-forward network that the model counts as a layer)
    chunked = 'C',   ///< keys and values of a chunk of positions; only in a `RunTimeDescription`
    encoder = 'E',   ///< keys and values of an encoder's inputs; only in a `RunTimeDescription`
};

/// Which elements of a key form a rotary pair (see `Neox` and `Interleaved`), in the order of the published checkpoint.
enum class Pairing { none, neox, interleaved };

/// Every frequency divided by one number: `linear_scaled`.
struct LinearScaling {
    double factor;
};

/// Rotary position embeddings. YaRN's attention factor is left to the model.
struct Rope {
    Pairing pairing = Pairing::none; ///< none: keys carry no position
    int dims = 0;                    ///< how many elements of a head are rotated
    double base = 10000.0;
    std::variant<std::monostate, LinearScaling, Llama3Scaling, YarnScaling> scaling{};
    int begin = 0; ///< the first element that is rotated
};

/// What layers with attention store, and how their keys are rotated.
struct Attention {
    LayerShape shape{};
    Rope rope{};
    std::int32_t window = 0; ///< tokens that a token sees, itself included; 0: all
};

/// One tensor of a recurrent state, for one layer and sequence.
struct StateDescription {
    std::string_view name{};
    int extents[3]{}; ///< unused ones at the end are 0

    /// 0 if there is no such tensor.
    constexpr int rank() const {
        int rank = 0;
        while (rank < 3 && extents[rank] != 0) ++rank;
        return rank;
    }

    /// 0 if there is no such tensor.
    constexpr std::int64_t elements() const {
        std::int64_t product = extents[0];
        for (int i = 1; i < 3 && extents[i] != 0; ++i) product *= extents[i];
        return product;
    }
};

/// What a model stores, layer by layer, and how much.
struct Description {
    std::string_view name{};
    int layers = 0;
    std::string_view pattern{}; ///< the kinds of the layers, repeated from the first layer on: "SSSSSF"
    Attention sliding{};
    Attention full{};
    StateDescription state[3]{}; ///< of a convolution: the inputs that it needs besides the newest one

    /// Of a layer from 0 to layers - 1.
    constexpr LayerKind kind(int layer) const {
        CELLAR_EXPECTS(layer >= 0 && layer < layers, "layer ", layer, ", expected 0 to ", layers - 1);
        return LayerKind{pattern[static_cast<std::size_t>(layer) % pattern.size()]};
    }

    /// How many of the first `end` layers are of a kind. If layer `end` is of that kind, this is its index among them.
    constexpr int count(LayerKind kind, int end) const {
        int found = 0;
        for (int layer = 0; layer < end; ++layer) found += this->kind(layer) == kind ? 1 : 0;
        return found;
    }
    constexpr int count(LayerKind kind) const { return count(kind, layers); }

    /// The attention of the sliding or the full layers.
    constexpr const Attention& attention(LayerKind kind) const {
        CELLAR_EXPECTS(kind == LayerKind::sliding || kind == LayerKind::full,
                       "attention: a kind without keys, expected sliding or full");
        return kind == LayerKind::sliding ? sliding : full;
    }

    /// The number of tensors in a recurrent layer's state.
    constexpr int states() const {
        int tensors = 0;
        while (tensors < 3 && state[tensors].rank() != 0) ++tensors;
        return tensors;
    }

    /// The number of elements in the state of one recurrent layer and one sequence.
    constexpr std::int64_t state_elements() const {
        std::int64_t sum = 0;
        for (const StateDescription& tensor : state) sum += tensor.elements();
        return sum;
    }
};

/// In radians per position, one for each pair, as `RopeShift` takes them.
inline std::vector<double> frequencies(const Rope& rope) {
    std::vector<double> unscaled = rope_frequencies(rope.dims, rope.base);
    if (const auto* linear = std::get_if<LinearScaling>(&rope.scaling))
        return linear_scaled(std::move(unscaled), linear->factor);
    if (const auto* llama3 = std::get_if<Llama3Scaling>(&rope.scaling))
        return llama3_scaled(std::move(unscaled), *llama3);
    if (const auto* yarn = std::get_if<YarnScaling>(&rope.scaling))
        return yarn_scaled(std::move(unscaled), rope.base, *yarn);
    return unscaled;
}

} // namespace cellar::models
