// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The parts of a prefix tree that know nothing of memories.
#include "reader.hpp"
#include <cellar/prefix/detail/child_table.hpp>
#include <cellar/prefix/detail/common_prefix.hpp>
#include <cellar/prefix/detail/edge_tokens.hpp>
#include <cellar/prefix/detail/eviction_queue.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <utility>
#include <vector>

namespace test_prefix_parts {

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

TEST_CASE("an edge that is divided and joined keeps its tokens, in at most twice the memory that they need") {
    std::mt19937 random{17};
    const prefix_test::List all = prefix_test::counted(0, 300);
    std::vector<EdgeTokens> edges;
    edges.emplace_back(all);
    for (int step = 0; step < 20'000; ++step) {
        const std::size_t k = random() % edges.size();
        if (random() % 2 == 0 && edges[k].size() > 1) {
            const std::size_t count = 1 + random() % (edges[k].size() - 1);
            EdgeTokens upper = edges[k].divide(edges[k].parts(count), count);
            CHECK(upper.size() == count);
            edges.insert(edges.begin() + static_cast<std::ptrdiff_t>(k), std::move(upper));
        } else if (k > 0) {
            edges[k].join(edges[k - 1]);
            edges.erase(edges.begin() + static_cast<std::ptrdiff_t>(k) - 1);
        }
        prefix_test::List found;
        for (const EdgeTokens& edge : edges) {
            found.insert(found.end(), edge.begin(), edge.end());
            REQUIRE(edge.size() > 0);
            REQUIRE(edge.front() == *edge.begin());
            REQUIRE(edge.room() <= 2 * edge.size());
        }
        REQUIRE(found == all);
    }
}

TEST_CASE("an edge that others are joined to, above and below, moves its tokens few times") {
    const prefix_test::List tokens = prefix_test::counted(0, 64);
    EdgeTokens edge{tokens};
    int moves = 0;
    for (int i = 0; i < 1000; ++i) {
        const std::size_t room = edge.room();
        EdgeTokens other{tokens};
        if (i % 3 == 0) {
            other.join(edge); // below it
            edge = std::move(other);
        } else {
            edge.join(other);
        }
        moves += edge.room() != room ? 1 : 0;
    }
    CHECK(edge.size() == 64'064);
    CHECK(moves < 40);
}

TEST_CASE("an edge is divided without a copy of its longer part") {
    const prefix_test::List tokens = prefix_test::counted(0, 100);
    EdgeTokens edge{tokens};
    const EdgeTokens::Parts low = edge.parts(10);
    CHECK(low.first.size() == 10);
    CHECK(low.rest.empty());
    const EdgeTokens::Parts high = edge.parts(90);
    CHECK(high.first.empty());
    CHECK(high.rest.size() == 10);
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

TEST_CASE("where the children of two tables lie differs, so nobody can choose keys that collide") {
    const auto order = [] {
        ChildTable<int> table;
        std::vector<int> nodes(1000);
        table.reserve(nodes.size());
        for (std::size_t i = 0; i < nodes.size(); ++i) table.add(1, i, nodes[i]);
        std::vector<std::ptrdiff_t> visited;
        table.for_each([&](const int& node) { visited.push_back(&node - nodes.data()); });
        CHECK(visited.size() == nodes.size());
        return visited;
    };
    CHECK(order() != order());
}

TEST_CASE("the queues yield the least useful node, and among equals the one that was used earlier") {
    EvictionQueues queues;
    CHECK(queues.least_in_place() == nullptr);
    std::vector<Evictable> nodes(300);
    queues.reserve(nodes.size());
    std::mt19937 random{5};
    const auto draw = [&](Evictable& node) {
        node.usefulness = static_cast<double>(random() % 20);
        node.last_used = random() % 1000;
    };
    Evictable outside;
    outside.is_offloaded = true;
    for (Evictable& node : nodes) {
        node.queues = &queues;
        draw(node);
        EvictionQueues::release(node); // it has got a snapshot
    }
    for (int step = 0; step < 5000; ++step) {
        Evictable& node = nodes[random() % nodes.size()];
        if (random() % 2 == 0) {
            draw(node);
            EvictionQueues::update(node);
        } else if (random() % 2 == 0) {
            node.offloaded_dependents == 0 ? EvictionQueues::hold_for(outside, node)
                                           : EvictionQueues::release_for(outside, node);
        } else {
            node.holds == 0 ? EvictionQueues::hold(node) : EvictionQueues::release(node);
        }
        REQUIRE(queues.in_place.contains(node) == (node.holds == 0 && node.offloaded_dependents == 0));
        REQUIRE(queues.needed.contains(node) == (node.holds == 0 && node.offloaded_dependents > 0));
        REQUIRE(queues.in_place.is_ordered());
        REQUIRE(queues.needed.is_ordered());
        const auto rank = [](const Evictable& n) { return std::pair{n.usefulness, n.last_used}; };
        for (const Evictable& other : nodes)
            if (other.holds == 0) REQUIRE(rank(*queues.least_in_place()) <= rank(other));
    }
    CHECK(queues.in_place.size() > 0);
    CHECK(queues.needed.size() > 0);
}

} // namespace test_prefix_parts
