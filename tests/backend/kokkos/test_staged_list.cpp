// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "backend/kokkos/late.hpp"
#include "backend/kokkos/tools.hpp"
#include <cellar/backend/kokkos/staged_list.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>
#include <random>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace test_staged_list {

using cellar::detail::StagingSpace;
using cellar_test::Late;
using cellar_test::LateSpace;
using cellar_test::Listener;

namespace {

// Staging memory is memory of `Late`, too, so that tests know what it holds.
using List = cellar::detail::StagedList<int, Late, LateSpace, LateSpace>;

std::vector<int> numbers(int first, std::size_t n) {
    std::vector<int> list(n);
    for (std::size_t i = 0; i < n; ++i) list[i] = first + static_cast<int>(i);
    return list;
}

/// Uploads a list and has a later kernel compare it.
void upload_and_compare(List& list, const Late& space, const std::vector<int>& sent, int& wrong) {
    const int* const device = list.upload(space, sent);
    const auto compare = [device, expected = sent, &wrong] {
        wrong += !std::equal(expected.begin(), expected.end(), device);
    };
    space.queue().add(compare, 0);
}

/// Counts copies and fences of the library.
struct Counter {
    Listener listener{{.fence = [this](std::string_view name) { fences += name.starts_with("cellar"); },
                       .copy = [this](auto...) { ++copies; }}};
    int copies = 0;
    int fences = 0;
};

struct Pinned {};

} // namespace

// Kokkos waits for copies between pinned memory and the host's, so lists of the host take the host's memory.
static_assert(std::is_same_v<StagingSpace<Kokkos::HostSpace, Pinned>, Kokkos::HostSpace>);
static_assert(std::is_same_v<StagingSpace<LateSpace, Pinned>, Pinned>);
static_assert(std::is_same_v<StagingSpace<Kokkos::HostSpace>, Kokkos::HostSpace>);
#ifdef KOKKOS_HAS_SHARED_HOST_PINNED_SPACE
static_assert(std::is_same_v<StagingSpace<LateSpace>, Kokkos::SharedHostPinnedSpace>);
#endif

TEST_CASE("staged lists: staging memory does not change until the device has read it") {
    const Late space;
    List list{4096}; // a few lists
    std::mt19937 random{7};
    int wrong = 0;
    Counter counter;
    for (int round = 0; round < 3000; ++round) {
        const auto sent = numbers(100 * round, std::uniform_int_distribution<std::size_t>{1, 600}(random));
        upload_and_compare(list, space, sent, wrong);
        if (round % 500 == 499) { // a fence by the program
            space.fence();
            list.fenced();
        }
    }
    space.fence();
    CHECK(wrong == 0);
    CHECK(counter.copies == 3000);
}

TEST_CASE("staged lists: a list that the device already has is not copied again, and its address stays the same") {
    const Late space;
    List list;
    list.reserve(space, 100);
    Counter counter;
    const int* const address = list.upload(space, numbers(0, 50));
    CHECK(list.upload(space, numbers(0, 50)) == address);
    CHECK(list.upload(space, numbers(0, 20)) == address); // the beginning of the same list
    CHECK(list.upload(space, {}) == address);
    CHECK(counter.copies == 1);
    list.fenced();
    CHECK(list.upload(space, numbers(0, 50)) == address);
    CHECK(counter.copies == 1);
    CHECK(list.upload(space, numbers(1, 100)) == address);
    CHECK(list.upload(space, numbers(0, 50)) == address);
    CHECK(counter.copies == 3);
    CHECK(counter.fences == 0);
    List moved = std::move(list);
    CHECK(moved.upload(space, numbers(0, 50)) == address);
    CHECK(counter.copies == 3);
    space.fence();
}

TEST_CASE("staged lists: a list that was moved does not overwrite what the device has not read") {
    const Late space;
    List list;
    list.reserve(space, 100);
    int wrong = 0;
    upload_and_compare(list, space, numbers(1, 50), wrong);
    List moved{std::move(list)};
    upload_and_compare(moved, space, numbers(2, 50), wrong);
    List assigned;
    assigned = std::move(moved);
    upload_and_compare(assigned, space, numbers(3, 50), wrong);
    space.fence();
    CHECK(wrong == 0);
}

TEST_CASE("staged lists: one fence for each block of staging memory, and none if the program fences") {
    const Late space;
    List list;
    list.reserve(space, 4096);
    Counter counter;
    const int per_block = (2 * 4096 + (1 << 20) / static_cast<int>(sizeof(int))) / 4096;
    for (int round = 0; round < 10 * per_block; ++round) list.upload(space, numbers(round, 4096));
    CHECK(counter.copies == 10 * per_block);
    CHECK(counter.fences == 9);
    for (int round = 0; round < 10 * per_block; ++round) {
        list.fenced();
        list.upload(space, numbers(round, 4096));
    }
    CHECK(counter.fences == 9);
    space.fence();
}

TEST_CASE("staged lists: a longer list waits for the work that reads the old memory") {
    const Late space;
    List list;
    int wrong = 0;
    {
        Counter counter;
        upload_and_compare(list, space, numbers(1, 50), wrong);
        CHECK(counter.fences == 0); // there was no memory before
        upload_and_compare(list, space, numbers(7, 500), wrong);
        CHECK(counter.fences == 1);
    }
    space.fence();
    CHECK(wrong == 0);
}

TEST_CASE("staged lists: a list that grew forgets what the old memory held") {
    const Late space;
    List list{sizeof(int)};
    LateSpace::fill = 0; // new memory holds the list that was uploaded before
    const std::vector<int> zeros(8);
    list.upload(space, zeros);
    list.reserve(space, 100);
    Counter counter;
    list.upload(space, zeros);
    CHECK(counter.copies == 1);
    for (int round = 0; round < 24; ++round) list.upload(space, numbers(round, 8)); // staging memory is empty
    CHECK(counter.fences == 0);
    LateSpace::fill = 0xa5;
    space.fence();
}

TEST_CASE("staged lists: a list without memory for more is as before") {
    const Late space;
    List list;
    int wrong = 0;
    upload_and_compare(list, space, numbers(3, 50), wrong);
    for (const int successes : {0, 1}) { // on the device, for staging
        LateSpace::left = successes;
        CHECK_THROWS_AS(list.upload(space, numbers(0, 5000)), std::bad_alloc);
        LateSpace::left = -1;
        Counter counter;
        upload_and_compare(list, space, numbers(3, 50), wrong);
        CHECK(counter.copies == 0);
    }
    space.fence();
    CHECK(wrong == 0);
}

TEST_CASE("staged lists: memory is allocated on the instance's device") {
    const Late space;
    const int before = LateSpace::without_instance;
    List list;
    list.reserve(space, 10);
    CHECK(LateSpace::without_instance == before);
    space.fence();
}

} // namespace test_staged_list
