// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Batches: lists of ids in several types, and the builder.
#include "../hybrid/failing_allocations.hpp"
#include "violations.hpp"
#include <cellar/base/batch.hpp>
#include <cellar/base/batch_builder.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

namespace test_batch_builder {

using namespace cellar;

namespace {

std::vector<std::int32_t> numbers_of(IdSpan<Position> ids) {
    std::vector<std::int32_t> numbers;
    for (const Position p : ids) numbers.push_back(p.value);
    return numbers;
}
std::vector<std::int32_t> positions_of(const Batch& batch) {
    return numbers_of(batch.positions);
}
std::vector<std::int32_t> sequences_of(const Batch& batch) {
    std::vector<std::int32_t> numbers;
    for (const Sequence s : batch.sequences) numbers.push_back(s.value);
    return numbers;
}
std::vector<std::int32_t> groups_of(const Batch& batch) {
    return {batch.groups.begin(), batch.groups.end()};
}

std::vector<std::int32_t> parents_of(const Batch& batch) {
    return {batch.parents.begin(), batch.parents.end()};
}

using List = std::vector<std::int32_t>;

} // namespace

TEST_CASE("a list of ids reads arrays of the id and of plain integers") {
    const std::vector<Position> ids{Position{4}, Position{5}, Position{9}};
    const std::vector<int> integers{4, 5, 9};
    const std::array<int, 3> array{4, 5, 9};
    const Position plain[] = {Position{4}, Position{5}, Position{9}};
    CHECK(numbers_of(ids) == List{4, 5, 9});
    CHECK(numbers_of(integers) == List{4, 5, 9});
    CHECK(numbers_of(array) == List{4, 5, 9});
    CHECK(numbers_of(plain) == List{4, 5, 9});
    CHECK(numbers_of(std::span{ids}.subspan(1)) == List{5, 9});
    CHECK(numbers_of({integers.data(), 2}) == List{4, 5});
    CHECK(numbers_of({}).empty());
    const IdSpan<Position> list = integers;
    CHECK(list.size() == 3);
    CHECK_FALSE(list.empty());
    CHECK(list[2] == Position{9});
    CHECK(*std::max_element(list.begin(), list.end()) == Position{9});
    CHECK(list.end() - list.begin() == 3);
    static_assert(!std::is_convertible_v<std::vector<Sequence>, IdSpan<Position>>);
    static_assert(!std::is_convertible_v<std::vector<long>, IdSpan<Position>>);
    static_assert(!std::is_convertible_v<std::vector<bool>, IdSpan<Position>>);
}

TEST_CASE("a batch is built from plain lists") {
    const std::vector<int> positions{7, 0};
    const std::vector<int> sequences{1, 2};
    const Batch batch{positions, sequences};
    CHECK(batch.tokens() == 2);
    CHECK(positions_of(batch) == List{7, 0});
    CHECK(sequences_of(batch) == List{1, 2});
    CHECK(batch.groups.empty());
}

TEST_CASE("a builder makes batches of several sequences") {
    const BatchBuilder one{Sequence{3}, Position{5}};
    CHECK(positions_of(one) == List{5});
    CHECK(sequences_of(one) == List{3});
    CHECK(groups_of(one).empty());

    BatchBuilder tokens;
    CHECK(tokens.size() == 0);
    tokens.add(Sequence{0}, Position{2}, 3).add(Sequence{1}, Position{0});
    CHECK(tokens.size() == 4);
    CHECK(positions_of(tokens) == List{2, 3, 4, 0});
    CHECK(sequences_of(tokens) == List{0, 0, 0, 1});
    tokens.add_at(Sequence{1}, Position{1}, 2);
    CHECK(positions_of(tokens) == List{2, 3, 4, 0, 1, 1});
    CHECK(groups_of(tokens).empty());
    tokens.clear();
    CHECK(tokens.size() == 0);
    CHECK(positions_of(tokens.add(Sequence{4}, Position{8})) == List{8});
    CHECK(BatchBuilder{Sequence{0}, Position{0}, 0}.size() == 0);
}

TEST_CASE("a builder that is short of memory has the tokens that it had before") {
    const auto fail = [](auto add) {
        for (const std::int32_t before : {0, 1, 2}) {
            BatchBuilder tokens;
            if (before > 0) tokens.add(Sequence{1}, Position{0}, before);
            const auto unchanged = [&] {
                CHECK(tokens.size() == before);
                CHECK(positions_of(tokens).size() == static_cast<std::size_t>(before));
                CHECK(sequences_of(tokens).size() == static_cast<std::size_t>(before));
                CHECK(groups_of(tokens).empty());
                CHECK(parents_of(tokens).empty());
            };
            CHECK(failures_of([&] { add(tokens); }, unchanged) >= 1);
            CHECK(tokens.size() == before + 5);
        }
    };
    fail([](BatchBuilder& tokens) { tokens.add(Sequence{0}, Position{0}, 5); });
    fail([](BatchBuilder& tokens) { tokens.add_at(Sequence{0}, Position{3}, 5); });
    fail([](BatchBuilder& tokens) { tokens.add_group(Sequence{0}, Position{0}, 5); });
    BatchBuilder tree{Sequence{1}, Position{0}, 2};
    const auto unchanged = [&] {
        CHECK(tree.size() == 2);
        CHECK(positions_of(tree) == List{0, 1});
        CHECK(parents_of(tree).empty());
    };
    CHECK(failures_of([&] { tree.add_child(0); }, unchanged) >= 1);
    CHECK(parents_of(tree).size() == 3);
}

TEST_CASE("each group of a builder has its own number, and other tokens have none") {
    BatchBuilder tokens;
    tokens.add(Sequence{0}, Position{0}, 2)
        .add_group(Sequence{0}, Position{2}, 3)
        .add(Sequence{1}, Position{0})
        .add_group(Sequence{0}, Position{5}, 2)
        .add(Sequence{0}, Position{7});
    const List groups = groups_of(tokens);
    REQUIRE(groups.size() == 9);
    CHECK(groups[0] == -1);
    CHECK(groups[1] == -1);
    CHECK(groups[2] >= 0);
    CHECK(groups[2] == groups[3]);
    CHECK(groups[3] == groups[4]);
    CHECK(groups[5] == -1);
    CHECK(groups[6] >= 0);
    CHECK(groups[6] != groups[2]);
    CHECK(groups[6] == groups[7]);
    CHECK(groups[8] == -1);
    for (const std::int32_t group : groups) CHECK(group < tokens.size());
    CHECK(groups_of(BatchBuilder{}.add_group(Sequence{0}, Position{0}, 1)) == List{0});
    tokens.clear();
    CHECK(groups_of(tokens).empty());
    CHECK(groups_of(tokens.add(Sequence{0}, Position{0})).empty());
}

TEST_CASE("a child comes after its parent, and other tokens of a tree after the token of their sequence before them") {
    BatchBuilder tokens{Sequence{1}, Position{7}, 2};
    tokens.add(Sequence{0}, Position{3});
    CHECK(parents_of(tokens).empty());
    tokens.add_child(1).add_child(2).add_child(1).add(Sequence{0}, Position{5}, 2);
    CHECK(sequences_of(tokens) == List{1, 1, 0, 1, 0, 1, 0, 0});
    CHECK(positions_of(tokens) == List{7, 8, 3, 9, 4, 9, 5, 6});
    CHECK(parents_of(tokens) == List{-1, 0, -1, 1, 2, 1, 4, 6});
    CHECK(violation_of([&] { tokens.add_child(8); }) == "BatchBuilder: a child of token 8, expected 0 to 7");
    CHECK(violation_of([&] { tokens.add_child(-1); }) == "BatchBuilder: a child of token -1, expected 0 to 7");
    CHECK(tokens.size() == 8);
    tokens.clear();
    CHECK(parents_of(tokens.add(Sequence{0}, Position{0})).empty());
}

TEST_CASE("fewer tokens than none, and positions that no token can have, are violations of a builder") {
    BatchBuilder tokens;
    tokens.add(Sequence{0}, Position{0}, 2);
    const Position last{INT32_MAX - 1};
    CHECK(violation_of([&] { tokens.add(Sequence{0}, Position{2}, -3); })
          == "BatchBuilder: -3 tokens, expected 0 or more");
    CHECK(violation_of([&] { tokens.add_group(Sequence{0}, last, 2); })
          == "BatchBuilder: 2 tokens from position 2147483646 on, expected all below 2147483647");
    CHECK(violation_of([&] {
              BatchBuilder{Sequence{0}, Position{INT32_MAX}, INT32_MAX};
          })
          == "BatchBuilder: 2147483647 tokens from position 2147483647 on, expected all below 2147483647");
    CHECK(tokens.size() == 2);
    CHECK(groups_of(tokens).empty());
    tokens.add(Sequence{0}, last).add_at(Sequence{0}, last, 2);
    CHECK(positions_of(tokens) == List{0, 1, last.value, last.value, last.value});
}

} // namespace test_batch_builder
