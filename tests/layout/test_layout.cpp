// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "layout/archetypes.hpp"
#include <cellar/layout/layout.hpp>

#include <concepts>

namespace {

using cellar::bf16;
using cellar::Blocked;
using cellar::half;
using cellar::LayoutPolicy;
using cellar::PermutedV;
using cellar::StandardV;

template <template <class, class> class Layout, class... Elements>
constexpr bool all_pairs_are_layouts() {
    const auto with_key = []<class Key>(Key*) { return (LayoutPolicy<Layout<Key, Elements>> && ...); };
    return (with_key(static_cast<Elements*>(nullptr)) && ...);
}
static_assert(all_pairs_are_layouts<StandardV, float, half, bf16>());
static_assert(all_pairs_are_layouts<PermutedV, float, half, bf16>());
static_assert(all_pairs_are_layouts<cellar_test::BackwardsLayout, float, half, bf16>());

static_assert(std::same_as<StandardV<half>, StandardV<half, half>>);
static_assert(std::same_as<StandardV<half, float>::key_format, half>);
static_assert(std::same_as<StandardV<half, float>::value_format, float>);
static_assert(std::same_as<PermutedV<half, float>::key_format, half>);
static_assert(std::same_as<PermutedV<half, float>::value_format, float>);
static_assert(std::same_as<StandardV<half>::key_mapping, cellar::CellsHeadsDims>);
static_assert(std::same_as<StandardV<half>::value_mapping, cellar::CellsHeadsDims>);
static_assert(std::same_as<PermutedV<half>::key_mapping, cellar::CellsHeadsDims>);
static_assert(std::same_as<PermutedV<half>::value_mapping, cellar::HeadsDimsCells>);

static_assert(LayoutPolicy<Blocked<half>> && LayoutPolicy<Blocked<float, 16, bf16>>);
static_assert(std::same_as<Blocked<half>, Blocked<half, 64, half>>);
static_assert(std::same_as<Blocked<half, 16, float>::key_format, half>);
static_assert(std::same_as<Blocked<half, 16, float>::value_format, float>);
static_assert(std::same_as<Blocked<half, 16>::key_mapping, cellar::BlocksHeadsCellsDims<16>>);
static_assert(std::same_as<Blocked<half, 16>::value_mapping, cellar::BlocksHeadsCellsDims<16>>);
static_assert(cellar::detail::layout_block_cells<Blocked<half, 16>> == 16);
static_assert(cellar::detail::layout_block_cells<PermutedV<half>> == 1);

static_assert(!LayoutPolicy<int>);
static_assert(!LayoutPolicy<cellar_test::BackwardsLayout<double>>);

struct WithoutValues {
    using key_format = float;
    using key_mapping = cellar::CellsHeadsDims;
};
static_assert(!LayoutPolicy<WithoutValues>);

struct MappedByInt : StandardV<float> {
    using value_mapping = int;
};
static_assert(!LayoutPolicy<MappedByInt>);

} // namespace
