// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The parts of a prefix tree that know nothing of memories.
#include <cellar/prefix/detail/child_table.hpp>
#include <cellar/prefix/detail/common_prefix.hpp>
#include <cellar/prefix/detail/eviction_queue.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <utility>
#include <vector>

namespace test_parts {

using namespace cellar::detail;

TEST_CASE("the common prefix is found wherever the first difference is") {
    const std::vector<std::size_t> places{0,   1,   15,   16,   17,   126,  127,  128,
                                          129, 255, 4095, 4096, 4097, 4223, 4224, 9000};
    for (const std::size_t length : places) {
        std::vector<std::int32_t> a(length);
        std::mt19937 random{7};
        for (std::int32_t& token : a) token = static_cast<std::int32_t>(random());
        CHECK(common_prefix(a, a) == length);
        for (const std::size_t at : places) {
            if (at >= length) continue;
            std::vector<std::int32_t> b = a;
            b[at] ^= 1 << 24;
            CHECK(common_prefix(a, b) == at);
            b.resize(at);
            CHECK(common_prefix(a, b) == at);
            CHECK(common_prefix(b, a) == at);
        }
    }
}

TEST_CASE("the table of children agrees with a map") {
    ChildTable<int> table;
    CHECK(table.find(1, 1) == nullptr);
    std::map<std::pair<std::uint64_t, std::uint64_t>, int*> expected;
    std::vector<int> nodes(2000);
    std::mt19937 random{11};
    for (int step = 0; step < 20000; ++step) {
        const std::uint64_t parent = random() % 20;
        const std::uint64_t key = random() % 100 - 50;
        int& node = nodes[random() % nodes.size()];
        const auto found = expected.find({parent, key});
        if (found == expected.end()) {
            CHECK(table.find(parent, key) == nullptr);
            if (step / 4000 % 2 == 1 && step % 3 != 0) continue; // shrinks at times
            table.reserve(1);
            table.add(parent, key, node);
            expected[{parent, key}] = &node;
        } else if (random() % 4 == 0) {
            table.replace(parent, key, node);
            found->second = &node;
        } else {
            CHECK(table.find(parent, key) == found->second);
            table.remove(parent, key);
            expected.erase(found);
        }
        REQUIRE(table.size() == expected.size());
    }
    for (const auto& [at, node] : expected) CHECK(table.find(at.first, at.second) == node);
    std::size_t visited = 0;
    table.for_each([&](int&) { ++visited; });
    CHECK(visited == expected.size());
}

TEST_CASE("the queue yields the least useful node, and among equals the one that was used earlier") {
    EvictionQueue queue;
    CHECK(queue.least() == nullptr);
    std::vector<Evictable> nodes(300);
    queue.reserve(nodes.size());
    std::mt19937 random{5};
    const auto draw = [&](Evictable& node) {
        node.usefulness = static_cast<double>(random() % 20);
        node.last_used = random() % 1000;
    };
    for (Evictable& node : nodes) {
        node.queue = &queue;
        draw(node);
        EvictionQueue::release(node); // it has got a snapshot
    }
    for (int step = 0; step < 5000; ++step) {
        Evictable& node = nodes[random() % nodes.size()];
        if (random() % 2 == 0) {
            draw(node);
            queue.update(node);
        } else if (node.holds == 0 || random() % 2 == 0) {
            EvictionQueue::hold(node);
        } else {
            EvictionQueue::release(node);
        }
        REQUIRE(queue.contains(node) == (node.holds == 0));
        REQUIRE(queue.is_ordered());
        const auto rank = [](const Evictable& n) { return std::pair{n.usefulness, n.last_used}; };
        for (const Evictable& other : nodes)
            if (other.holds == 0) REQUIRE(rank(*queue.least()) <= rank(other));
    }
    CHECK(queue.size() > 0);
}

} // namespace test_parts
