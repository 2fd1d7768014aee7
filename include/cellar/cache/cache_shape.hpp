// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/trivial_list.hpp>
#include <cellar/layout/layer_shape.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <vector>

namespace cellar {

/// The keys and values of one token, layer by layer.
class CacheShape {
public:
    /// All layers alike. `value_dim` is `key_dim` unless given.
    CacheShape(int layers, int kv_heads, int key_dim,
               const std::source_location& where = std::source_location::current())
        : CacheShape{layers, kv_heads, key_dim, key_dim, where} {}
    CacheShape(int layers, int kv_heads, int key_dim, int value_dim,
               const std::source_location& where = std::source_location::current())
        : layers_(static_cast<std::size_t>(layers > 0 ? layers : 0), LayerShape{kv_heads, key_dim, value_dim}) {
        check(where);
    }

    /// Each layer with its own shape. A layer with `shares_layer` reads the memory of that earlier layer.
    explicit CacheShape(const std::vector<LayerShape>& layers,
                        const std::source_location& where = std::source_location::current()) {
        layers_.append(layers.data(), layers.data() + layers.size());
        check(where);
    }

    int layers() const { return static_cast<int>(layers_.size()); }

    const LayerShape& operator[](int layer) const {
        CELLAR_EXPECTS(layer >= 0 && layer < layers(), "layer ", layer, ", expected 0 to ", layers() - 1);
        return layers_[static_cast<std::size_t>(layer)];
    }

private:
    void check(const std::source_location& where) const {
        const detail::Caller caller{where};
        CELLAR_EXPECTS(!layers_.empty(), "shape: no layers, expected at least 1");
        for (std::size_t i = 0; i < layers_.size(); ++i) check(i);
    }
    void check(std::size_t i) const {
        const LayerShape& layer = layers_[i];
        CELLAR_EXPECTS(layer.kv_heads > 0 && layer.key_dim > 0 && layer.value_dim >= 0, "shape: layer ", i, " has ",
                       layer.kv_heads, " heads, a key_dim of ", layer.key_dim, " and a value_dim of ", layer.value_dim,
                       ", expected at least 1, 1 and 0");
        // So that the bytes of any possible number of cells fit into 64 bits.
        const std::int64_t row = std::int64_t{layer.kv_heads} * std::max(layer.key_dim, layer.value_dim);
        CELLAR_EXPECTS(row < (1 << 28), "shape: layer ", i, " has rows of ", row,
                       " elements, expected fewer than 2^28");
        if (layer.shares_layer == -1) return;
        CELLAR_EXPECTS(layer.shares_layer >= 0 && static_cast<std::size_t>(layer.shares_layer) < i, "shape: layer ", i,
                       " shares layer ", layer.shares_layer, ", expected an earlier one, or -1");
        const LayerShape& owner = layers_[static_cast<std::size_t>(layer.shares_layer)];
        CELLAR_EXPECTS(owner.shares_layer < 0, "shape: layer ", i, " shares layer ", layer.shares_layer,
                       ", expected one with memory of its own, but that one shares layer ", owner.shares_layer);
        CELLAR_EXPECTS(owner.kv_heads == layer.kv_heads && owner.key_dim == layer.key_dim
                           && owner.value_dim == layer.value_dim,
                       "shape: layer ", i, " shares layer ", layer.shares_layer, ", expected the same heads and dims");
    }

    detail::TrivialList<LayerShape> layers_;
};

} // namespace cellar
