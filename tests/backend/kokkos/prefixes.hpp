// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "backend/kokkos/twin_caches.hpp"
#include <cellar/cellar.hpp>
#include <cellar/prefix/audit.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace cellar_test {

/// Twins with a prefix tree each. That of the host offloads to the host.
template <class Backend, class Layout>
class OffloadedTrees : public TwinCaches<Backend, Layout> {
    using Twins = TwinCaches<Backend, Layout>;

public:
    using List = std::vector<std::int32_t>;

    OffloadedTrees(cellar::OffloadTo to, std::int64_t offloaded_tokens)
        : Twins{layers, {.sequences = 2, .cells = 64, .batch = 24}},
          host_tree{this->host, {.offloaded_bytes = offloaded_tokens * token_bytes}},
          device_tree{this->device, {.offloaded_bytes = offloaded_tokens * token_bytes, .offload_to = to}} {}

    /// Sequence s computes what the trees do not have of these tokens, and stays until it is served again.
    void serve(int s, const List& tokens) {
        const std::int32_t attached = attach(host_tree, s, tokens);
        REQUIRE(attach(device_tree, s, tokens) == attached);
        const auto rest = std::span{tokens}.subspan(static_cast<std::size_t>(attached));
        const cellar::BatchBuilder batch{cellar::Sequence{s}, cellar::Position{attached},
                                         static_cast<std::int32_t>(rest.size())};
        this->run(host_tree, device_tree, batch, [&](std::size_t i, int e) { return rest[i] + 3 * e; });
        REQUIRE(host_tree.insert(cellar::Sequence{s}, tokens));
        REQUIRE(device_tree.insert(cellar::Sequence{s}, tokens));
    }

    /// Compares all cells, used or not, and where the prefixes are.
    void compare() {
        Twins::compare();
        const cellar::PrefixStatistics x = host_tree.statistics();
        const cellar::PrefixStatistics y = device_tree.statistics();
        CHECK(x.offloaded_bytes == y.offloaded_bytes);
        CHECK(x.in_place_bytes == y.in_place_bytes);
        CHECK(this->device.statistics().offloaded_bytes == y.offloaded_bytes);
        CHECK(x.offloads == y.offloads);
        CHECK(x.reloads == y.reloads);
        CHECK(x.evictions == y.evictions);
        CHECK(audit(device_tree) == "");
    }

    cellar::PrefixTree<typename Twins::Host> host_tree;
    cellar::PrefixTree<typename Twins::Device> device_tree;

private:
    template <class Tree>
    static std::int32_t attach(Tree& tree, int s, const List& tokens) {
        REQUIRE(tree.memory().remove(cellar::Sequence{s}, cellar::Position{0}, cellar::to_end));
        return tree.attach(cellar::Sequence{s}, std::span{tokens}.first(tokens.size() - 1)).value().length;
    }

    static constexpr int layers = 2;
    static constexpr std::int64_t token_bytes =
        2 * layers * Twins::heads * Twins::dim * sizeof(typename Layout::key_format);
};

/// Random lists that begin alike, in a cache that is always full. There is room for `offloaded_tokens` outside of it.
template <class Backend, class Layout>
void check_prefix_offloading(cellar::OffloadTo to) {
    for (const int offloaded_tokens : {40, 2000}) {
        OffloadedTrees<Backend, Layout> trees{to, offloaded_tokens};
        std::mt19937 random{7};
        for (int i = 0; i < 60; ++i) {
            std::vector<std::int32_t> tokens(4 + random() % 20);
            for (std::size_t p = 0; p < tokens.size(); ++p)
                tokens[p] = static_cast<std::int32_t>(p + (p % 4 == 0 ? 100 * (random() % 2) : 0));
            trees.serve(i % 2, tokens);
            if (i % 6 == 5) trees.compare();
        }
        const cellar::PrefixStatistics statistics = trees.device_tree.statistics();
        CHECK(statistics.offloads > 10);
        CHECK(statistics.reloads > 5);
        CHECK((statistics.evictions > 0) == (offloaded_tokens == 40));
    }
}

} // namespace cellar_test
