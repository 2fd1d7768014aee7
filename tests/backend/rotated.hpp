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

/// True if an element is close enough to the exact one. A backend may be off by a few roundings of 2^-24 of the pair's
/// length, and by half a unit in the element's last place.
template <class E>
bool is_rotated(E element, double exact, double length) {
    constexpr double epsilon = std::is_same_v<E, float> ? 0x1p-24 : std::is_same_v<E, cellar::half> ? 0x1p-11 : 0x1p-8;
    constexpr double smallest = std::is_same_v<E, cellar::half> ? 0x1p-25 : 0.0;
    const double error = std::abs(static_cast<double>(static_cast<float>(element)) - exact);
    return error <= 0x1p-22 * length + std::max(epsilon * std::abs(exact) * (1 + 0x1p-10), smallest);
}

/// Rotates the expected image in double and compares. Afterwards the image holds the elements of the memory.
template <class Shift, class Memory>
bool is_rotated_by(Memory& memory, const std::vector<double>& frequencies, const Shift& shift,
                   const std::vector<cellar::KeyRotation>& rotations) {
    const auto before = memory.image;
    memory.image = memory.read();
    auto untouched = before;
    bool close = true;
    for (const cellar::KeyRotation& run : rotations) {
        for (cellar::Cell cell = run.first; cell < run.first + run.count; ++cell) {
            for (int head = 0; head < memory.mapping.heads(); ++head) {
                for (int pair = 0; pair < std::ssize(frequencies); ++pair) {
                    const auto rotation = shift.rotation(0);
                    const auto i = static_cast<std::size_t>(memory.mapping(cell, head, rotation.first(pair)));
                    const auto j = static_cast<std::size_t>(memory.mapping(cell, head, rotation.second(pair)));
                    const double angle = run.delta * frequencies[static_cast<std::size_t>(pair)];
                    const double a = static_cast<float>(before[i]);
                    const double b = static_cast<float>(before[j]);
                    const double length = std::hypot(a, b);
                    close = close && is_rotated(memory.image[i], a * std::cos(angle) - b * std::sin(angle), length)
                            && is_rotated(memory.image[j], a * std::sin(angle) + b * std::cos(angle), length);
                    untouched[i] = memory.image[i];
                    untouched[j] = memory.image[j];
                }
            }
        }
    }
    return close && same(untouched, memory.image);
}

} // namespace cellar_test
