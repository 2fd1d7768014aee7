// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "backend/memory.hpp"
#include <cellar/base/plan.hpp>
#include <cellar/element/element.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <type_traits>
#include <vector>

namespace cellar_test {

/// What a backend may differ by from a pair turned in double and rounded once: a few roundings of 2^-24 of the pair's
/// length, and half a unit of the element's last place.
template <class E>
bool is_turned(E given, double exact, double length) {
    constexpr double epsilon = std::is_same_v<E, float> ? 0x1p-24 : std::is_same_v<E, cellar::half> ? 0x1p-11 : 0x1p-8;
    constexpr double smallest = std::is_same_v<E, cellar::half> ? 0x1p-25 : 0.0;
    const double error = std::abs(static_cast<double>(static_cast<float>(given)) - exact);
    return error <= 0x1p-22 * length + std::max(epsilon * std::abs(exact) * (1 + 0x1p-10), smallest);
}

/// Turns the expected image in double and compares; afterwards the image is what the memory holds.
template <class Shift, class Memory>
bool is_rotated_by(Memory& memory, const std::vector<double>& frequencies, const Shift& shift,
                   const std::vector<cellar::KeyRotation>& rotations) {
    const auto before = memory.image;
    memory.image = memory.read();
    auto untouched = before;
    bool right = true;
    for (const auto& turn : rotations) {
        for (cellar::Cell cell = turn.first; cell < turn.first + turn.count; ++cell) {
            for (int head = 0; head < memory.mapping.heads(); ++head) {
                for (int pair = 0; pair < std::ssize(frequencies); ++pair) {
                    const auto rotation = shift.rotation(0);
                    const auto i = static_cast<std::size_t>(memory.mapping(cell, head, rotation.first(pair)));
                    const auto j = static_cast<std::size_t>(memory.mapping(cell, head, rotation.second(pair)));
                    const double angle = turn.delta * frequencies[static_cast<std::size_t>(pair)];
                    const double a = static_cast<float>(before[i]);
                    const double b = static_cast<float>(before[j]);
                    const double length = std::hypot(a, b);
                    right = right && is_turned(memory.image[i], a * std::cos(angle) - b * std::sin(angle), length)
                            && is_turned(memory.image[j], a * std::sin(angle) + b * std::cos(angle), length);
                    untouched[i] = memory.image[i];
                    untouched[j] = memory.image[j];
                }
            }
        }
    }
    return right && same(untouched, memory.image);
}

} // namespace cellar_test
