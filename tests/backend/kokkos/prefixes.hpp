// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "backend/kokkos/passes.hpp"
#include <cellar/cellar.hpp>
#include <cellar/prefix/audit.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace cellar_test {

/// A prefix tree of a cache on a device and one of a cache on the host, which do the same. That of the host pages out
/// to the host.
template <class Backend, class Layout>
class PagedTrees {
    template <class B>
    using CacheOn = cellar::Cache<Layout, cellar::FullCausal, cellar::DisabledShift, B>;
    using Space = typename Backend::memory_space;

public:
    using List = std::vector<std::int32_t>;

    PagedTrees(cellar::PageTo to, std::int64_t paged_tokens)
        : host_tree{host, {.paged_bytes = paged_tokens * token_bytes}},
          device_tree{device, {.paged_bytes = paged_tokens * token_bytes, .page_to = to}} {}

    /// Sequence s computes what the trees do not have of these tokens, and stays until it is served again.
    void serve(int s, const List& tokens) {
        const std::int32_t attached = attach(host_tree, s, tokens);
        REQUIRE(attach(device_tree, s, tokens) == attached);
        const auto rest = std::span{tokens}.subspan(static_cast<std::size_t>(attached));
        const cellar::Tokens batch{{s}, {attached}, static_cast<std::int32_t>(rest.size())};
        const Kokkos::View<float***, Kokkos::LayoutRight, Kokkos::HostSpace> rows{"rows", rest.size(), heads, dim};
        for (std::size_t i = 0; i < rows.size(); ++i)
            rows.data()[i] = static_cast<float>(rest[i / (heads * dim)] + 3 * static_cast<int>(i % (heads * dim)));
        const Rows device_rows{"rows", rest.size(), heads, dim};
        Kokkos::deep_copy(device_rows, rows);
        in_use_.push_back(device_rows);
        auto a = host_tree.begin(batch).value();
        auto b = device_tree.begin(batch).value();
        for (int layer = 0; layer < layers; ++layer) {
            a.put(layer, rows, rows);
            b.put(layer, device_rows, device_rows);
        }
        a.commit();
        b.commit();
        REQUIRE(host_tree.insert({s}, tokens));
        REQUIRE(device_tree.insert({s}, tokens));
    }

    /// Compares all cells, used or not, and where the prefixes are.
    void compare() {
        device.fence();
        in_use_.clear();
        const auto a = host.reserve(1);
        const auto b = device.reserve(1);
        for (int layer = 0; layer < layers; ++layer) {
            CHECK(elements_of<Kokkos::HostSpace>(a.keys(layer)) == elements_of<Space>(b.keys(layer)));
            CHECK(elements_of<Kokkos::HostSpace>(a.values(layer)) == elements_of<Space>(b.values(layer)));
        }
        const cellar::PrefixStatistics x = host_tree.statistics();
        const cellar::PrefixStatistics y = device_tree.statistics();
        CHECK(x.paged_bytes == y.paged_bytes);
        CHECK(x.in_place_bytes == y.in_place_bytes);
        CHECK(device.statistics().paged_bytes == y.paged_bytes);
        CHECK(x.page_outs == y.page_outs);
        CHECK(x.page_ins == y.page_ins);
        CHECK(x.evictions == y.evictions);
        CHECK(audit(device_tree) == "");
    }

    static constexpr int layers = 2;
    static constexpr int heads = 2;
    static constexpr int dim = 16;
    static constexpr std::int64_t token_bytes = 2 * layers * heads * dim * sizeof(typename Layout::key_element);
    static constexpr cellar::CacheLimits limits{.sequences = 2, .cells = 64, .batch = 24};
    CacheOn<cellar::HostBackend> host{cellar::CacheShape{layers, heads, dim}, limits};
    CacheOn<Backend> device{cellar::CacheShape{layers, heads, dim}, limits};
    cellar::PrefixTree<CacheOn<cellar::HostBackend>> host_tree;
    cellar::PrefixTree<CacheOn<Backend>> device_tree;

private:
    using Rows = Kokkos::View<float***, Kokkos::LayoutRight, Space>;

    template <class Tree>
    static std::int32_t attach(Tree& tree, int s, const List& tokens) {
        REQUIRE(tree.memory().remove({s}, {0}, cellar::to_end));
        return tree.attach({s}, std::span{tokens}.first(tokens.size() - 1)).length;
    }

    std::vector<Rows> in_use_; ///< until a fence
};

/// Random lists that begin alike, in a cache that is always full. There is room for `paged_tokens` outside of it.
template <class Backend, class Layout>
void check_prefix_paging(cellar::PageTo to) {
    for (const int paged_tokens : {40, 2000}) {
        PagedTrees<Backend, Layout> trees{to, paged_tokens};
        std::mt19937 random{7};
        for (int i = 0; i < 60; ++i) {
            std::vector<std::int32_t> tokens(4 + random() % 20);
            for (std::size_t p = 0; p < tokens.size(); ++p)
                tokens[p] = static_cast<std::int32_t>(p + (p % 4 == 0 ? 100 * (random() % 2) : 0));
            trees.serve(i % 2, tokens);
            if (i % 6 == 5) trees.compare();
        }
        const cellar::PrefixStatistics statistics = trees.device_tree.statistics();
        CHECK(statistics.page_outs > 10);
        CHECK(statistics.page_ins > 5);
        CHECK((statistics.evictions > 0) == (paged_tokens == 40));
    }
}

} // namespace cellar_test
