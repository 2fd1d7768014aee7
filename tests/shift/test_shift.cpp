// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "shift/archetypes.hpp"
#include <cellar/shift/disabled_shift.hpp>
#include <cellar/shift/rope_shift.hpp>
#include <cellar/shift/shift.hpp>

#include <doctest/doctest.h>

#include <type_traits>
#include <vector>

namespace test_shift {

using cellar::RopeShift;
using cellar::ShiftPolicy;
using cellar_test::AddShift;

static_assert(ShiftPolicy<cellar::DisabledShift> && !cellar::DisabledShift::possible);
static_assert(ShiftPolicy<RopeShift<>> && RopeShift<>::possible);
static_assert(ShiftPolicy<RopeShift<cellar::Interleaved>>);
static_assert(ShiftPolicy<AddShift>);
static_assert(std::is_same_v<RopeShift<>, RopeShift<cellar::Neox>>);
static_assert(!std::is_default_constructible_v<RopeShift<>>, "it needs the model's frequencies");

namespace {

struct Undecided {};
static_assert(!ShiftPolicy<Undecided>);

struct WithoutFactor {
    static constexpr bool possible = true;
    AddShift::Rotation rotation(int) const { return {1}; }
};
static_assert(!ShiftPolicy<WithoutFactor>);

struct WithoutRotation {
    static constexpr bool possible = true;
    using Factor = float;
    Factor factor(int, int, std::int32_t) const { return 0; }
};
static_assert(!ShiftPolicy<WithoutRotation>);

struct HoldsMemory : AddShift {
    struct Rotation : AddShift::Rotation {
        std::vector<int> order;
    };
    Rotation rotation(int) const { return {}; }
};
static_assert(!ShiftPolicy<HoldsMemory>, "kernels hold a rotation by value");

} // namespace

TEST_CASE("min_dim is one more than the last element that is rotated") {
    CHECK(cellar::detail::min_dim(AddShift::Rotation{0}) == 0);
    CHECK(cellar::detail::min_dim(AddShift::Rotation{3}) == 6);
    const std::vector<double> three(3, 1.0);
    CHECK(cellar::detail::min_dim(RopeShift<cellar::Neox>{three}.rotation(0)) == 6);
    CHECK(cellar::detail::min_dim(RopeShift<cellar::Interleaved>{three, 4}.rotation(0)) == 10);
}

} // namespace test_shift
