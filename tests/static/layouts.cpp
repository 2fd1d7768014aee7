// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cellar/layout/layout.hpp>

#include <cstdint>
#include <type_traits>

using namespace cellar;

static_assert(Element<float> && Element<half> && Element<bfloat16> && Element<bf16>);
static_assert(!Element<double> && !Element<int> && !Element<const float> && !Element<float&>);

// Elements can be copied to memory and files bytewise.
static_assert(sizeof(half) == 2 && std::is_trivially_copyable_v<half>);
static_assert(sizeof(bfloat16) == 2 && std::is_trivially_copyable_v<bfloat16>);
static_assert(!std::is_convertible_v<float, half> && !std::is_convertible_v<half, float>);
static_assert(!std::is_constructible_v<half, bfloat16>);

static_assert(LayoutMapping<CellsHeadsDims> && LayoutMapping<HeadsDimsCells>);
static_assert(!LayoutMapping<int>);
static_assert(std::is_trivially_copyable_v<CellsHeadsDims>);
static_assert(CellsHeadsDims{5, 2, 3}(1, 1, 1) == 6 + 3 + 1);
static_assert(HeadsDimsCells{5, 2, 3}(1, 1, 1) == 15 + 5 + 1);
static_assert(CellsHeadsDims{std::int64_t{1} << 31, 8, 128}.required_size() == (std::int64_t{1} << 41));

static_assert(LayoutPolicy<StandardV<float>> && LayoutPolicy<PermutedV<bf16>>);
static_assert(LayoutPolicy<StandardV<half, float>>);
static_assert(!LayoutPolicy<CellsHeadsDims> && !LayoutPolicy<float>);

namespace {

struct UserDefined {
    using key_element = float;
    using value_element = half;
    using key_mapping = HeadsDimsCells;
    using value_mapping = HeadsDimsCells;
};
struct WrongElement : UserDefined {
    using value_element = double;
};
struct WrongMapping : UserDefined {
    using key_mapping = int;
};

} // namespace

static_assert(LayoutPolicy<UserDefined>);
static_assert(!LayoutPolicy<WrongElement>);
static_assert(!LayoutPolicy<WrongMapping>);
