// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/cache/cache_shape.hpp>
#include <cellar/layout/channel_factors.hpp>
#include <cellar/layout/layer_shape.hpp>
#include <cellar/shift/shift.hpp>
#include <cellar/shift/unrotated_shift.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace cellar {

/// How far factors follow what was sampled. A factor of keys is k^keys * q^-queries, with k and q the root mean squares
/// of the channel's keys and of the queries that are multiplied by them; one of values is v^values. The defaults make
/// the errors of scores least if the format's errors are alike in all channels, as after a Hadamard rotation.
struct CalibrationPowers {
    double keys = 0.5;
    double queries = 0.5;
    double values = 0.5;
};

/// Finds `CacheShape::factors` from what a model computed for some text, a few hundred tokens or more. The geometric
/// mean of the factors of a head is 1. Elements that the shift rotates as a pair get one factor, from the mean of both,
/// so that what positions the text had does not matter (the rotary envelope).
class ChannelCalibration {
public:
    /// `CacheShape::each_layer`, which `Cache::shape` has. Layers without heads, as those of a model that have no keys,
    /// get no factors. Violations: no layers, or such as no cache can have.
    explicit ChannelCalibration(std::span<const LayerShape> layers, Where where = Where::current()) {
        const detail::Caller caller{where};
        CELLAR_EXPECTS(!layers.empty(), "calibration: no layers, expected `each_layer` as Cache::shape has it");
        std::int64_t elements = 0;
        for (std::size_t i = 0; i < layers.size(); ++i) {
            if (layers[i].kv_heads == 0) continue;
            elements += detail::check_row(layers[i], i);
            detail::check_layer(layers, i);
        }
        detail::check_elements(elements);
        for (const LayerShape& layer : layers) layers_.emplace_back(layer);
    }

    /// Queries [tokens, heads, key_dim], as `attend` takes them; keys [tokens, kv_heads, key_dim] and values
    /// [tokens, kv_heads, value_dim], as `put` takes them; keys may have their rotary positions or none. Violations:
    /// other lengths, numbers that are not finite, a layer that shares another's memory, or has no heads.
    void add(int layer, std::span<const float> q, std::span<const float> k, std::span<const float> v,
             Where where = Where::current()) {
        const detail::Caller caller{where};
        Layer& own = at("add", layer);
        const auto tokens = std::ssize(k) / own.keys.row();
        own.keys.check("keys", layer, tokens, k);
        own.values.check("values", layer, tokens, v);
        const std::int64_t heads = tokens == 0 ? 0 : std::ssize(q) / (tokens * own.shape.key_dim);
        CELLAR_EXPECTS((heads > 0 || tokens == 0) && heads % own.shape.kv_heads == 0
                           && heads * tokens * own.shape.key_dim == std::ssize(q),
                       "add: the queries of layer ", layer, " are ", q.size(), " elements, expected [", tokens,
                       " tokens, a multiple of ", own.shape.kv_heads, " heads, ", own.shape.key_dim, "]");
        expect_finite("queries", layer, q);
        if (tokens == 0) return;
        own.queries.add(q, heads);
        own.keys.add(k, own.shape.kv_heads);
        if (!v.empty()) own.values.add(v, own.shape.kv_heads);
    }

    /// For a cache of these layers with this shift. Channels that were always zero get 1, and so do all of a layer
    /// without samples. A shift that rotates more elements than a key has is a violation.
    template <ShiftPolicy Shift = UnrotatedShift>
    std::vector<ChannelFactors> factors(const CalibrationPowers& powers = {}, const Shift& shift = Shift{},
                                        Where where = Where::current()) const {
        const detail::Caller caller{where};
        std::vector<ChannelFactors> found(layers_.size());
        for (std::size_t i = 0; i < layers_.size(); ++i) {
            const Layer& layer = layers_[i];
            if (layer.shape.shares_layer >= 0 || layer.shape.kv_heads == 0) continue;
            std::vector<double> keys = layer.keys.squares;
            std::vector<double> queries = layer.queries.squares;
            if constexpr (rotates_keys<Shift> || rotates_on_read<Shift>) {
                const auto rotation = shift.rotation(static_cast<int>(i));
                const int min = detail::min_dim(rotation);
                CELLAR_EXPECTS(min <= layer.keys.dim, "factors: layer ", i, " has a key_dim of ", layer.keys.dim,
                               ", expected at least ", min, ", the elements that are rotated");
                join_pairs(keys, layer.keys.dim, rotation);
                join_pairs(queries, layer.keys.dim, rotation);
            }
            const Powered of_keys[] = {{keys, powers.keys / 2}, {queries, -powers.queries / 2}};
            const Powered of_values[] = {{layer.values.squares, powers.values / 2}};
            found[i].keys = factors_of(of_keys, layer.keys.dim);
            found[i].values = factors_of(of_values, layer.values.dim);
        }
        return found;
    }

private:
    // Sums of squares [kv_heads, dim].
    struct Side {
        int dim;
        std::vector<double> squares;

        Side(int heads, int of_dim) : dim{of_dim}, squares(static_cast<std::size_t>(heads * of_dim)) {}
        std::int64_t row() const { return std::ssize(squares); }

        void check(const char* what, int layer, std::int64_t tokens, std::span<const float> rows) const {
            CELLAR_EXPECTS(std::ssize(rows) == tokens * row(), "add: the ", what, " of layer ", layer, " are ",
                           rows.size(), " elements, expected ", tokens * row(), " for [", tokens, " tokens, ",
                           dim == 0 ? 0 : row() / dim, " heads, ", dim, "]");
            expect_finite(what, layer, rows);
        }
        // Rows of a multiple of the heads.
        void add(std::span<const float> rows, std::int64_t heads) {
            const std::int64_t group = heads * dim / row();
            for (std::int64_t i = 0; i < std::ssize(rows); ++i) {
                const std::int64_t channel = i / dim % heads / group * dim + i % dim;
                const double x = rows[static_cast<std::size_t>(i)];
                squares[static_cast<std::size_t>(channel)] += x * x;
            }
        }
    };
    struct Layer {
        LayerShape shape;
        Side keys;
        Side values;
        Side queries;

        explicit Layer(const LayerShape& of)
            : shape{of}, keys{of.kv_heads, of.key_dim}, values{of.kv_heads, of.value_dim}, queries{keys} {}
    };
    struct Powered {
        const std::vector<double>& squares;
        double power;
    };

    static void expect_finite(const char* what, int layer, std::span<const float> rows) {
        CELLAR_EXPECTS(std::all_of(rows.begin(), rows.end(), [](float x) { return std::isfinite(x); }), "add: the ",
                       what, " of layer ", layer, " are infinite or not numbers, expected finite ones");
    }

    Layer& at(const char* call, int layer) {
        CELLAR_EXPECTS(layer >= 0 && layer < std::ssize(layers_), call, ": layer ", layer, ", expected 0 to ",
                       std::ssize(layers_) - 1);
        Layer& found = layers_[static_cast<std::size_t>(layer)];
        CELLAR_EXPECTS(found.shape.shares_layer < 0, call, ": layer ", layer, " shares the memory of layer ",
                       found.shape.shares_layer, ", expected that one");
        CELLAR_EXPECTS(found.shape.kv_heads > 0, call, ": layer ", layer, " has no heads, expected one with keys");
        return found;
    }

    static void join_pairs(std::vector<double>& squares, int dim, const auto& rotation) {
        for (std::size_t head = 0; head < squares.size(); head += static_cast<std::size_t>(dim))
            for (int pair = 0; pair < rotation.pairs(); ++pair) {
                double& a = squares[head + static_cast<std::size_t>(rotation.first(pair))];
                double& b = squares[head + static_cast<std::size_t>(rotation.second(pair))];
                a = b = (a + b) / 2;
            }
    }

    // The product of the powers of a channel, relative to the geometric mean of its head.
    static std::vector<float> factors_of(std::span<const Powered> all, int dim) {
        constexpr double most = 14; // of the logarithm: factors from 2^-20 to 2^20
        std::vector<double> logarithms(all[0].squares.size());
        for (const Powered& own : all)
            for (std::size_t i = 0; i < own.squares.size(); ++i)
                if (own.squares[i] > 0) logarithms[i] += own.power * std::log(own.squares[i]);
        std::vector<float> factors;
        for (std::size_t head = 0; head < logarithms.size(); head += static_cast<std::size_t>(dim)) {
            double mean = 0;
            int count = 0;
            for (std::size_t i = head; i < head + static_cast<std::size_t>(dim); ++i)
                if (all[0].squares[i] > 0) {
                    mean += logarithms[i];
                    ++count;
                }
            mean /= std::max(count, 1);
            for (std::size_t i = head; i < head + static_cast<std::size_t>(dim); ++i) {
                const double relative = all[0].squares[i] > 0 ? logarithms[i] - mean : 0;
                factors.push_back(static_cast<float>(std::exp(std::clamp(relative, -most, most))));
            }
        }
        return factors;
    }

    std::vector<Layer> layers_;
};

} // namespace cellar
