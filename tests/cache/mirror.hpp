// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "shift/archetypes.hpp"
#include <cellar/cache/detail/layer_store.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

namespace cellar_test {

inline int random_between(std::mt19937& random, int min, int max) {
    return std::uniform_int_distribution<int>{min, max}(random);
}

/// Small integers. Every element type holds them exactly, even after many shifts.
template <class T>
std::vector<T> integers(std::mt19937& random, std::int64_t n) {
    std::vector<T> values;
    for (std::int64_t i = 0; i < n; ++i)
        values.push_back(static_cast<T>(static_cast<float>(random_between(random, -20, 20))));
    return values;
}

/// A plain array [cells, heads, dim] of the keys or values that a layer should hold.
struct Plain {
    std::vector<float> elements;
    int heads;
    int dim;

    Plain(int cells, int the_heads, int the_dim)
        : elements(static_cast<std::size_t>(cells * the_heads * the_dim)), heads{the_heads}, dim{the_dim} {}

    float& operator()(int cell, int head, int d) {
        return elements[static_cast<std::size_t>((cell * heads + head) * dim + d)];
    }
    void move(const cellar::Move& move) {
        const auto before = elements;
        const auto row = heads * dim;
        for (int i = 0; i < move.count * row; ++i)
            elements[static_cast<std::size_t>(move.to * row + i)] =
                before[static_cast<std::size_t>(move.from * row + i)];
    }
    template <class T>
    void put(const std::vector<cellar::Cell>& cells, const std::vector<T>& rows) {
        auto next = rows.begin();
        for (const cellar::Cell cell : cells)
            for (int head = 0; head < heads; ++head)
                for (int d = 0; d < dim; ++d) (*this)(cell, head, d) = static_cast<float>(*next++);
    }
};

/// Writes rows to cells of a store.
template <class Backend, class Rows, class T>
void put_rows(Backend& backend, Rows& stored, std::span<const cellar::Cell> cells, const std::vector<T>& rows) {
    const auto& mapping = stored.mapping();
    backend.scatter(mapping, stored.memory(), cells,
                    cellar::contiguous_view(rows.data(), std::ssize(cells), mapping.heads(), mapping.dim()));
}

/// Reads them as floats.
template <class Backend, class Rows>
std::vector<float> gather_rows(Backend& backend, const Rows& stored, std::span<const cellar::Cell> cells) {
    const auto& mapping = stored.mapping();
    std::vector<float> rows(cells.size() * static_cast<std::size_t>(stored.row()));
    backend.gather(mapping, stored.memory(), cells,
                   cellar::contiguous_view(rows.data(), std::ssize(cells), mapping.heads(), mapping.dim()));
    backend.fence();
    return rows;
}

/// A layer store, and plain arrays of the keys and values that it should hold.
template <class Layout, class Backend>
class Mirrored {
    using Key = typename Layout::key_format;
    using Value = typename Layout::value_format;

public:
    static constexpr int cells = 24;
    static constexpr cellar::LayerShape shape{2, 6, 4};

    template <class K, class V>
    void put(std::mt19937& random) {
        std::vector<cellar::Cell> chosen;
        for (cellar::Cell cell = 0; cell < cells; ++cell)
            if (random_between(random, 0, 2) != 0) chosen.push_back(cell);
        const auto tokens = std::ssize(chosen);
        const auto k = integers<K>(random, tokens * shape.kv_heads * shape.key_dim);
        const auto v = integers<V>(random, tokens * shape.kv_heads * shape.value_dim);
        put_rows(backend_, store_.all_keys(), chosen, k);
        put_rows(backend_, store_.all_values(), chosen, v);
        keys_.put(chosen, k);
        values_.put(chosen, v);
    }

    void move(std::mt19937& random) {
        const int count = random_between(random, 0, cells);
        const cellar::Move move{random_between(random, 0, cells - count), random_between(random, 0, cells - count),
                                count};
        backend_.move(store_.all_keys().mapping(), store_.all_keys().memory(), std::span{&move, 1});
        backend_.move(store_.all_values().mapping(), store_.all_values().memory(), std::span{&move, 1});
        keys_.move(move);
        values_.move(move);
    }

    void rotate(std::mt19937& random) {
        const int count = random_between(random, 0, 5);
        const cellar::KeyRotation rotation{random_between(random, 0, cells - count), count,
                                           random_between(random, -2, 2)};
        backend_.rotate(store_.all_keys().mapping(), store_.all_keys().memory(), AddShift{2}, 1,
                        std::span{&rotation, 1});
        for (cellar::Cell cell = rotation.first; cell < rotation.first + rotation.count; ++cell)
            for (int head = 0; head < shape.kv_heads; ++head)
                for (int d = 0; d < 4; ++d)
                    keys_(cell, head, d) += static_cast<float>(2 * rotation.delta * (d % 2 == 0 ? 1 : 2));
    }

    void check(std::mt19937& random) {
        backend_.fence();
        const int count = random_between(random, 0, cells);
        const cellar::CellRange range{random_between(random, 0, cells - count), count};
        const auto keys = store_.read_keys().view(range);
        const auto values = store_.read_values().view(range);
        bool equal = true;
        for (int i = 0; i < count; ++i) {
            for (int head = 0; head < shape.kv_heads; ++head) {
                for (int d = 0; d < shape.key_dim; ++d)
                    equal = equal && static_cast<float>(keys(i, head, d)) == keys_(range.first + i, head, d);
                for (int d = 0; d < shape.value_dim; ++d)
                    equal = equal && static_cast<float>(values(i, head, d)) == values_(range.first + i, head, d);
            }
        }
        CHECK(equal);
    }

    void check_gather() {
        std::vector<cellar::Cell> all;
        for (cellar::Cell cell = 0; cell < cells; ++cell) all.push_back(cell);
        CHECK(gather_rows(backend_, store_.read_keys(), all) == keys_.elements);
        CHECK(gather_rows(backend_, store_.read_values(), all) == values_.elements);
    }

    void do_random_work(std::mt19937& random) {
        switch (random_between(random, 0, 5)) {
        case 0:
            return put<Key, Value>(random);
        case 1:
            return put<float, Value>(random);
        case 2:
            return put<float, float>(random);
        case 3:
            return rotate(random);
        default:
            return move(random);
        }
    }

private:
    Backend backend_;
    cellar::detail::LayerStore<Layout, Backend> store_{backend_, cells, shape};
    Plain keys_{cells, shape.kv_heads, shape.key_dim};
    Plain values_{cells, shape.kv_heads, shape.value_dim};
};

} // namespace cellar_test
