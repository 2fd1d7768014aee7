// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "cache/mirror.hpp"
#include "layout/archetypes.hpp"
#include <cellar/backend/eigen.hpp>
#include <cellar/backend/host.hpp>
#include <cellar/cache/detail/layer_store.hpp>

#include <doctest/doctest.h>

#include <random>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

TYPE_TO_STRING(cellar::HostBackend);
TYPE_TO_STRING(cellar::EigenBackend);

namespace test_layer_store {

namespace {

using cellar::bf16;
using cellar::Cell;
using cellar::EigenBackend;
using cellar::half;
using cellar::HostBackend;
using cellar::PermutedV;
using cellar::StandardV;
using cellar::detail::LayerStore;
using cellar_test::BackwardsLayout;

template <class Layout, class Backend>
void check_against_mirror() {
    std::mt19937 random{5};
    for (int round = 0; round < 10; ++round) {
        cellar_test::Mirrored<Layout, Backend> store;
        for (int step = 0; step < 30; ++step) {
            store.do_random_work(random);
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

/// A host store of shape {2 heads, key_dim 4, value_dim 6} over 10 cells.
struct Small {
    HostBackend backend;
    LayerStore<PermutedV<half, float>, HostBackend> store{backend, 10, {2, 4, 6}};
};

} // namespace

TEST_CASE_TEMPLATE("StandardV holds the same as a plain array, for all elements", Backend, HostBackend, EigenBackend) {
    check_all_elements<Backend, StandardV>();
}

TEST_CASE_TEMPLATE("PermutedV holds the same as a plain array, for all elements", Backend, HostBackend, EigenBackend) {
    check_all_elements<Backend, PermutedV>();
}

TEST_CASE_TEMPLATE("Blocked holds the same as a plain array", Backend, HostBackend, EigenBackend) {
    check_against_mirror<cellar::Blocked<float, 4>, Backend>();
    check_against_mirror<cellar::Blocked<half, 16, float>, Backend>();
}

TEST_CASE_TEMPLATE("a user-defined layout holds the same as a plain array", Backend, HostBackend, EigenBackend) {
    check_against_mirror<BackwardsLayout<half, float>, Backend>();
}

TEST_CASE("views are [cells, heads, dim] for every layout") {
    const Small small;
    const auto keys = small.store.read_keys().view({2, 5});
    CHECK(keys.extent(0) == 5);
    CHECK(keys.extent(1) == 2);
    CHECK(keys.extent(2) == 4);
    const auto values = small.store.read_values().view({2, 5});
    CHECK(values.extent(0) == 5);
    CHECK(values.extent(1) == 2);
    CHECK(values.extent(2) == 6);
    CHECK(values.stride(0) == 1);
    static_assert(std::is_same_v<decltype(keys)::element_type, const half>);
    static_assert(std::is_same_v<decltype(values)::element_type, const float>);
}

TEST_CASE("bytes counts keys and values") {
    const Small small;
    CHECK(small.store.read_keys().mapping().cells() == 10);
    CHECK(small.store.bytes() == 10 * 2 * (4 * 2 + 6 * 4));
}

TEST_CASE("addresses stay the same when a store moves") {
    Small small;
    const auto* const keys = small.store.read_keys().data();
    const auto* const values = small.store.read_values().data();
    const auto moved = std::move(small.store);
    CHECK(moved.read_keys().data() == keys);
    CHECK(moved.read_values().data() == values);
    static_assert(!std::is_copy_constructible_v<decltype(small.store)>);
}

TEST_CASE("a layer may have no values") {
    HostBackend backend;
    LayerStore<StandardV<float>, HostBackend> store{backend, 4, {1, 3, 0}};
    CHECK(store.bytes() == 4 * 3 * 4);
    CHECK(store.row_bytes() == 3 * 4);
    const std::vector<float> k{1, 2, 3};
    const std::vector<Cell> cells{2};
    cellar_test::put_rows(backend, store.all_keys(), cells, k);
    CHECK(store.read_keys().view({2, 1})(0, 0, 1) == 2.0f);
    CHECK(store.read_values().view({2, 1}).size() == 0);
    CHECK(cellar_test::gather_rows(backend, store.read_keys(), cells) == k);
    const cellar::Move move{2, 0, 1};
    backend.move(store.read_keys().mapping(), store.all_keys().memory(), std::span{&move, 1});
    backend.move(store.read_values().mapping(), store.all_values().memory(), std::span{&move, 1});
    CHECK(store.read_keys().view({0, 1})(0, 0, 2) == 3.0f);
    store.grow(backend, 8);
    CHECK(store.read_keys().mapping().cells() == 8);
    CHECK(cellar_test::gather_rows(backend, store.read_keys(), cells) == k);
}

} // namespace test_layer_store
