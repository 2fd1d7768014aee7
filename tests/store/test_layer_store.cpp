// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "layout/archetypes.hpp"
#include "shift/archetypes.hpp"
#include "store/mirror.hpp"
#include "violations.hpp"
#include <cellar/backend/eigen.hpp>
#include <cellar/backend/host.hpp>
#include <cellar/shift/rope_shift.hpp>
#include <cellar/store/layer_store.hpp>

#include <doctest/doctest.h>

#include <random>
#include <span>
#include <string>
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
using cellar_test::AddShift;
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
    const auto keys = small.store.keys({2, 5});
    CHECK(keys.extent(0) == 5);
    CHECK(keys.extent(1) == 2);
    CHECK(keys.extent(2) == 4);
    const auto values = small.store.values({2, 5});
    CHECK(values.extent(0) == 5);
    CHECK(values.extent(1) == 2);
    CHECK(values.extent(2) == 6);
    CHECK(values.stride(0) == 1);
    static_assert(std::is_same_v<decltype(keys)::element_type, const half>);
    static_assert(std::is_same_v<decltype(values)::element_type, const float>);
}

TEST_CASE("bytes counts keys and values") {
    const Small small;
    CHECK(small.store.cells() == 10);
    CHECK(small.store.bytes() == 10 * 2 * (4 * 2 + 6 * 4));
}

TEST_CASE("addresses stay the same when a store moves") {
    Small small;
    const auto* const keys = small.store.keys({0, 10}).data_handle();
    const auto* const values = small.store.values({0, 10}).data_handle();
    const auto moved = std::move(small.store);
    CHECK(moved.keys({0, 10}).data_handle() == keys);
    CHECK(moved.values({0, 10}).data_handle() == values);
    static_assert(!std::is_copy_constructible_v<decltype(small.store)>);
}

TEST_CASE("a layer may have no values") {
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

TEST_CASE("rows of wrong extents are a violation, and nothing is written") {
    Small small;
    small.zeros.assign(1000, 1.0f);
    const auto put = [&](auto k, auto v) {
        return violation_of([&] { small.store.put(small.backend, small.cells, k, v); });
    };
    const std::string keys = "store: the keys given are ";
    const std::string keys_expected = ", expected [3 tokens, 2 heads, 4 dims]";
    CHECK(put(small.rows(2, 2, 4), small.rows(3, 2, 6)) == keys + "[2 tokens, 2 heads, 4 dims]" + keys_expected);
    CHECK(put(small.rows(4, 2, 4), small.rows(3, 2, 6)) == keys + "[4 tokens, 2 heads, 4 dims]" + keys_expected);
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

TEST_CASE("a shift that rotates more elements than a head has is a violation") {
    Small small;
    CHECK(violation_of([&] { small.store.rotate(small.backend, AddShift{2}, 5, {}); }) == "none");
    CHECK(violation_of([&] { small.store.rotate(small.backend, AddShift{3}, 5, {}); })
          == "store: the keys of layer 5 have 4 elements per head, expected at least the 6 that the shift rotates");
}

TEST_CASE("a rotation of more elements than a head has is a violation") {
    Small small;
    const cellar::KeyRotation rotation{0, 1, 1};
    const auto rotate = [&](const cellar::RopeShift<>& shift) {
        return violation_of([&] { small.store.rotate(small.backend, shift, 7, std::span{&rotation, 1}); });
    };
    CHECK(rotate(cellar::RopeShift<>{{1.0, 0.1}}) == "none");
    CHECK(rotate(cellar::RopeShift<>{{1.0, 0.1}, 1})
          == "store: the keys of layer 7 have 4 elements per head, expected at least the 5 that the shift rotates");
}

} // namespace test_layer_store
