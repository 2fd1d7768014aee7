// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/result.hpp>
#include <cellar/layout/channel_factors.hpp>
#include <cellar/layout/layer_shape.hpp>
#include <cellar/models/description.hpp>
#include <cellar/shift/frequencies.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace cellar::models {

/// Why a configuration, a description, or a memory for it is refused: one sentence for a person.
struct ModelError {
    std::string message{};
};
/// The sentence.
inline const std::string& to_string(const ModelError& error) {
    return error.message;
}

/// A value, or the reason why there is none. A file that is wrong is never a violation.
template <class T>
using ModelResult = Result<T, ModelError>;

/// Rotary position embeddings, with what only a file knows.
struct RunTimeRope : Rope {
    /// By which the frequencies are divided, one for each pair; empty: they are not. (`rope_freqs.weight` of a GGUF
    /// file, the short factors of LongRoPE.)
    std::vector<float> divisors{};
    /// LongRoPE (arXiv:2402.13753): the divisors where sequences are planned to be longer than `original_context`.
    std::vector<float> long_divisors{};
    double original_context = 0; ///< tokens; for `long_divisors`
    /// The model multiplies cosines and sines by it, so it is in the keys already, and no shift changes that.
    double attention_factor = 1.0;
};

/// What one layer stores, and how its queries are weighed.
struct LayerDescription {
    LayerKind kind = LayerKind::full;
    /// Of a kind with keys. A `value_dim` of 0: a latent that is key and value at once (MLA). `shares_layer` is the
    /// index of a layer of the model.
    LayerShape shape{};
    std::int32_t window = 0; ///< sliding: the tokens that a token sees, itself included; chunked: positions of a chunk
    int heads = 0;           ///< of queries; 0: not known
    double scale = 0;        ///< as in `AttentionOptions`; 0: 1 / sqrt(key_dim)
    double soft_cap = 0;     ///< as in `AttentionOptions`; 0: none
    bool learned_sinks = false; ///< each head has a score of its own in the softmax, as in gpt-oss
    RunTimeRope rope{};
    std::vector<StateDescription> state{}; ///< recurrent: the tensors of a sequence's state
    /// Of a kind with keys: what the channels are divided by, as in `CacheShape::factors`. No file has them: they come
    /// from a `ChannelCalibration`. Those of a layer that shares another's memory do not count.
    ChannelFactors factors{};

    /// The layer whose keys and values these are; -1: its own, or none.
    constexpr int owner() const {
        return kind == LayerKind::recurrent || kind == LayerKind::nothing ? -1 : shape.shares_layer;
    }
};

/// What a model stores, layer by layer, as a file says. `check` tells whether it contradicts itself.
struct RunTimeDescription {
    std::string architecture{};       ///< as the file calls it
    std::int32_t trained_context = 0; ///< tokens; 0: not known
    std::vector<LayerDescription> layers{};
    std::int32_t input_tokens = 0; ///< of an encoder's input at most; 0: not known, or there is no encoder

    /// How many layers are of a kind. O(layers).
    int count(LayerKind kind) const {
        const auto found =
            std::count_if(layers.begin(), layers.end(), [&](const auto& layer) { return layer.kind == kind; });
        return static_cast<int>(found);
    }
};

/// In radians per position, one for each pair, as `RopeShift` takes them; none if keys carry no position. `context`:
/// how long sequences are planned to be, which only LongRoPE asks for.
inline std::vector<double> frequencies(const RunTimeRope& rope, std::int32_t context = 0) {
    if (rope.pairing == Pairing::none) return {};
    std::vector<double> found = frequencies(static_cast<const Rope&>(rope));
    const bool is_long = !rope.long_divisors.empty() && context > rope.original_context;
    const std::vector<float>& divisors = is_long ? rope.long_divisors : rope.divisors;
    return divisors.empty() ? found : divided_by(std::move(found), divisors);
}

namespace detail {

constexpr std::vector<LayerDescription> layers_of(const Description& model) {
    std::vector<LayerDescription> layers;
    for (int i = 0; i < model.layers; ++i) {
        LayerDescription layer{.kind = model.kind(i)};
        if (layer.kind == LayerKind::recurrent) layer.state.assign(model.state, model.state + model.states());
        if (layer.kind == LayerKind::sliding || layer.kind == LayerKind::full) {
            const Attention& attention = model.attention(layer.kind);
            layer.shape = attention.shape;
            layer.window = attention.window;
            static_cast<Rope&>(layer.rope) = attention.rope;
        }
        layers.push_back(layer);
    }
    return layers;
}

} // namespace detail

/// The same for a published model. A `Description` says neither the heads of queries nor the scale.
inline RunTimeDescription at_run_time(const Description& model) {
    return {std::string{model.name}, 0, detail::layers_of(model)};
}

namespace detail {

// A file can say anything, so these limits are far above every model, and low enough that no number of bytes
// overflows.
inline constexpr int max_layers = 1000;
inline constexpr std::int64_t max_row = 1 << 18;          // elements of a token's keys in one layer
inline constexpr std::int64_t max_state = 1 << 24;        // elements of a tensor of a state
inline constexpr std::int64_t max_states = (1 << 29) - 1; // elements of the states of all layers

inline bool is_positive(double number) {
    return number > 0 && std::isfinite(number);
}

inline ModelError model_error(std::initializer_list<cellar::detail::MessagePart> sentence) {
    return {cellar::detail::composed(sentence)};
}

/// Says what contradicts itself in a layer of a description.
class LayerCheck {
public:
    LayerCheck(const RunTimeDescription& model, std::size_t index) : model_{model}, index_{index} {}

    ModelResult<void> operator()() const {
        const LayerDescription& layer = model_.layers[index_];
        switch (layer.kind) {
        case LayerKind::sliding:
        case LayerKind::chunked:
            if (layer.window < 1) return layer_has("a window of ", layer.window, ", expected at least 1");
            return of_keys(layer);
        case LayerKind::full:
        case LayerKind::encoder:
            if (layer.window != 0) return layer_has("a window of ", layer.window, ", expected 0 for its kind");
            return of_keys(layer);
        case LayerKind::recurrent:
            return of_state(layer);
        case LayerKind::nothing:
            return {};
        }
        return layer_has("an unknown kind");
    }

private:
    using Part = cellar::detail::MessagePart;

    template <class... Parts>
    ModelError layer_has(Parts... parts) const {
        return model_error({"layer ", index_, " has ", Part{parts}...});
    }

    ModelResult<void> of_keys(const LayerDescription& layer) const {
        const LayerShape& shape = layer.shape;
        if (shape.kv_heads < 1 || shape.key_dim < 1 || shape.value_dim < 0)
            return layer_has(shape.kv_heads, " heads of keys, a key_dim of ", shape.key_dim, " and a value_dim of ",
                             shape.value_dim, ", expected at least 1, 1 and 0");
        const std::int64_t row = std::int64_t{shape.kv_heads} * std::max(shape.key_dim, shape.value_dim);
        if (row > max_row) return layer_has("rows of ", row, " elements, expected at most ", max_row);
        if (layer.heads < 0 || layer.heads % shape.kv_heads != 0)
            return layer_has(layer.heads, " heads of queries, expected a multiple of its ", shape.kv_heads,
                             " heads of keys");
        if (!std::isfinite(layer.scale) || layer.scale < 0 || !std::isfinite(layer.soft_cap) || layer.soft_cap < 0)
            return layer_has("a scale or a soft cap that is no finite number of at least 0");
        if (!layer.state.empty()) return layer_has("keys and a state, expected one of them");
        if (const ModelResult<void> checked = of_shared(layer); !checked) return checked;
        if (const ModelResult<void> checked = of_factors(layer); !checked) return checked;
        return of_rope(layer);
    }

    ModelResult<void> of_factors(const LayerDescription& layer) const {
        const LayerShape& shape = layer.shape;
        if (shape.shares_layer >= 0) return {};
        for (const auto& [factors, dim] :
             {std::pair{&layer.factors.keys, shape.key_dim}, std::pair{&layer.factors.values, shape.value_dim}}) {
            const std::int64_t expected = std::int64_t{shape.kv_heads} * dim;
            if (!factors->empty() && std::ssize(*factors) != expected)
                return layer_has(factors->size(), " factors of channels, expected ", expected, ", or none");
            if (!std::all_of(factors->begin(), factors->end(), cellar::detail::is_channel_factor))
                return layer_has("a factor of a channel that is no number from 2^-40 to 2^40");
        }
        return {};
    }

    ModelResult<void> of_shared(const LayerDescription& layer) const {
        const int owner = layer.shape.shares_layer;
        if (owner == -1) return {};
        if (owner < 0 || static_cast<std::size_t>(owner) >= index_)
            return layer_has("the memory of layer ", owner, ", expected that of an earlier one");
        const LayerDescription& other = model_.layers[static_cast<std::size_t>(owner)];
        if (other.shape.shares_layer != -1)
            return layer_has("the memory of layer ", owner, ", which has none of its own");
        const bool alike = other.kind == layer.kind && other.window == layer.window
                           && other.shape.kv_heads == layer.shape.kv_heads && other.shape.key_dim == layer.shape.key_dim
                           && other.shape.value_dim == layer.shape.value_dim;
        if (!alike)
            return layer_has("the memory of layer ", owner, ", expected one of the same kind, window, heads and dims");
        return {};
    }

    ModelResult<void> of_rope(const LayerDescription& layer) const {
        const RunTimeRope& rope = layer.rope;
        if (rope.pairing == Pairing::none) return {};
        if (rope.dims < 2 || rope.dims % 2 != 0 || rope.begin < 0
            || std::int64_t{rope.begin} + rope.dims > layer.shape.key_dim)
            return layer_has(rope.dims, " rotary elements from element ", rope.begin, " on, expected an even number ",
                             "within its ", layer.shape.key_dim);
        if (!is_positive(rope.base) || !is_positive(rope.attention_factor) || !std::visit(valid, rope.scaling)
            || (std::holds_alternative<YarnScaling>(rope.scaling) && rope.base <= 1))
            return layer_has("rotary parameters (base, scaling) of which one is not positive, or not finite");
        for (const std::vector<float>* divisors : {&rope.divisors, &rope.long_divisors}) {
            if (!divisors->empty() && divisors->size() != static_cast<std::size_t>(rope.dims / 2))
                return layer_has(divisors->size(), " divisors of frequencies, expected ", rope.dims / 2,
                                 ", one for each pair");
            if (!std::all_of(divisors->begin(), divisors->end(), is_positive))
                return layer_has("a divisor of a frequency that is not a finite number above 0");
        }
        if (!rope.long_divisors.empty() && (rope.divisors.empty() || !is_positive(rope.original_context)))
            return layer_has(
                "divisors for long sequences, expected also those for short ones, and the length of these");
        for (const std::int32_t context : {0, INT32_MAX}) {
            if (context > 0 && rope.long_divisors.empty()) break; // the same frequencies
            for (const double frequency : frequencies(rope, context))
                if (!std::isfinite(frequency)) return layer_has("a frequency that is not finite");
        }
        return {};
    }

    static bool valid_scaling(std::monostate) { return true; }
    static bool valid_scaling(const LinearScaling& s) { return is_positive(s.factor); }
    static bool valid_scaling(const Llama3Scaling& s) {
        return is_positive(s.factor) && is_positive(s.original_context)
               && is_positive(s.high_frequency_factor - s.low_frequency_factor);
    }
    static bool valid_scaling(const YarnScaling& s) {
        return is_positive(s.factor) && is_positive(s.original_context) && is_positive(s.beta_slow)
               && is_positive(s.beta_fast - s.beta_slow);
    }
    static constexpr auto valid = [](const auto& scaling) { return valid_scaling(scaling); };

    ModelResult<void> of_state(const LayerDescription& layer) const {
        if (layer.state.empty()) return layer_has("no tensor of a state, expected at least one");
        for (const StateDescription& tensor : layer.state) {
            std::int64_t elements = tensor.rank() == 0 ? 0 : 1;
            for (int i = 0; i < tensor.rank(); ++i)
                elements = tensor.extents[i] < 1 ? 0 : std::min(elements * tensor.extents[i], max_state + 1);
            if (elements < 1 || elements > max_state)
                return layer_has("a state '", tensor.name, "' of ", elements < 1 ? "no" : "too many",
                                 " elements, expected 1 to ", max_state);
        }
        return {};
    }

    const RunTimeDescription& model_;
    std::size_t index_;
};

} // namespace detail

/// Refuses a description that contradicts itself, with a sentence that names the layer. A layer's kind decides which of
/// its members are looked at.
inline ModelResult<void> check(const RunTimeDescription& model) {
    const std::size_t layers = model.layers.size();
    if (layers == 0 || layers > std::size_t{detail::max_layers})
        return detail::model_error({"the model has ", layers, " layers, expected 1 to ", detail::max_layers});
    if (model.trained_context < 0)
        return detail::model_error(
            {"the model was trained with ", model.trained_context, " tokens, expected 0 or more"});
    if (model.input_tokens < 0)
        return detail::model_error({"an encoder's inputs have ", model.input_tokens, " tokens, expected 0 or more"});
    std::int64_t states = 0;
    for (std::size_t i = 0; i < layers; ++i) {
        if (const ModelResult<void> checked = detail::LayerCheck{model, i}(); !checked) return checked;
        if (model.layers[i].kind != LayerKind::recurrent) continue;
        for (const StateDescription& tensor : model.layers[i].state) states += tensor.elements();
    }
    if (states > detail::max_states)
        return detail::model_error(
            {"the layers have states of ", states, " elements together, expected at most ", detail::max_states});
    return {};
}

} // namespace cellar::models
