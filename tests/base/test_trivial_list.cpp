// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cellar/base/trivial_list.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <new>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace test_trivial_list {

using cellar::detail::TrivialList;

namespace {

bool are_equal(const TrivialList<int>& list, const std::vector<int>& expected) {
    return std::equal(list.begin(), list.end(), expected.begin(), expected.end()) && list.size() == expected.size()
           && list.empty() == expected.empty() && list.capacity() >= list.size();
}

} // namespace

TEST_CASE("any operations on a list leave what they leave in a vector") {
    std::mt19937 random{1};
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % std::max<std::size_t>(n, 1)); };
    for (int trial = 0; trial < 300; ++trial) {
        TrivialList<int> list;
        std::vector<int> expected;
        for (int step = 0; step < 60; ++step) {
            const int value = static_cast<int>(random());
            const std::size_t at = below(expected.size() + 1);
            const auto offset = static_cast<std::ptrdiff_t>(at);
            switch (random() % 10) {
            case 0:
                list.resize(at * 2, value);
                expected.resize(at * 2, value);
                break;
            case 1:
                list.assign(at, value);
                expected.assign(at, value);
                break;
            case 2:
                list.insert(list.begin() + offset, value);
                expected.insert(expected.begin() + offset, value);
                break;
            case 3:
                list.erase(list.begin() + offset, list.end());
                expected.erase(expected.begin() + offset, expected.end());
                break;
            case 4:
                list.erase(list.begin(), list.begin() + offset);
                expected.erase(expected.begin(), expected.begin() + offset);
                break;
            case 5:
                if (expected.empty()) break;
                list.pop_back();
                expected.pop_back();
                break;
            case 6:
                list.reserve(3 * at);
                CHECK(list.capacity() >= 3 * at);
                break;
            case 7: {
                TrivialList<int> copy{list};
                copy.push_back(value);
                list = std::move(copy);
                expected.push_back(value);
                break;
            }
            case 8:
                list.append(expected.data(), expected.data() + offset);
                expected.insert(expected.end(), expected.begin(), expected.begin() + offset);
                break;
            default:
                list.push_back(value);
                expected.push_back(value);
            }
            REQUIRE(are_equal(list, expected));
        }
        if (!expected.empty()) CHECK((list.front() == expected.front() && list.back() == expected.back()));
    }
}

TEST_CASE("an element of a list can be added to it, also when the list grows") {
    TrivialList<int> list(1, 7);
    for (int i = 0; i < 40; ++i) list.push_back(list[0]);
    list.insert(list.begin(), list.back());
    list.resize(100, list[0]);
    CHECK(are_equal(list, std::vector<int>(100, 7)));
}

TEST_CASE("lists are copied, moved and swapped as values") {
    TrivialList<int> a(3, 1);
    TrivialList<int> b{a};
    b[0] = 2;
    a.swap(b);
    CHECK(are_equal(a, {2, 1, 1}));
    CHECK(are_equal(b, {1, 1, 1}));
    const TrivialList<int> c{std::move(a)};
    CHECK(c.size() == 3);
    b = c;
    CHECK(are_equal(b, {2, 1, 1}));
    const std::span<const int> all{c};
    CHECK(all.size() == 3);
}

TEST_CASE("a list that cannot grow is as it was") {
    TrivialList<int> list(2, 5);
    CHECK_THROWS_AS(list.reserve(static_cast<std::size_t>(-1) / 2), std::bad_alloc);
    CHECK(are_equal(list, {5, 5}));
}

} // namespace test_trivial_list
