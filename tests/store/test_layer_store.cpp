// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "backend/memory.hpp"
#include "layout/archetypes.hpp"
#include "shift/archetypes.hpp"
#include "violations.hpp"
#include <cellar/backend/eigen.hpp>
#include <cellar/backend/host.hpp>
#include <cellar/store/layer_store.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using cellar::bf16;
using cellar::Cell;
using cellar::EigenBackend;
using cellar::half;
using cellar::HostBackend;
using cellar::LayerStore;
using cellar::PermutedV;
using cellar::StandardV;
using cellar_test::AddShift;
using cellar_test::BackwardsLayout;

int up_to(std::mt19937& random, int least, int most) {
    return std::uniform_int_distribution<int>{least, most}(random);
}

/// Small integers, which every element holds, also after many shifts.
template <class T>
std::vector<T> integers(std::mt19937& random, std::int64_t n) {
    std::vector<T> values;
    for (std::int64_t i = 0; i < n; ++i) values.push_back(static_cast<T>(static_cast<float>(up_to(random, -20, 20))));
    return values;
}

/// The value at (cell, head, d), whichever order the view has.
template <class Mapping, class View>
float at(const View& view, int cell, int head, int d) {
    if constexpr (std::is_same_v<Mapping, cellar::HeadsDimsCells>) {
        return static_cast<float>(view(head, d, cell));
    } else {
        return static_cast<float>(view(cell, head, d));
    }
}

/// What a layer should hold: plain arrays [cells, heads, dim].
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
    void put(const std::vector<Cell>& cells, const std::vector<T>& rows) {
        auto next = rows.begin();
        for (const Cell cell : cells)
            for (int head = 0; head < heads; ++head)
                for (int d = 0; d < dim; ++d) (*this)(cell, head, d) = static_cast<float>(*next++);
    }
};

template <class Layout, class Backend>
class Mirrored {
    using Key = typename Layout::key_element;
    using Value = typename Layout::value_element;

public:
    static constexpr int cells = 24;
    static constexpr cellar::LayerShape shape{2, 6, 4};

    template <class K, class V>
    void put(std::mt19937& random) {
        std::vector<Cell> chosen;
        for (Cell cell = 0; cell < cells; ++cell)
            if (up_to(random, 0, 2) != 0) chosen.push_back(cell);
        const auto tokens = std::ssize(chosen);
        const auto k = integers<K>(random, tokens * shape.kv_heads * shape.key_dim);
        const auto v = integers<V>(random, tokens * shape.kv_heads * shape.value_dim);
        store_.put(backend_, chosen, cellar::contiguous_view(k.data(), tokens, shape.kv_heads, shape.key_dim),
                   cellar::contiguous_view(v.data(), tokens, shape.kv_heads, shape.value_dim));
        keys_.put(chosen, k);
        values_.put(chosen, v);
    }

    void move(std::mt19937& random) {
        const int count = up_to(random, 0, cells);
        const cellar::Move move{up_to(random, 0, cells - count), up_to(random, 0, cells - count), count};
        store_.move(backend_, std::span{&move, 1});
        keys_.move(move);
        values_.move(move);
    }

    void turn(std::mt19937& random) {
        const int count = up_to(random, 0, 5);
        const cellar::Turn turn{up_to(random, 0, cells - count), count, up_to(random, -2, 2)};
        store_.turn(backend_, AddShift{2}, 1, std::span{&turn, 1});
        for (Cell cell = turn.first; cell < turn.first + turn.count; ++cell)
            for (int head = 0; head < shape.kv_heads; ++head)
                for (int d = 0; d < 4; ++d)
                    keys_(cell, head, d) += static_cast<float>(2 * turn.delta * (d % 2 == 0 ? 1 : 2));
    }

    void check(std::mt19937& random) {
        backend_.fence();
        const int count = up_to(random, 0, cells);
        const cellar::CellRange range{up_to(random, 0, cells - count), count};
        const auto keys = store_.keys(range);
        const auto values = store_.values(range);
        bool right = true;
        for (int i = 0; i < count; ++i) {
            for (int head = 0; head < shape.kv_heads; ++head) {
                for (int d = 0; d < shape.key_dim; ++d)
                    right =
                        right && at<typename Layout::key_mapping>(keys, i, head, d) == keys_(range.first + i, head, d);
                for (int d = 0; d < shape.value_dim; ++d)
                    right =
                        right
                        && at<typename Layout::value_mapping>(values, i, head, d) == values_(range.first + i, head, d);
            }
        }
        CHECK(right);
    }

    void check_gather() {
        std::vector<Cell> all;
        for (Cell cell = 0; cell < cells; ++cell) all.push_back(cell);
        std::vector<float> k(keys_.elements.size());
        std::vector<float> v(values_.elements.size());
        store_.gather(backend_, all, cellar::contiguous_view(k.data(), cells, shape.kv_heads, shape.key_dim),
                      cellar::contiguous_view(v.data(), cells, shape.kv_heads, shape.value_dim));
        backend_.fence();
        CHECK(k == keys_.elements);
        CHECK(v == values_.elements);
    }

    void act_at_random(std::mt19937& random) {
        switch (up_to(random, 0, 5)) {
        case 0:
            return put<Key, Value>(random);
        case 1:
            return put<float, Value>(random);
        case 2:
            return put<float, float>(random);
        case 3:
            return turn(random);
        default:
            return move(random);
        }
    }

private:
    Backend backend_;
    LayerStore<Layout, Backend> store_{backend_, cells, shape};
    Plain keys_{cells, shape.kv_heads, shape.key_dim};
    Plain values_{cells, shape.kv_heads, shape.value_dim};
};

template <class Layout, class Backend>
void check_against_mirror() {
    std::mt19937 random{5};
    for (int round = 0; round < 10; ++round) {
        Mirrored<Layout, Backend> store;
        for (int step = 0; step < 30; ++step) {
            store.act_at_random(random);
            store.check(random);
        }
        store.check_gather();
    }
}

template <class Backend, template <class, class> class Layout>
void check_all_elements() {
    const auto with_key = []<class Key>(Key) {
        check_against_mirror<Layout<Key, float>, Backend>();
        check_against_mirror<Layout<Key, half>, Backend>();
        check_against_mirror<Layout<Key, bf16>, Backend>();
    };
    with_key(float{});
    with_key(half{});
    with_key(bf16{});
}

/// A host store of shape {2 heads, key_dim 4, value_dim 6} over 10 cells, and rows of zeros for it.
struct Small {
    HostBackend backend;
    LayerStore<PermutedV<half, float>, HostBackend> store{backend, 10, {2, 4, 6}};
    std::vector<float> zeros = std::vector<float>(1000);
    std::vector<Cell> cells{3, 4, 7};

    cellar::StridedView<const float, 3> rows(int tokens, int heads, int dim) const {
        return cellar::contiguous_view(zeros.data(), tokens, heads, dim);
    }
};

} // namespace

TYPE_TO_STRING(cellar::HostBackend);
TYPE_TO_STRING(cellar::EigenBackend);

TEST_CASE_TEMPLATE("StandardV of all elements holds what a plain array holds", Backend, HostBackend, EigenBackend) {
    check_all_elements<Backend, StandardV>();
}

TEST_CASE_TEMPLATE("PermutedV of all elements holds what a plain array holds", Backend, HostBackend, EigenBackend) {
    check_all_elements<Backend, PermutedV>();
}

TEST_CASE_TEMPLATE("a user's own layout holds what a plain array holds", Backend, HostBackend, EigenBackend) {
    check_against_mirror<BackwardsLayout<half, float>, Backend>();
}

TEST_CASE("views have the extents of the layout") {
    const Small small;
    const auto keys = small.store.keys({2, 5});
    CHECK(keys.extent(0) == 5);
    CHECK(keys.extent(1) == 2);
    CHECK(keys.extent(2) == 4);
    const auto values = small.store.values({2, 5});
    CHECK(values.extent(0) == 2);
    CHECK(values.extent(1) == 6);
    CHECK(values.extent(2) == 5);
    static_assert(std::is_same_v<decltype(keys)::element_type, const half>);
    static_assert(std::is_same_v<decltype(values)::element_type, const float>);
}

TEST_CASE("bytes are those of keys and values") {
    const Small small;
    CHECK(small.store.cells() == 10);
    CHECK(small.store.bytes() == 10 * 2 * (4 * 2 + 6 * 4));
}

TEST_CASE("a store that moves keeps its memory where it is") {
    Small small;
    const auto* const keys = small.store.keys({0, 10}).data_handle();
    const auto* const values = small.store.values({0, 10}).data_handle();
    const auto moved = std::move(small.store);
    CHECK(moved.keys({0, 10}).data_handle() == keys);
    CHECK(moved.values({0, 10}).data_handle() == values);
    static_assert(!std::is_copy_constructible_v<decltype(small.store)>);
}

TEST_CASE("a layer without values") {
    HostBackend backend;
    LayerStore<StandardV<float>, HostBackend> store{backend, 4, {1, 3, 0}};
    CHECK(store.bytes() == 4 * 3 * 4);
    const std::vector<float> k{1, 2, 3};
    const std::vector<Cell> cells{2};
    store.put(backend, cells, cellar::contiguous_view(k.data(), 1, 1, 3), cellar::StridedView<const float, 3>{});
    CHECK(store.keys({2, 1})(0, 0, 1) == 2.0f);
    CHECK(store.values({2, 1}).size() == 0);
    std::vector<float> read(3);
    store.gather(backend, cells, cellar::contiguous_view(read.data(), 1, 1, 3), cellar::StridedView<float, 3>{});
    CHECK(read == k);
    const cellar::Move move{2, 0, 1};
    store.move(backend, std::span{&move, 1});
    CHECK(store.keys({0, 1})(0, 0, 2) == 3.0f);
}

TEST_CASE("rows of other extents are a violation, and nothing is written") {
    Small small;
    small.zeros.assign(1000, 1.0f);
    const auto put = [&](auto k, auto v) {
        return violation_of([&] { small.store.put(small.backend, small.cells, k, v); });
    };
    const std::string keys = "store: the keys given are ";
    const std::string keys_expected = ", expected [3 tokens, 2 heads, 4 dims]";
    CHECK(put(small.rows(2, 2, 4), small.rows(3, 2, 6)) == keys + "[2 tokens, 2 heads, 4 dims]" + keys_expected);
    CHECK(put(small.rows(3, 1, 4), small.rows(3, 2, 6)) == keys + "[3 tokens, 1 heads, 4 dims]" + keys_expected);
    CHECK(put(small.rows(3, 2, 6), small.rows(3, 2, 6)) == keys + "[3 tokens, 2 heads, 6 dims]" + keys_expected);
    const std::string values = "store: the values given are ";
    const std::string values_expected = ", expected [3 tokens, 2 heads, 6 dims]";
    CHECK(put(small.rows(3, 2, 4), small.rows(3, 2, 4)) == values + "[3 tokens, 2 heads, 4 dims]" + values_expected);
    CHECK(put(small.rows(3, 2, 4), cellar::StridedView<const float, 3>{})
          == values + "[0 tokens, 0 heads, 0 dims]" + values_expected);
    for (const Cell cell : small.cells) CHECK(static_cast<float>(small.store.keys({cell, 1})(0, 0, 0)) == 0.0f);
    CHECK(put(small.rows(3, 2, 4), small.rows(3, 2, 6)) == "none");

    const cellar::StridedView<float, 3> none;
    CHECK(violation_of([&] { small.store.gather(small.backend, small.cells, none, none); })
          == keys + "[0 tokens, 0 heads, 0 dims]" + keys_expected);
}

TEST_CASE("a shift that turns more than a head has is a violation") {
    Small small;
    CHECK(violation_of([&] { small.store.turn(small.backend, AddShift{2}, 5, {}); }) == "none");
    CHECK(violation_of([&] { small.store.turn(small.backend, AddShift{3}, 5, {}); })
          == "store: the keys of layer 5 have 4 elements per head, expected at least the 6 that the shift turns");
}
