// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every layer must be put before it is read and before the pass is committed.
#include "../violations.hpp"
#include "numbers.hpp"

namespace test_puts {

using namespace cellar;
using numbers::prompt;
using numbers::Values;

namespace {

const CacheLimits limits{.sequences = 2, .capacity = 4, .batch = 4};

} // namespace

TEST_CASE("a row that another sequence left in a cell cannot be read") {
    Cache<> cache{{.layers = 1, .kv_heads = 1, .head_dim = 1}, limits};
    {
        auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}}).value();
        pass.put(0, Values{42}, Values{43});
        pass.commit();
    }
    REQUIRE(cache.remove(Sequence{0}, Position{0}, to_end));
    auto pass = cache.begin(BatchBuilder{Sequence{1}, Position{0}}).value();
    const std::string message = ": layer 0 was not put in this pass, expected a put before it is read";
    CHECK(violation_of([&] { (void)pass.keys(0); }) == "keys" + message);
    CHECK(violation_of([&] { (void)pass.values(0); }) == "values" + message);
    CHECK(violation_of([&] { (void)pass.get(0); }) == "keys" + message);
    CHECK(violation_of([&] { pass.commit(); }) == "commit: layer 0 was not put, expected a put of every layer");
    pass.put(0, Values{1}, Values{2});
    CHECK(pass.keys(0)(0, 0, 0) == 1);
    pass.commit();
    CHECK(numbers::values(cache, 1) == Values{2});
}

TEST_CASE("a commit names the first layer that was not put") {
    Cache<> cache{{.layers = 70, .kv_heads = 1, .head_dim = 1}, limits};
    for (int round = 0; round < 3; ++round) {
        auto pass = cache.begin(BatchBuilder{Sequence{0}, cache.next(Sequence{0})}).value();
        for (const int missing : {0, 63, 64, 69}) {
            for (int layer = 0; layer < missing; ++layer) pass.put(layer, Values{1}, Values{2});
            CHECK(violation_of([&] { pass.commit(); })
                  == "commit: layer " + std::to_string(missing) + " was not put, expected a put of every layer");
            CHECK(violation_of([&] { (void)pass.keys(missing); })
                  == "keys: layer " + std::to_string(missing)
                         + " was not put in this pass, expected a put before it is read");
        }
        pass.put(69, Values{1}, Values{2});
        pass.put(69, Values{3}, Values{4}); // again: the last put counts
        CHECK(pass.values(69)(round, 0, 0) == 4);
        pass.commit();
    }
}

TEST_CASE("a layer that shares memory counts as put with its owner") {
    Cache<> cache{CacheShape{.each_layer = {{1, 1, 1}, {1, 1, 1}, {1, 1, 1, 0}, {1, 1, 1}}}, limits};
    auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}}).value();
    CHECK(violation_of([&] { pass.mark_put(2); })
          == "mark_put: layer 2 shares the memory of layer 0, expected a mark_put to that one");
    pass.put(1, Values{5}, Values{5});
    CHECK(violation_of([&] { (void)pass.keys(2); })
          == "keys: layer 2 was not put in this pass, expected a put before it is read");
    CHECK(violation_of([&] { pass.commit(); }) == "commit: layer 0 was not put, expected a put of every layer");
    pass.put(0, Values{7}, Values{7});
    CHECK(pass.keys(2)(0, 0, 0) == 7);
    CHECK(violation_of([&] { pass.commit(); }) == "commit: layer 3 was not put, expected a put of every layer");
    pass.put(3, Values{9}, Values{9});
    pass.commit();
}

TEST_CASE("rows written in place count as put after mark_put") {
    Cache<PermutedV<float>> cache{{.layers = 2, .kv_heads = 1, .head_dim = 2}, limits};
    auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, 2}).value();
    for (int layer = 0; layer < 2; ++layer) {
        const auto [keys, values] = pass.in_place(layer);
        CHECK(keys.extent(0) == cache.cells());
        for (const Cell cell : pass.cells())
            for (int d = 0; d < 2; ++d) {
                keys(cell, 0, d) = static_cast<float>(10 * cell + d);
                values(cell, 0, d) = static_cast<float>(100 * cell + d);
            }
        CHECK(violation_of([&] { (void)pass.values(layer); })
              == "values: layer " + std::to_string(layer)
                     + " was not put in this pass, expected a put before it is read");
        pass.mark_put(layer);
        CHECK(pass.values(layer)(1, 0, 1) == 101);
        CHECK(pass.keys(layer)(1, 0, 1) == 11);
    }
    CHECK(violation_of([&] { (void)pass.in_place(2); }) == "in_place: layer 2, expected 0 to 1");
    CHECK(violation_of([&] { pass.mark_put(-1); }) == "mark_put: layer -1, expected 0 to 1");
    pass.commit();
    CHECK(cache.tokens(Sequence{0}) == 2);
}

TEST_CASE("an empty batch, a reserved pass and a dropped pass need no put") {
    Cache<> cache{{.layers = 3, .kv_heads = 1, .head_dim = 1}, limits};
    auto empty = cache.begin({}).value();
    (void)empty.get(2);
    empty.commit();
    auto reserved = cache.reserve(2);
    (void)reserved.get(2);
    reserved.commit();
    auto dropped = cache.begin(BatchBuilder{Sequence{0}, Position{0}}).value();
    dropped.drop();
    CHECK(cache.tokens(Sequence{0}) == 0);
}

TEST_CASE("rows can be spans of any length that fits; null and misaligned ones are violations") {
    Cache<StandardV<half>> cache{{.layers = 1, .kv_heads = 2, .head_dim = 2}, limits};
    auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, 2}).value();
    const std::vector<float> k{1, 2, 3, 4, 5, 6, 7, 8};
    const std::vector<half> v(8, half{9.0F});
    pass.put(0, std::span{k}, std::span{v.data(), 8});
    CHECK(static_cast<float>(pass.keys(0)(1, 0, 1)) == 6);
    CHECK(static_cast<float>(pass.values(0)(1, 1, 1)) == 9);
    std::vector<float> writable = k;
    pass.put(0, std::span{writable}, k);
    CHECK(static_cast<float>(pass.values(0)(1, 1, 1)) == 8);

    const float* const null = nullptr;
    CHECK(violation_of([&] {
              pass.put(0, std::span{k.data(), 4}, v);
          })
          == "put: the keys of layer 0 are 4 elements, expected 8 for [2 tokens, 2 heads, 2]");
    CHECK(violation_of([&] { pass.put(0, contiguous_view(null, 2, 2, 2), v); })
          == "put: the keys of layer 0 are a null pointer, expected rows [2 tokens, 2 heads, 2]");
    CHECK(violation_of([&] { pass.put(0, k, contiguous_view(null, 2, 2, 2)); })
          == "put: the values of layer 0 are a null pointer, expected rows [2 tokens, 2 heads, 2]");
    const auto* const odd = reinterpret_cast<const float*>(reinterpret_cast<const char*>(k.data()) + 1);
    CHECK(violation_of([&] {
              pass.put(0, std::span{odd, 8}, v);
          })
          == "put: the keys of layer 0 are not aligned, expected an address that is a multiple of 4");
}

} // namespace test_puts
