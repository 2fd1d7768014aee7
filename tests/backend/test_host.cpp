// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cellar/backend/host.hpp>

#define CELLAR_BACKEND cellar::HostBackend
#include "backend/ladder.hpp"

namespace test_host {

TEST_CASE_TEMPLATE("heads too long for the buffer on the stack are rotated, too", E, float, cellar::half) {
    std::mt19937 random{1};
    for (const int dim : {514, 1024, 1300}) {
        cellar_test::Memory<cellar::HostBackend, cellar::CellsHeadsDims, E> memory{4, 2, dim};
        memory.fill(random);
        const auto frequencies = cellar::rope_frequencies(dim);
        const cellar::RopeShift<> shift{frequencies};
        const std::vector<cellar::KeyRotation> rotations{{0, 1, 7}, {1, 1, 7}, {3, 1, -9}};
        memory.rotate(shift, 0, rotations);
        CHECK(cellar_test::is_rotated_by(memory, frequencies, shift, rotations));
    }
}

namespace {

/// Pairs the first elements with the second ones from the last on: only the first elements are side by side.
struct Mirrored {
    static constexpr int first(int pair, int) { return pair; }
    static constexpr int second(int pair, int pairs) { return 2 * pairs - 1 - pair; }
};

/// The first elements are those of `Interleaved`, and the second ones are not.
struct Crossed {
    static constexpr int first(int pair, int) { return 2 * pair; }
    static constexpr int second(int pair, int pairs) { return 2 * pairs - 1 - 2 * pair; }
};

} // namespace

TEST_CASE_TEMPLATE("pairs are rotated whose first elements are neighbours, but not their second ones", E, float,
                   cellar::half, cellar::bfloat16) {
    std::mt19937 random{2};
    for (const int dim : {16, 32, 128}) {
        cellar_test::Memory<cellar::HostBackend, cellar::CellsHeadsDims, E> memory{4, 2, dim};
        memory.fill(random);
        const auto frequencies = cellar::rope_frequencies(dim);
        const cellar::RopeShift<Mirrored> shift{frequencies};
        const std::vector<cellar::KeyRotation> rotations{{0, 2, 7}, {3, 1, -9}};
        memory.rotate(shift, 0, rotations);
        CHECK(cellar_test::is_rotated_by(memory, frequencies, shift, rotations));
    }
}

namespace {

// For any numbers of pairs, also behind elements that are not rotated, and where the next head begins right behind.
template <class E, class Pairing>
bool rotates_any_number_of_pairs() {
    std::mt19937 random{3};
    bool close = true;
    for (const int pairs : {1, 4, 8, 12, 16, 24, 64, 260, 272}) {
        for (const int begin : {0, 3, 16}) {
            cellar_test::Memory<cellar::HostBackend, cellar::CellsHeadsDims, E> memory{5, 2, begin + 2 * pairs};
            memory.fill(random);
            const auto frequencies = cellar::rope_frequencies(2 * pairs);
            const cellar::RopeShift<Pairing> shift{frequencies, begin};
            const std::vector<cellar::KeyRotation> rotations{{0, 1, 7}, {1, 2, 7}, {4, 1, -9}};
            memory.rotate(shift, 0, rotations);
            close = close && cellar_test::is_rotated_by(memory, frequencies, shift, rotations);
        }
    }
    return close;
}

// For any numbers of pairs, keys of random values.
template <class E, class Pairing>
void check_bits_at_run_time(cellar::RunTimePairing pairing) {
    for (const int pairs : {1, 4, 8, 12, 16, 24, 64, 260, 272}) {
        for (const int begin : {0, 3, 16}) {
            CAPTURE(pairs);
            CAPTURE(begin);
            const auto frequencies = cellar::rope_frequencies(2 * pairs);
            const auto rotated = [&](const auto& shift) {
                std::mt19937 random{4};
                cellar_test::Memory<cellar::HostBackend, cellar::CellsHeadsDims, E> memory{5, 2, begin + 2 * pairs};
                memory.fill(random);
                memory.rotate(shift, 0, {{0, 1, 7}, {1, 2, 7}, {4, 1, -9}});
                return memory.read();
            };
            const auto expected = rotated(cellar::RopeShift<Pairing>{frequencies, begin});
            CHECK(cellar_test::same(rotated(cellar::RopeShift<cellar::RunTimePairing>{frequencies, pairing, begin}),
                                    expected));
        }
    }
}

} // namespace

TEST_CASE_TEMPLATE("any number of pairs is rotated, apart, as neighbours, or crossed", E, float, cellar::half,
                   cellar::bfloat16) {
    CHECK(rotates_any_number_of_pairs<E, cellar::Neox>());
    CHECK(rotates_any_number_of_pairs<E, cellar::Interleaved>());
    CHECK(rotates_any_number_of_pairs<E, Crossed>());
}

TEST_CASE_TEMPLATE("a pairing that is known at run time rotates to the same bits", E, float, cellar::half,
                   cellar::bfloat16) {
    check_bits_at_run_time<E, cellar::Neox>({.interleaved = false});
    check_bits_at_run_time<E, cellar::Interleaved>({.interleaved = true});
}

} // namespace test_host
