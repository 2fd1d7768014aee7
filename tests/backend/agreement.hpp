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

// Compares a backend with the Eigen backend, with random sizes and random work.

namespace cellar_test {

using cellar::Cell;

inline int random_between(std::mt19937& random, int min, int max) {
    return std::uniform_int_distribution<int>{min, max}(random);
}

/// Cells in runs of random lengths, none twice, like cells that batches get.
inline std::vector<Cell> random_cells(std::mt19937& random, int cells) {
    std::vector<Cell> chosen;
    for (Cell cell = random_between(random, 0, 3); cell < cells; cell += random_between(random, 2, 8))
        for (int left = random_between(random, 1, 12); left > 0 && cell < cells; --left) chosen.push_back(cell++);
    if (random_between(random, 0, 2) == 0) std::shuffle(chosen.begin(), chosen.end(), random);
    return chosen;
}

inline std::vector<cellar::Move> random_move(std::mt19937& random, int cells) {
    const int count = random_between(random, 0, cells);
    return {{random_between(random, 0, cells - count), random_between(random, 0, cells - count), count}};
}

inline std::vector<cellar::KeyRotation> random_rotations(std::mt19937& random, int cells) {
    std::vector<cellar::KeyRotation> rotations;
    for (Cell first = random_between(random, 0, 5); first < cells;) {
        const int count = random_between(random, 1, std::min(10, cells - first));
        rotations.push_back({first, count, random_between(random, -5000, 5000)});
        first += count + random_between(random, 0, 5);
    }
    return rotations;
}

/// The rank of an element among all values of its type.
template <class E>
std::int64_t rank_of(E element) {
    using Bits = std::conditional_t<std::is_same_v<E, float>, std::int32_t, std::int16_t>;
    Bits bits;
    std::memcpy(&bits, &element, sizeof(E));
    return bits < 0 ? std::int64_t{std::numeric_limits<Bits>::min()} - bits : std::int64_t{bits};
}

/// True if rotated elements differ by at most one unit in the last place, or by no more than rounding in float changes
/// the longest pair.
template <class E>
bool agree(const std::vector<E>& a, const std::vector<E>& b, double longest_pair) {
    bool close = a.size() == b.size();
    for (std::size_t i = 0; close && i < a.size(); ++i) {
        const double difference = static_cast<double>(static_cast<float>(a[i])) - static_cast<float>(b[i]);
        close = std::abs(rank_of(a[i]) - rank_of(b[i])) <= 1 || std::abs(difference) <= 0x1p-22 * longest_pair;
    }
    return close;
}

template <class E>
double longest_pair(const std::vector<E>& elements) {
    double largest = 0.0;
    for (const E element : elements)
        largest = std::max(largest, std::abs(static_cast<double>(static_cast<float>(element))));
    return std::sqrt(2.0) * largest;
}

/// Does the same work with two backends and compares the results.
template <class Backend, class Mapping, class E>
struct Both {
    Memory<Backend, Mapping, E> tested;
    Memory<cellar::EigenBackend, Mapping, E> eigen;

    template <class T>
    void scatter_and_gather(std::mt19937& random) {
        const auto cells = random_cells(random, static_cast<int>(tested.mapping.cells()));
        const auto order = all_orders[random_between(random, 0, 4)];
        const auto rows = random_elements<T>(random, std::ssize(cells) * tested.row());
        tested.scatter(cells, rows, order);
        eigen.scatter(cells, rows, order);
        CHECK(same(tested.read(), eigen.read()));
        CHECK(same(tested.template gather<T>(cells, order), eigen.template gather<T>(cells, order)));
    }

    void move(std::mt19937& random) {
        const auto moves = random_move(random, static_cast<int>(tested.mapping.cells()));
        tested.move(moves);
        eigen.move(moves);
        CHECK(same(tested.read(), eigen.read()));
    }

    template <class Pairing>
    void rotate(std::mt19937& random) {
        const int pairs = random_between(random, 0, tested.mapping.dim() / 2);
        if (pairs == 0) return;
        const cellar::RopeShift<Pairing> shift{cellar::rope_frequencies(2 * pairs),
                                               random_between(random, 0, tested.mapping.dim() - 2 * pairs)};
        const auto rotations = random_rotations(random, static_cast<int>(tested.mapping.cells()));
        const double longest = longest_pair(tested.read());
        tested.rotate(shift, 0, rotations);
        eigen.rotate(shift, 0, rotations);
        const auto expected = eigen.read();
        CHECK(agree(tested.read(), expected, longest));
        tested.backend.copy_from_host(std::span<const E>{expected}, tested.buffer, 0);
    }
};

/// Backends split work among threads only if `max_cells` is large enough.
template <class Backend>
void check_agreement(int rounds, int max_cells) {
    std::mt19937 random{42};
    for_all_kinds([&]<class Kind>(Kind) {
        for (int round = 0; round < rounds; ++round) {
            const int cells = random_between(random, 1, max_cells);
            const int heads = random_between(random, 1, 5);
            const int dim = random_between(random, 1, 40);
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
