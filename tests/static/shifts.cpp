// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cellar/shift/free_shift.hpp>
#include <cellar/shift/no_shift.hpp>
#include <cellar/shift/rope_shift.hpp>

#include <type_traits>

using namespace cellar;

static_assert(shift_policy<NoShift> && !NoShift::possible);
static_assert(shift_policy<RopeShift<>> && RopeShift<>::possible);
static_assert(shift_policy<FreeShift> && FreeShift::possible);
static_assert(turns_keys<RopeShift<>> && !turns_keys<FreeShift> && !turns_keys<NoShift>);
static_assert(shift_policy<RopeShift<Interleaved>>);
static_assert(std::is_same_v<RopeShift<>, RopeShift<Neox>>);
static_assert(!std::is_default_constructible_v<RopeShift<>>);

namespace {

// Adds the delta instead of turning, as a learned position embedding might.
struct Mine {
    static constexpr bool possible = true;
    using Factor = float;
    struct Rotation {
        int pairs() const { return 1; }
        int first(int) const { return 0; }
        int second(int) const { return 1; }
        static void turn(float& a, float& b, float delta) {
            a += delta;
            b += delta;
        }
    };
    Rotation rotation(int) const { return {}; }
    float factor(int, int, std::int32_t delta) const { return static_cast<float>(delta); }
};
struct FactorOfAnotherType : Mine {
    double factor(int, int, std::int32_t) const { return 0; }
};
struct RotationWithoutPairs : Mine {
    struct Rotation {
        static void turn(float&, float&, float) {}
    };
    Rotation rotation(int) const { return {}; }
};
struct TurnsBySayingSo : Mine {
    static constexpr bool turns = true;
};
struct TurnsWithoutFactor {
    static constexpr bool possible = true;
    static constexpr bool turns = true;
};
struct SaysNothing {};

} // namespace

static_assert(shift_policy<Mine>);
static_assert(shift_policy<TurnsBySayingSo> && turns_keys<TurnsBySayingSo>);
static_assert(!shift_policy<TurnsWithoutFactor>);
static_assert(!shift_policy<FactorOfAnotherType>);
static_assert(!shift_policy<RotationWithoutPairs>);
static_assert(!shift_policy<SaysNothing>);
static_assert(!shift_policy<int>);
