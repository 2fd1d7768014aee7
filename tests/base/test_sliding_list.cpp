// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cellar/base/sliding_list.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace test_sliding_list {

using cellar::detail::SlidingList;

TEST_CASE("a list that shrinks at both ends has what a vector has") {
    std::mt19937 random{1};
    const auto below = [&](std::int64_t n) { return static_cast<std::int64_t>(random() % static_cast<unsigned>(n)); };
    for (int trial = 0; trial < 300; ++trial) {
        CAPTURE(trial);
        SlidingList<int> list;
        std::vector<int> expected;
        for (int step = 0; step < 60; ++step) {
            if (below(3) != 0) {
                const std::int64_t at = below(list.size() + 1);
                const std::int64_t n = 1 + below(4);
                list.reserve(n);
                REQUIRE(list.has_room(n));
                list.open(at, n);
                std::fill_n(list.begin() + at, n, step);
                expected.insert(expected.begin() + at, static_cast<std::size_t>(n), step);
            } else {
                const std::int64_t from = below(list.size() + 1);
                const std::int64_t to = from + below(list.size() - from + 1);
                list.close(from, to);
                expected.erase(expected.begin() + from, expected.begin() + to);
            }
            REQUIRE(std::equal(list.begin(), list.end(), expected.begin(), expected.end()));
        }
        std::sort(list.begin(), list.end());
        const int bound = static_cast<int>(below(60));
        CHECK(list.first_not([&](int step) { return step < bound; })
              == std::lower_bound(list.begin(), list.end(), bound) - list.begin());
    }
}

TEST_CASE("a list that slides within its planned room never allocates, and seldom moves") {
    constexpr int planned = 40;
    SlidingList<int> list{planned};
    int moves = 0;
    for (int i = 0; i < 1000; ++i) {
        const int* const first = list.begin();
        if (list.size() == planned) list.close(0, 1);
        const bool slid = list.begin() != first;
        const int* const before = list.begin();
        CHECK_FALSE(list.reserve(1));
        moves += list.begin() != before ? 1 : 0;
        CHECK(slid == (i >= planned));
        list.push_back(i);
        CHECK(list.back() == i);
        CHECK(list[0] == std::max(0, i - planned + 1));
    }
    CHECK(moves > 0);
    CHECK(moves <= 1000 / planned);
}

TEST_CASE("a list reports that it allocated, and has then room for as much again") {
    SlidingList<int> list{2};
    for (int i = 0; i < 4; ++i) {
        CHECK_FALSE(list.reserve(1));
        list.push_back(i);
    }
    CHECK(list.reserve(1));
    CHECK(list.has_room(6));
    CHECK_FALSE(list.has_room(7));
    list.assign(list, 3);
    CHECK(list.size() == 3);
    CHECK(list.back() == 2);
}

} // namespace test_sliding_list
