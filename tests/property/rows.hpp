// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "../naive/naive_model.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

namespace property {

struct Layer {
    int heads;
    int key_dim;
    int value_dim;
    int shares_layer = -1; ///< index of the earlier layer whose memory this one reads
};

/// Key and value of one token in one layer, [heads, dim].
struct Rows {
    std::vector<float> key;
    std::vector<float> value;
};

/// What storing changes in the values of a head of a key or a value. By default nothing, because every element type
/// holds the rows exactly.
struct Storage {
    std::function<void(std::span<float>)> key{};
    std::function<void(std::span<float>)> value{};
};

/// What a shift does to a key, described independently of the library. Pair i is element `first + 2i` and the next one,
/// or with `halves` elements `first + i` and `first + pairs + i`.
struct KeyShift {
    enum class Kind { none, adds, rotates };

    Kind kind = Kind::none;
    bool halves = false;
    int first = 0;
    std::vector<std::vector<double>> frequencies; ///< rotates: radians per position [layer, pair]
    double rounding = 0;                          ///< of the element type of keys, relative
};

/// The rows of each token. The first elements of its value in the first layer hold its number, all others a hash of the
/// number and the index. All are integers from 1 to 64, so that every element type holds them exactly, even after
/// shifts that add.
class RowSource {
public:
    RowSource(std::vector<Layer> layers, KeyShift key_shift)
        : layers_{std::move(layers)}, key_shift_{std::move(key_shift)} {}

    const std::vector<Layer>& layers() const { return layers_; }
    void stored_as(Storage storage) { storage_ = std::move(storage); }

    Rows put(int layer, int value) const {
        const Layer& shape = at(layer);
        layer = memory_of(layer);
        Rows rows;
        for (int i = 0; i < shape.heads * shape.key_dim; ++i)
            rows.key.push_back(static_cast<float>(hash(value, layer, 100 + i)));
        for (int i = 0; i < shape.heads * shape.value_dim; ++i)
            rows.value.push_back(static_cast<float>(hash(value, layer, i)));
        if (layer == 0)
            for (int i = 0; i < digits(); ++i)
                rows.value[static_cast<std::size_t>(i)] =
                    static_cast<float>(1 + value / power(i) % base() * 63 / (base() - 1));
        return rows;
    }

    /// The same as a memory holds it.
    Rows stored(int layer, int value) const {
        Rows rows = put(layer, value);
        store(storage_.key, rows.key, at(layer).key_dim);
        store(storage_.value, rows.value, at(layer).value_dim);
        return rows;
    }

    /// The number of the token that has these rows in the first layer, as stored.
    int value_of(const Rows& rows) const {
        int value = 0;
        for (int i = 0; i < digits(); ++i) {
            const double digit = (double{rows.value[static_cast<std::size_t>(i)]} - 1) * (base() - 1) / 63;
            value += static_cast<int>(std::lround(digit)) * power(i);
        }
        return value;
    }

    /// A token's key after all shifts, by definition: the key that was put, shifted once.
    std::vector<double> key_of(const naive::Token& token, int layer) const {
        const Rows rows = stored(layer, token.value);
        std::vector<double> key(rows.key.begin(), rows.key.end());
        if (token.shifts == 0) return key;
        layer = memory_of(layer);
        const int dim = at(layer).key_dim;
        for (int head = 0; head < at(layer).heads; ++head)
            for (int pair = 0; pair < pairs(layer); ++pair) {
                const int step = key_shift_.halves ? pairs(layer) : 1;
                const int a = head * dim + key_shift_.first + (key_shift_.halves ? pair : 2 * pair);
                rotate(key[static_cast<std::size_t>(a)], key[static_cast<std::size_t>(a + step)], layer, pair,
                       token.shifted);
            }
        return key;
    }

    /// The largest difference of a stored key from that, because each shift may round.
    double tolerance(const naive::Token& token) const {
        if (key_shift_.kind != KeyShift::Kind::rotates) return 0;
        constexpr double largest = 64 * 1.5;
        return token.shifts * largest * (key_shift_.rounding + 1e-6);
    }

    int pairs(int layer) const {
        if (key_shift_.kind == KeyShift::Kind::rotates)
            return static_cast<int>(key_shift_.frequencies[static_cast<std::size_t>(layer)].size());
        return key_shift_.kind == KeyShift::Kind::adds ? at(layer).key_dim / 2 : 0;
    }

private:
    const Layer& at(int layer) const { return layers_[static_cast<std::size_t>(layer)]; }
    // The number of a token: two digits of base 64, or as many bits as that in wide rows, which formats of few bits tell
    // apart.
    int base() const { return at(0).heads * at(0).value_dim < 12 ? 64 : 2; }
    int digits() const { return base() == 2 ? 12 : 2; }
    int power(int digit) const { return base() == 2 ? 1 << digit : digit == 0 ? 1 : 64; }

    int memory_of(int layer) const { return at(layer).shares_layer < 0 ? layer : at(layer).shares_layer; }

    static void store(const std::function<void(std::span<float>)>& change, std::vector<float>& row, int dim) {
        if (!change || dim == 0) return;
        const auto size = static_cast<std::size_t>(dim);
        for (std::size_t i = 0; i < row.size(); i += size) change(std::span{row}.subspan(i, size));
    }

    static int hash(int value, int layer, int index) {
        std::uint32_t h = static_cast<std::uint32_t>((value * 8 + layer) * 256 + index);
        h = (h ^ h >> 16) * 0x45d9f3bU;
        h = (h ^ h >> 16) * 0x45d9f3bU;
        return 1 + static_cast<int>((h ^ h >> 16) % 64);
    }

    void rotate(double& a, double& b, int layer, int pair, int by) const {
        if (key_shift_.kind == KeyShift::Kind::adds) {
            a += by;
            b += by;
            return;
        }
        const double angle =
            by * key_shift_.frequencies[static_cast<std::size_t>(layer)][static_cast<std::size_t>(pair)];
        const double rotated = a * std::cos(angle) - b * std::sin(angle);
        b = a * std::sin(angle) + b * std::cos(angle);
        a = rotated;
    }

    std::vector<Layer> layers_;
    KeyShift key_shift_;
    Storage storage_{};
};

} // namespace property
