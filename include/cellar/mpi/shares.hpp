// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/cache/cache_shape.hpp>
#include <cellar/layout/layer_shape.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace cellar::mpi {

/// Numbers [first, first + count).
struct Share {
    int first = 0;
    int count = 0;

    /// The first one behind this share.
    constexpr int end() const { return first + count; }
    constexpr bool operator==(const Share&) const = default;
};

/// Share number `i` of `count` things that are divided into `shares` in order. The first ones get one more where they
/// do not divide evenly.
constexpr Share share_of(int i, int shares, int count, Where where = Where::current()) {
    CELLAR_EXPECTS_AT(where, shares > 0 && i >= 0 && i < shares, "share_of: share ", i, " of ", shares,
                      ", expected 0 or more, below the number of shares");
    CELLAR_EXPECTS_AT(where, count >= 0, "share_of: ", count, " things, expected 0 or more");
    const int each = count / shares;
    const int larger = count % shares;
    return {i * each + std::min(i, larger), each + (i < larger ? 1 : 0)};
}

/// The heads of an attention layer that a rank has.
struct HeadShare {
    Share kv;    ///< its heads of keys and values; at least one
    Share query; ///< its query heads, which read them; may be none if there are fewer query heads than ranks
    Share ranks; ///< the ranks that have the same heads of keys and values, this one among them

    constexpr bool operator==(const HeadShare&) const = default;
};

/// Divides the heads of a layer. If there are fewer heads of keys and values than ranks, neighbouring ranks have the
/// same one, and divide its query heads. `query_heads` is a multiple of `kv_heads`.
constexpr HeadShare heads_of(int rank, int ranks, int kv_heads, int query_heads, Where where = Where::current()) {
    CELLAR_EXPECTS_AT(where, ranks > 0 && rank >= 0 && rank < ranks, "heads_of: rank ", rank, " of ", ranks,
                      ", expected 0 or more, below the number of ranks");
    CELLAR_EXPECTS_AT(where, kv_heads > 0 && query_heads > 0 && query_heads % kv_heads == 0, "heads_of: ", query_heads,
                      " query heads and ", kv_heads, " of keys, expected a multiple and at least 1");
    const int group = query_heads / kv_heads;
    if (kv_heads >= ranks) {
        const Share kv = share_of(rank, ranks, kv_heads);
        return {kv, {kv.first * group, kv.count * group}, {rank, 1}};
    }
    int head = 0;
    while (share_of(head, kv_heads, ranks).end() <= rank) ++head;
    const Share same = share_of(head, kv_heads, ranks);
    const Share own = share_of(rank - same.first, same.count, group);
    return {{head, 1}, {head * group + own.first, own.count}, same};
}
constexpr HeadShare heads_of(int rank, int ranks, int kv_heads, Where where = Where::current()) {
    return heads_of(rank, ranks, kv_heads, kv_heads, where);
}

/// Divides the layers of a model. A rank has none if there are fewer layers than ranks.
constexpr Share layers_of(int rank, int ranks, int layers, Where where = Where::current()) {
    CELLAR_EXPECTS_AT(where, ranks > 0 && rank >= 0 && rank < ranks, "layers_of: rank ", rank, " of ", ranks,
                      ", expected 0 or more, below the number of ranks");
    CELLAR_EXPECTS_AT(where, layers >= 0, "layers_of: ", layers, " layers, expected 0 or more");
    return share_of(rank, ranks, layers);
}

} // namespace cellar::mpi

namespace cellar::detail {

/// The factors of some heads, if there are any.
inline void keep_heads(std::vector<float>& factors, mpi::Share heads, int dim) {
    if (factors.empty()) return;
    factors.erase(factors.begin() + std::ptrdiff_t{heads.end()} * dim, factors.end());
    factors.erase(factors.begin(), factors.begin() + std::ptrdiff_t{heads.first} * dim);
}

} // namespace cellar::detail

namespace cellar::mpi {

/// The same layers with the heads of this rank.
inline CacheShape shape_of_heads(const CacheShape& model, int rank, int ranks, Where where = Where::current()) {
    const detail::Caller caller{where};
    CacheShape shape = detail::resolved(model);
    for (std::size_t i = 0; i < shape.each_layer.size(); ++i) {
        LayerShape& layer = shape.each_layer[i];
        const Share own = heads_of(rank, ranks, layer.kv_heads, where).kv;
        layer.kv_heads = own.count;
        if (shape.factors.empty()) continue;
        detail::keep_heads(shape.factors[i].keys, own, layer.key_dim);
        detail::keep_heads(shape.factors[i].values, own, layer.value_dim);
    }
    return detail::resolved(std::move(shape));
}

/// Some layers of a model. A layer that shares the memory of another must be in the same part.
inline CacheShape shape_of_layers(const CacheShape& model, Share part, Where where = Where::current()) {
    const detail::Caller caller{where};
    const CacheShape all = detail::resolved(model);
    CELLAR_EXPECTS_AT(where, part.first >= 0 && part.count > 0 && part.end() <= all.layers, "shape_of_layers: layers [",
                      part.first, ", ", part.end(), "), expected some of ", all.layers);
    CacheShape shape;
    for (int layer = part.first; layer < part.end(); ++layer) {
        shape.each_layer.push_back(all[layer]);
        if (!all.factors.empty()) shape.factors.push_back(all.factors[static_cast<std::size_t>(layer)]);
        int& owner = shape.each_layer.back().shares_layer;
        if (owner < 0) continue;
        CELLAR_EXPECTS_AT(where, owner >= part.first, "shape_of_layers: layer ", layer, " shares layer ", owner,
                          " of an earlier part, expected one from ", part.first, " on");
        owner -= part.first;
    }
    return detail::resolved(std::move(shape));
}

} // namespace cellar::mpi
