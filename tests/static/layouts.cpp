// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "formats.hpp"
#include <cellar/format/affine.hpp>
#include <cellar/format/blocks.hpp>
#include <cellar/format/fp4.hpp>
#include <cellar/format/fp8.hpp>
#include <cellar/format/int8.hpp>
#include <cellar/format/rotated.hpp>
#include <cellar/layout/layout.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
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
    using key_format = float;
    using value_format = half;
    using key_mapping = HeadsDimsCells;
    using value_mapping = HeadsDimsCells;
};
struct WrongElement : UserDefined {
    using value_format = double;
};
struct WrongMapping : UserDefined {
    using key_mapping = int;
};

} // namespace

// Elements are formats of one value a unit.
static_assert(StorageFormat<float> && StorageFormat<half> && StorageFormat<bfloat16>);
static_assert(!StorageFormat<double> && !StorageFormat<int>);
static_assert(std::is_same_v<detail::unit_of<half>, half> && detail::values_per_unit<half> == 1);
static_assert(!detail::has_scale_plane<half> && !detail::has_scale_plane<cellar_test::BlocksOf32>);
static_assert(detail::has_scale_plane<cellar_test::ScaledHeads>);
static_assert(detail::scales_in<cellar_test::ScaledHeads>(64) == 1
              && detail::scales_in<cellar_test::ScaledHeads>(0) == 0);

namespace {

struct WithoutName : cellar_test::BlocksOf32 {
    void name() const {}
};
struct OfNoValues : cellar_test::BlocksOf32 {
    static constexpr int values_per_unit = 0;
};
struct UnitsThatOwn : cellar_test::BlocksOf32 {
    using unit = std::unique_ptr<int>;
};
// Has a second plane, which is not encoded.
struct ScalesForgotten : cellar_test::BlocksOf32 {
    using scale = float;
    static constexpr int values_per_scale = 32;
};
// Along the cells.
struct BlocksAcross : UserDefined {
    using key_format = cellar_test::BlocksOf32;
};

} // namespace

static_assert(!StorageFormat<WithoutName> && !StorageFormat<OfNoValues> && !StorageFormat<UnitsThatOwn>);
static_assert(!StorageFormat<ScalesForgotten>);
static_assert(LayoutPolicy<StandardV<cellar_test::BlocksOf32>> && LayoutPolicy<Blocked<cellar_test::ScaledHeads>>);
static_assert(!LayoutPolicy<BlocksAcross>);

static_assert(LayoutPolicy<UserDefined>);
static_assert(!LayoutPolicy<WrongElement>);
static_assert(!LayoutPolicy<WrongMapping>);

// The library's formats, with the bytes that other programs expect.
static_assert(
    StorageFormat<
        q8_0> && StorageFormat<q4_0> && StorageFormat<q4_1> && StorageFormat<q5_0> && StorageFormat<q5_1> && StorageFormat<iq4_nl> && StorageFormat<mxfp4> && StorageFormat<nvfp4> && StorageFormat<fp8_e4m3> && StorageFormat<fp8_e5m2> && StorageFormat<int8_per_head> && StorageFormat<Affine<3, 32>>);
static_assert(LayoutPolicy<StandardV<q8_0, Rotated<Hadamard<64>, q4_0>>> && LayoutPolicy<PermutedV<q8_0, half>>);
static_assert(detail::values_per_rotation<q8_0> == 1 && detail::values_per_rotation<half> == 1
              && detail::values_per_rotation<Rotated<Hadamard<64>, q8_0>> == 64);
static_assert(detail::has_scale_plane<
                  Rotated<Hadamard<2>, int8_per_head>> && !detail::has_scale_plane<Rotated<Hadamard<2>, half>>);

namespace {

template <int N>
concept has_transform = requires {
    typename Hadamard<N>;
};
template <int Bits, int Group>
concept has_groups = requires {
    typename Affine<Bits, Group>;
};
struct WithoutUndo {
    static constexpr int values_per_rotation = 2;
    static constexpr std::string_view name = "without_undo";
    static void rotate(std::span<float>) {}
};

} // namespace

static_assert(has_transform<2> && has_transform<1024>);
static_assert(!has_transform<1> && !has_transform<48> && !has_transform<2048>);
static_assert(has_groups<3, 32> && !has_groups<5, 32> && !has_groups<4, 16>);
static_assert(HeadRotation<Hadamard<8>> && !HeadRotation<WithoutUndo> && !HeadRotation<q8_0>);
