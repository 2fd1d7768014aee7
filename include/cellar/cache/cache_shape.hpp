// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/named_only.hpp>
#include <cellar/layout/channel_factors.hpp>
#include <cellar/layout/layer_shape.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace cellar {

/// The keys and values of one token, layer by layer. All layers alike, `{.layers = 32, .kv_heads = 8, .head_dim =
/// 128}`, or each with its own shape, `{.each_layer = {{.kv_heads = 8, .key_dim = 128, .value_dim = 128}, ...}}`. All
/// layers together have fewer than 2^29 elements, which is far above any model.
struct CacheShape {
    NamedOnly named_only{};
    int layers = 0;
    int kv_heads = 0;
    int head_dim = 0;   ///< elements of a key of one head
    int value_dim = -1; ///< elements of a value of one head; 0: the layers store keys alone; -1: as many as of a key
    /// If this is given, nothing else is needed. A layer with `shares_layer` reads the memory of that earlier layer.
    std::vector<LayerShape> each_layer{};
    /// Of each layer, for formats of fewer bits; empty: none. Those of a layer with `shares_layer` do not count. `put`
    /// divides by them, `gather` and `attend` multiply: what is stored, seen in place and moved is divided. A file has
    /// a digest of them, and is refused by a cache with others.
    std::vector<ChannelFactors> factors{};

    constexpr LayerShape operator[](int layer) const {
        const int count = each_layer.empty() ? layers : static_cast<int>(each_layer.size());
        CELLAR_EXPECTS(layer >= 0 && layer < count, "layer ", layer, ", expected 0 to ", count - 1);
        if (!each_layer.empty()) return each_layer[static_cast<std::size_t>(layer)];
        return {kv_heads, head_dim, value_dim == -1 ? head_dim : value_dim};
    }
};

namespace detail {

constexpr std::int64_t check_row(const LayerShape& layer, std::size_t i) {
    CELLAR_EXPECTS(layer.kv_heads > 0 && layer.key_dim > 0 && layer.value_dim >= 0, "shape: layer ", i, " has ",
                   layer.kv_heads, " heads, a key_dim of ", layer.key_dim, " and a value_dim of ", layer.value_dim,
                   ", expected at least 1, 1 and 0");
    const std::int64_t row = std::int64_t{layer.kv_heads} * std::max(layer.key_dim, layer.value_dim);
    CELLAR_EXPECTS(row < (1 << 28), "shape: layer ", i, " has rows of ", row, " elements, expected fewer than 2^28");
    return std::int64_t{layer.kv_heads} * (std::int64_t{layer.key_dim} + layer.value_dim);
}

// So that the bytes of any possible number of cells fit into 64 bits.
constexpr void check_elements(std::int64_t elements) {
    CELLAR_EXPECTS(elements < (1 << 29), "shape: a token has ", elements,
                   " elements in all layers, expected fewer than 2^29");
}

constexpr void check_layer(std::span<const LayerShape> layers, std::size_t i) {
    const LayerShape& layer = layers[i];
    if (layer.shares_layer == -1) return;
    CELLAR_EXPECTS(layer.shares_layer >= 0 && static_cast<std::size_t>(layer.shares_layer) < i, "shape: layer ", i,
                   " shares layer ", layer.shares_layer, ", expected an earlier one, or -1");
    const LayerShape& owner = layers[static_cast<std::size_t>(layer.shares_layer)];
    CELLAR_EXPECTS(owner.shares_layer < 0, "shape: layer ", i, " shares layer ", layer.shares_layer,
                   ", expected one with memory of its own, but that one shares layer ", owner.shares_layer);
    CELLAR_EXPECTS(owner.kv_heads == layer.kv_heads && owner.key_dim == layer.key_dim
                       && owner.value_dim == layer.value_dim,
                   "shape: layer ", i, " shares layer ", layer.shares_layer, ", expected the same heads and dims");
}

constexpr void check_factors(const char* what, std::size_t layer, const std::vector<float>& factors, int count) {
    const auto given = static_cast<std::int64_t>(factors.size());
    CELLAR_EXPECTS(given == 0 || given == count, "shape: layer ", layer, " has ", given, " factors of ", what,
                   ", expected ", count, ", one for each head and element, or none");
    for (const float factor : factors)
        CELLAR_EXPECTS(is_channel_factor(factor), "shape: layer ", layer, " has a factor of ", what,
                       " that is not positive, extreme or not a number, expected 2^-40 to 2^40");
}

/// The elements of a token's keys and values in all layers. Each row is checked.
constexpr std::int64_t elements_of(const CacheShape& shape) {
    if (shape.each_layer.empty()) return shape.layers * check_row(shape[0], 0);
    std::int64_t elements = 0;
    for (std::size_t i = 0; i < shape.each_layer.size(); ++i) elements += check_row(shape.each_layer[i], i);
    return elements;
}

/// The same shape with `layers` and `each_layer` filled in, and checked.
constexpr CacheShape resolved(CacheShape shape) {
    const auto given = static_cast<int>(shape.each_layer.size());
    CELLAR_EXPECTS(shape.layers > 0 || given > 0, "shape: no layers, expected at least 1");
    CELLAR_EXPECTS(given == 0 || shape.layers == 0 || shape.layers == given, "shape: ", shape.layers,
                   " layers, expected ", given, ", as many as are in each_layer");
    check_elements(elements_of(shape));
    if (given == 0) shape.each_layer = std::vector<LayerShape>(static_cast<std::size_t>(shape.layers), shape[0]);
    shape.layers = static_cast<int>(shape.each_layer.size());
    for (std::size_t i = 0; i < shape.each_layer.size(); ++i) check_layer(shape.each_layer, i);
    CELLAR_EXPECTS(shape.factors.empty() || shape.factors.size() == shape.each_layer.size(), "shape: factors of ",
                   shape.factors.size(), " layers, expected of all ", shape.layers, ", or of none");
    for (std::size_t i = 0; i < shape.factors.size(); ++i) {
        const LayerShape& layer = shape.each_layer[i];
        if (layer.shares_layer >= 0) shape.factors[i] = {};
        check_factors("keys", i, shape.factors[i].keys, layer.kv_heads * layer.key_dim);
        check_factors("values", i, shape.factors[i].values, layer.kv_heads * layer.value_dim);
    }
    return shape;
}

} // namespace detail

} // namespace cellar
