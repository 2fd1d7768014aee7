// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// error: ShiftPolicy
#include <cellar/shift/shift.hpp>

struct WithoutRotate {
    static constexpr bool possible = true;
    struct Factor {};
    struct Rotation {
        int pairs() const { return 1; }
        int first(int) const { return 0; }
        int second(int) const { return 1; }
#ifdef CORRECTED
        static void rotate(float&, float&, Factor) {}
#endif
    };
    Rotation rotation(int) const {
        return {};
    }
    Factor factor(int, int, std::int32_t) const {
        return {};
    }
};

template <cellar::ShiftPolicy>
struct User {};

User<WithoutRotate> user;
