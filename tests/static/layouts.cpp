// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cellar/layout/layout.hpp>

#include <cstdint>
#include <type_traits>

using namespace cellar;

static_assert(element<float> && element<half> && element<bfloat16> && element<bf16>);
static_assert(!element<double> && !element<int> && !element<const float> && !element<float&>);

// Elements are what lies in memory and in files.
static_assert(sizeof(half) == 2 && std::is_trivially_copyable_v<half>);
static_assert(sizeof(bfloat16) == 2 && std::is_trivially_copyable_v<bfloat16>);
static_assert(!std::is_convertible_v<float, half> && !std::is_convertible_v<half, float>);
static_assert(!std::is_constructible_v<half, bfloat16>);

static_assert(mapping<CellsHeadsDims> && mapping<HeadsDimsCells>);
static_assert(!mapping<int>);
static_assert(std::is_trivially_copyable_v<CellsHeadsDims>);
static_assert(CellsHeadsDims{5, 2, 3}(1, 1, 1) == 6 + 3 + 1);
static_assert(HeadsDimsCells{5, 2, 3}(1, 1, 1) == 15 + 5 + 1);
static_assert(CellsHeadsDims{std::int64_t{1} << 31, 8, 128}.required_size() == (std::int64_t{1} << 41));

static_assert(layout_policy<StandardV<float>> && layout_policy<PermutedV<bf16>>);
static_assert(layout_policy<StandardV<half, float>>);
static_assert(!layout_policy<CellsHeadsDims> && !layout_policy<float>);

namespace {

struct Mine {
    using key_element = float;
    using value_element = half;
    using key_mapping = HeadsDimsCells;
    using value_mapping = HeadsDimsCells;
};
struct WrongElement : Mine {
    using value_element = double;
};
struct WrongMapping : Mine {
    using key_mapping = int;
};

} // namespace

static_assert(layout_policy<Mine>);
static_assert(!layout_policy<WrongElement>);
static_assert(!layout_policy<WrongMapping>);
