// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "backend/kokkos/tools.hpp"
#include <cellar/backend/kokkos/staged_list.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <random>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

using cellar_test::Listener;

namespace {

using Space = Kokkos::DefaultHostExecutionSpace;
using List = cellar::detail::StagedList<int, Space, Kokkos::HostSpace>;

/// Imitates a device that reads copied memory as late as it may, at a fence by cellar, and checks that the memory still
/// holds what it held when the copy was enqueued.
struct LateDevice {
    struct Copy {
        const std::byte* from;
        std::vector<std::byte> expected;
    };

    void copy(const void* from, std::size_t bytes) {
        const auto* const begin = static_cast<const std::byte*>(from);
        in_flight.push_back({begin, {begin, begin + bytes}});
        ++copies;
    }

    void read() {
        for (const Copy& copy : in_flight)
            all_unchanged = all_unchanged && std::equal(copy.expected.begin(), copy.expected.end(), copy.from);
        in_flight.clear();
        ++fences;
    }

    cellar_test::Events events() {
        return {.fence =
                    [this](std::string_view name) {
                        if (name.starts_with("cellar")) read();
                    },
                .copy = [this](const void*, const void* from, std::size_t bytes) { copy(from, bytes); }};
    }

    std::vector<Copy> in_flight;
    bool all_unchanged = true;
    int copies = 0;
    int fences = 0;
};

std::vector<int> numbers(int first, std::size_t n) {
    std::vector<int> list(n);
    for (std::size_t i = 0; i < n; ++i) list[i] = first + static_cast<int>(i);
    return list;
}

bool holds(const int* device, const std::vector<int>& list) {
    return std::equal(list.begin(), list.end(), device);
}

} // namespace

TEST_CASE("staged lists: staging memory does not change until the device has read it") {
    const Space space;
    LateDevice device;
    List list;
    std::mt19937 random{7};
    {
        const Listener listener{device.events()};
        for (int round = 0; round < 3000; ++round) {
            const auto sent = numbers(100 * round, std::uniform_int_distribution<std::size_t>{1, 600}(random));
            CHECK(holds(list.upload(space, sent), sent));
            if (round % 500 == 499) { // a fence by the program
                device.read();
                list.fenced();
            }
        }
        device.read();
    }
    CHECK(device.all_unchanged);
    CHECK(device.copies == 3000);
}

TEST_CASE("staged lists: a list that the device already has is not copied again, and its address stays the same") {
    const Space space;
    LateDevice device;
    List list;
    list.reserve(space, 100);
    const Listener listener{device.events()};
    const int* const address = list.upload(space, numbers(0, 50));
    CHECK(list.upload(space, numbers(0, 50)) == address);
    CHECK(list.upload(space, numbers(0, 20)) == address); // the beginning of the same list
    CHECK(device.copies == 1);
    list.fenced();
    CHECK(list.upload(space, numbers(0, 50)) == address);
    CHECK(device.copies == 1);
    CHECK(list.upload(space, numbers(1, 100)) == address);
    CHECK(list.upload(space, numbers(0, 50)) == address);
    CHECK(device.copies == 3);
    CHECK(device.fences == 0);
    List moved = std::move(list);
    CHECK(moved.upload(space, numbers(0, 50)) == address);
    CHECK(device.copies == 3);
}

TEST_CASE("staged lists: one fence for each block of staging memory, and none if the program fences") {
    const Space space;
    List list;
    list.reserve(space, 4096);
    LateDevice device;
    const Listener listener{device.events()};
    const int per_block = (2 * 4096 + (1 << 20) / static_cast<int>(sizeof(int))) / 4096;
    for (int round = 0; round < 10 * per_block; ++round) list.upload(space, numbers(round, 4096));
    CHECK(device.copies == 10 * per_block);
    CHECK(device.fences == 9);
    for (int round = 0; round < 10 * per_block; ++round) {
        list.fenced();
        list.upload(space, numbers(round, 4096));
    }
    CHECK(device.fences == 9);
}
