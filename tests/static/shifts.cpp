// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cellar/shift/disabled_shift.hpp>
#include <cellar/shift/rope_shift.hpp>
#include <cellar/shift/rotate_on_read.hpp>
#include <cellar/shift/unrotated_shift.hpp>

#include <type_traits>
#include <vector>

using namespace cellar;

static_assert(ShiftPolicy<DisabledShift> && !DisabledShift::possible);
static_assert(ShiftPolicy<RopeShift<>> && RopeShift<>::possible);
static_assert(ShiftPolicy<UnrotatedShift> && UnrotatedShift::possible);
static_assert(rotates_keys<RopeShift<>> && !rotates_keys<UnrotatedShift> && !rotates_keys<DisabledShift>);
static_assert(ShiftPolicy<RopeShift<Interleaved>>);
static_assert(std::is_same_v<RopeShift<>, RopeShift<Neox>>);
static_assert(!std::is_default_constructible_v<RopeShift<>>);

static_assert(ShiftPolicy<RotateOnRead<>> && ShiftPolicy<RotateOnRead<RunTimePairing>>);
static_assert(RotateOnRead<>::possible && !rotates_keys<RotateOnRead<>> && rotates_on_read<RotateOnRead<Interleaved>>);
static_assert(!rotates_on_read<RopeShift<>> && !rotates_on_read<UnrotatedShift> && !rotates_on_read<DisabledShift>);
static_assert(!std::is_default_constructible_v<RotateOnRead<>>);
static_assert(std::is_convertible_v<RopeShift<>, RotateOnRead<>>);
static_assert(!std::is_constructible_v<RotateOnRead<>, RopeShift<Interleaved>>); // other pairs

using AtRunTime = RopeShift<RunTimePairing>;
using Frequencies = std::vector<double>;
static_assert(ShiftPolicy<AtRunTime> && std::is_trivially_copyable_v<AtRunTime::Rotation>);
static_assert(std::is_constructible_v<RopeShift<>, Frequencies> && !std::is_constructible_v<AtRunTime, Frequencies>);
static_assert(std::is_constructible_v<AtRunTime, Frequencies, RunTimePairing>);
static_assert(!std::is_constructible_v<RopeShift<>, Frequencies, Neox>);
static_assert(!std::is_constructible_v<AtRunTime, Frequencies, int> && !std::is_default_constructible_v<AtRunTime>);
static_assert(sizeof(RopeShift<>::Rotation) == 2 * sizeof(int)); // the pairing takes no space

namespace {

// Adds delta instead of rotating, as a shift of a learned position embedding might.
struct UserDefined {
    static constexpr bool possible = true;
    using Factor = float;
    struct Rotation {
        int pairs() const { return 1; }
        int first(int) const { return 0; }
        int second(int) const { return 1; }
        static void rotate(float& a, float& b, float delta) {
            a += delta;
            b += delta;
        }
    };
    Rotation rotation(int) const { return {}; }
    float factor(int, int, std::int32_t delta) const { return static_cast<float>(delta); }
};
struct FactorOfAnotherType : UserDefined {
    double factor(int, int, std::int32_t) const { return 0; }
};
struct RotationWithoutPairs : UserDefined {
    struct Rotation {
        static void rotate(float&, float&, float) {}
    };
    Rotation rotation(int) const { return {}; }
};
struct ExplicitlyRotates : UserDefined {
    static constexpr bool rotates = true;
};
struct RotatesWithoutFactor {
    static constexpr bool possible = true;
    static constexpr bool rotates = true;
};
struct OnReadWithoutAngles {
    static constexpr bool possible = true;
    static constexpr bool rotates = false;
    static constexpr bool rotates_on_read = true;
};
struct OnReadAndInPlace : RotateOnRead<> {
    static constexpr bool rotates = true;
};
struct Empty {};

} // namespace

static_assert(ShiftPolicy<UserDefined>);
static_assert(ShiftPolicy<ExplicitlyRotates> && rotates_keys<ExplicitlyRotates>);
static_assert(!ShiftPolicy<RotatesWithoutFactor>);
static_assert(!ShiftPolicy<FactorOfAnotherType>);
static_assert(!ShiftPolicy<RotationWithoutPairs>);
static_assert(!ShiftPolicy<OnReadWithoutAngles> && !ShiftPolicy<OnReadAndInPlace>);
static_assert(!ShiftPolicy<Empty>);
static_assert(!ShiftPolicy<int>);
