// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "backend/memory.hpp"
#include <cellar/backend/eigen.hpp>
#include <cellar/shift/frequencies.hpp>
#include <cellar/shift/rope_shift.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

// A backend against the Eigen backend, at random sizes and in random orders of work.

namespace cellar_test {

using cellar::Cell;

inline int up_to(std::mt19937& random, int least, int most) {
    return std::uniform_int_distribution<int>{least, most}(random);
}

/// Cells in runs of random lengths, none twice: what placement hands out.
inline std::vector<Cell> random_cells(std::mt19937& random, int cells) {
    std::vector<Cell> chosen;
    for (Cell cell = up_to(random, 0, 3); cell < cells; cell += up_to(random, 2, 8))
        for (int left = up_to(random, 1, 12); left > 0 && cell < cells; --left) chosen.push_back(cell++);
    if (up_to(random, 0, 2) == 0) std::shuffle(chosen.begin(), chosen.end(), random);
    return chosen;
}

inline std::vector<cellar::Move> random_move(std::mt19937& random, int cells) {
    const int count = up_to(random, 0, cells);
    return {{up_to(random, 0, cells - count), up_to(random, 0, cells - count), count}};
}

inline std::vector<cellar::KeyRotation> random_turns(std::mt19937& random, int cells) {
    std::vector<cellar::KeyRotation> rotations;
    for (Cell first = up_to(random, 0, 5); first < cells;) {
        const int count = up_to(random, 1, std::min(10, cells - first));
        rotations.push_back({first, count, up_to(random, -5000, 5000)});
        first += count + up_to(random, 0, 5);
    }
    return rotations;
}

/// The place of an element among those of its type, in the order of their values.
template <class E>
std::int64_t place(E element) {
    using Bits = std::conditional_t<std::is_same_v<E, float>, std::int32_t, std::int16_t>;
    Bits bits;
    std::memcpy(&bits, &element, sizeof(E));
    return bits < 0 ? std::int64_t{std::numeric_limits<Bits>::min()} - bits : std::int64_t{bits};
}

/// Differences of turned elements: at most one unit in the last place, or less than rounding in float does to a pair.
template <class E>
bool agree(const std::vector<E>& a, const std::vector<E>& b, double longest_pair) {
    bool right = a.size() == b.size();
    for (std::size_t i = 0; right && i < a.size(); ++i) {
        const double difference = static_cast<double>(static_cast<float>(a[i])) - static_cast<float>(b[i]);
        right = std::abs(place(a[i]) - place(b[i])) <= 1 || std::abs(difference) <= 0x1p-22 * longest_pair;
    }
    return right;
}

template <class E>
double longest_pair(const std::vector<E>& elements) {
    double largest = 0.0;
    for (const E element : elements)
        largest = std::max(largest, std::abs(static_cast<double>(static_cast<float>(element))));
    return std::sqrt(2.0) * largest;
}

template <class Backend, class Mapping, class E>
struct Both {
    Memory<Backend, Mapping, E> own;
    Memory<cellar::EigenBackend, Mapping, E> eigen;

    template <class T>
    void scatter_and_gather(std::mt19937& random) {
        const auto cells = random_cells(random, static_cast<int>(own.mapping.cells()));
        const auto order = all_orders[up_to(random, 0, 4)];
        const auto rows = random_elements<T>(random, std::ssize(cells) * own.row());
        own.scatter(cells, rows, order);
        eigen.scatter(cells, rows, order);
        CHECK(same(own.read(), eigen.read()));
        CHECK(same(own.template gather<T>(cells, order), eigen.template gather<T>(cells, order)));
    }

    void move(std::mt19937& random) {
        const auto moves = random_move(random, static_cast<int>(own.mapping.cells()));
        own.move(moves);
        eigen.move(moves);
        CHECK(same(own.read(), eigen.read()));
    }

    template <class Pairing>
    void rotate(std::mt19937& random) {
        const int pairs = up_to(random, 0, own.mapping.dim() / 2);
        if (pairs == 0) return;
        const cellar::RopeShift<Pairing> shift{cellar::rope_frequencies(2 * pairs),
                                               up_to(random, 0, own.mapping.dim() - 2 * pairs)};
        const auto rotations = random_turns(random, static_cast<int>(own.mapping.cells()));
        const double longest = longest_pair(own.read());
        own.rotate(shift, 0, rotations);
        eigen.rotate(shift, 0, rotations);
        const auto turned = eigen.read();
        CHECK(agree(own.read(), turned, longest));
        own.backend.copy_from_host(std::span<const E>{turned}, own.buffer, 0);
    }
};

/// `most_cells` decides whether the work is worth splitting.
template <class Backend>
void check_agreement(int rounds, int most_cells) {
    std::mt19937 random{42};
    for_all_kinds([&]<class Kind>(Kind) {
        for (int round = 0; round < rounds; ++round) {
            const int cells = up_to(random, 1, most_cells);
            const int heads = up_to(random, 1, 5);
            const int dim = up_to(random, 1, 40);
            CAPTURE(cells);
            CAPTURE(heads);
            CAPTURE(dim);
            Both<Backend, typename Kind::Mapping, typename Kind::Element> both{{cells, heads, dim},
                                                                               {cells, heads, dim}};
            for (int step = 0; step < 3; ++step) {
                both.template scatter_and_gather<typename Kind::Element>(random);
                both.template scatter_and_gather<float>(random);
                both.move(random);
                both.template rotate<cellar::Neox>(random);
                both.template rotate<cellar::Interleaved>(random);
            }
        }
    });
}

} // namespace cellar_test
