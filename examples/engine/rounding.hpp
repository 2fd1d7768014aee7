// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "architecture.hpp"
#include <cellar/cache/channel_calibration.hpp>

#include <ggml.h>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace engine {

/// What a format makes of keys and values: stored in it, and read again at once. So attention over a memory of floats
/// has the values that one in this format would have. Formats may be one for each side.
class Rounding {
public:
    /// Names of formats of cellar, also after "hadamard64." and "hadamard128."; "float" changes nothing, and "nvfp4" is
    /// encoded with four over six. Before them, "exact2." leaves the first two layers in half, and "scaled0.5." divides
    /// channels by factors of that power (see `cellar::CalibrationPowers`), "scaled0.5.queries0.5." by those of both;
    /// "scaled." has the power 1. First of all, before the keys' name, "residual64." leaves the newest 64 tokens of each
    /// query in half, and "residual64.sinks4." also the first 4. Throws if there is no such format.
    Rounding(const std::string& keys, const std::string& values, const Shape& shape,
             const cellar::ChannelCalibration& samples);
    /// Only adds to the samples.
    Rounding(const Shape& shape, cellar::ChannelCalibration& samples);
    Rounding(const Rounding&) = delete;
    Rounding& operator=(const Rounding&) = delete;
    ~Rounding();

    /// Nodes for keys and values [head_dim, kv_heads, tokens] of a layer, which queries are only sampled for. Throws if a head has no multiple of the values
    /// that the format needs.
    std::pair<ggml_tensor*, ggml_tensor*> nodes(ggml_context* context, int layer, ggml_tensor* q, ggml_tensor* k,
                                                ggml_tensor* v);

    /// A node for what a layer's queries attend to, [head_dim * heads, tokens]: `rounded` as it is, which is over the
    /// rounded keys and values, or over the exact ones where a residual has them. The tokens are all that there are.
    ggml_tensor* attended(ggml_context* context, int layer, ggml_tensor* q, std::pair<ggml_tensor*, ggml_tensor*> exact,
                          std::pair<ggml_tensor*, ggml_tensor*> stored, ggml_tensor* rounded);

    /// So far: the root of the mean square of the errors, relative to that of the values.
    double key_error() const;
    double value_error() const;

    /// Of keys and values together, in a text of so many tokens; a residual stores some of them a second time.
    double bits_a_value(int tokens) const;

    static std::vector<std::string> formats();

private:
    struct Sample;
    struct Side;
    struct Residual;
    std::vector<Residual> residuals_; // of layers; none: there is no residual
    std::vector<Sample> samples_;     // of layers; none: they are rounded
    std::unique_ptr<Side> keys_;
    std::unique_ptr<Side> values_;
};

} // namespace engine
