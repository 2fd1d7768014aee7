// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cellar/cache/cache_shape.hpp>
#include <cellar/mpi/shares.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>
#include <violations.hpp>

namespace test_shares {

using namespace cellar;
using mpi::heads_of;
using mpi::HeadShare;
using mpi::layers_of;
using mpi::Share;

// [shares]
static_assert(heads_of(0, 3, 8, 32) == HeadShare{.kv = {0, 3}, .query = {0, 12}, .ranks = {0, 1}});
static_assert(heads_of(2, 3, 8, 32) == HeadShare{.kv = {6, 2}, .query = {24, 8}, .ranks = {2, 1}});
// Fewer heads than ranks: ranks 2 and 3 have the same head of keys, and 4 of its 8 query heads each.
static_assert(heads_of(3, 4, 2, 16) == HeadShare{.kv = {1, 1}, .query = {12, 4}, .ranks = {2, 2}});
static_assert(layers_of(0, 3, 32) == Share{0, 11});
static_assert(layers_of(2, 3, 32) == Share{22, 10});
// [/shares]

namespace {

// Every rank has heads; all heads have ranks; the query heads are divided, and read the rank's own heads.
constexpr bool divides_all(int ranks, int kv_heads, int group) {
    int next_query = 0;
    int next_head = 0;
    for (int rank = 0; rank < ranks; ++rank) {
        const HeadShare share = heads_of(rank, ranks, kv_heads, kv_heads * group);
        if (share.kv.count < 1 || share.kv.first > next_head || share.kv.end() < next_head) return false;
        next_head = share.kv.end();
        if (share.query.first != next_query) return false;
        next_query = share.query.end();
        if (share.query.first < share.kv.first * group || share.query.end() > share.kv.end() * group) return false;
        if (rank < share.ranks.first || rank >= share.ranks.end()) return false;
        for (int other = 0; other < ranks; ++other) {
            const bool same = heads_of(other, ranks, kv_heads, kv_heads * group).kv == share.kv;
            if (same != (other >= share.ranks.first && other < share.ranks.end())) return false;
        }
    }
    return next_query == kv_heads * group && next_head == kv_heads;
}

} // namespace

TEST_CASE("all heads are divided, whatever the numbers of heads and ranks") {
    for (int ranks = 1; ranks <= 17; ++ranks)
        for (int kv_heads = 1; kv_heads <= 17; ++kv_heads)
            for (int group = 1; group <= 9; group += 2) {
                CAPTURE(ranks);
                CAPTURE(kv_heads);
                CAPTURE(group);
                CHECK(divides_all(ranks, kv_heads, group));
            }
    static_assert(divides_all(5, 3, 2));
}

TEST_CASE("ranks differ by one head or one layer at most") {
    for (int ranks = 1; ranks <= 17; ++ranks)
        for (int n = 0; n <= 40; ++n) {
            int next = 0;
            for (int rank = 0; rank < ranks; ++rank) {
                const Share share = layers_of(rank, ranks, n);
                CHECK(share.first == next);
                CHECK(share.count - n / ranks <= 1);
                CHECK(share.count >= n / ranks);
                next = share.end();
            }
            CHECK(next == n);
        }
}

TEST_CASE("a rank's shape has its heads, or its layers") {
    const CacheShape model{.each_layer = {{8, 4, 4}, {2, 4, 0}, {8, 4, 4, 0}, {8, 4, 4}, {8, 4, 4, 3}}};
    const CacheShape heads = mpi::shape_of_heads(model, 2, 3);
    CHECK(heads.layers == 5);
    CHECK(heads[0].kv_heads == 2);
    CHECK(heads[1].kv_heads == 1);
    CHECK(heads[2].shares_layer == 0);
    const CacheShape layers = mpi::shape_of_layers(model, {3, 2});
    CHECK(layers.layers == 2);
    CHECK(layers[0].shares_layer == -1);
    CHECK(layers[1].shares_layer == 0);
    CHECK(violation_of([&] {
              (void)mpi::shape_of_layers(model, {2, 3});
          }).find("layer 2 shares layer 0")
          != std::string::npos);
    CHECK(violation_of([&] {
              (void)mpi::shape_of_layers(model, {4, 2});
          }).find("expected some of 5")
          != std::string::npos);
}

TEST_CASE("a rank's shape has the factors of its heads, or of its layers") {
    const CacheShape model{.each_layer = {{3, 2, 1}, {3, 2, 1, 0}, {1, 2, 0}},
                           .factors = {{{1, 2, 3, 4, 5, 6}, {7, 8, 9}}, {}, {{10, 11}, {}}}};
    const CacheShape heads = mpi::shape_of_heads(model, 1, 2);
    CHECK(heads.factors[0].keys == std::vector<float>{5, 6});
    CHECK(heads.factors[0].values == std::vector<float>{9});
    CHECK(heads.factors[1].keys.empty());
    CHECK(heads.factors[2].keys == std::vector<float>{10, 11});
    const CacheShape layers = mpi::shape_of_layers(model, {2, 1});
    CHECK(layers.factors.size() == 1);
    CHECK(layers.factors[0].keys == std::vector<float>{10, 11});
    CHECK(mpi::shape_of_layers({.layers = 2, .kv_heads = 1, .head_dim = 4}, {1, 1}).factors.empty());
}

TEST_CASE("wrong numbers of ranks and heads are violations") {
    CHECK(violation_of([] { (void)heads_of(3, 3, 8); }).find("rank 3 of 3") != std::string::npos);
    CHECK(violation_of([] { (void)heads_of(0, 3, 8, 12); }).find("expected a multiple") != std::string::npos);
    CHECK(violation_of([] { (void)layers_of(-1, 3, 8); }).find("rank -1 of 3") != std::string::npos);
    CHECK(violation_of([] { (void)mpi::share_of(0, 0, 8); }).find("share 0 of 0") != std::string::npos);
    CHECK(violation_of([] { (void)mpi::share_of(3, 3, 8); }).find("share 3 of 3") != std::string::npos);
    CHECK(violation_of([] { (void)mpi::share_of(0, 3, -1); }).find("-1 things") != std::string::npos);
    CHECK(violation_of([] { (void)layers_of(0, 3, -1); }).find("expected 0 or more") != std::string::npos);
}

} // namespace test_shares
