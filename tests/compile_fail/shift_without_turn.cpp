// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// error: shift_policy
#include <cellar/shift/shift.hpp>

struct Stiff {
    static constexpr bool possible = true;
    struct Factor {};
    struct Rotation {
        int pairs() const { return 1; }
        int first(int) const { return 0; }
        int second(int) const { return 1; }
#ifdef CORRECTED
        static void turn(float&, float&, Factor) {}
#endif
    };
    Rotation rotation(int) const {
        return {};
    }
    Factor factor(int, int, std::int32_t) const {
        return {};
    }
};

template <cellar::shift_policy>
struct User {};

User<Stiff> user;
