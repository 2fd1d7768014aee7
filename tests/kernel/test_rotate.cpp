// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "backend/memory.hpp"
#include "shift/archetypes.hpp"
#include <cellar/kernel/kernel.hpp>
#include <cellar/kernel/rotate.hpp>
#include <cellar/kernel/rotate_packs.hpp>
#include <cellar/layout/layout.hpp>
#include <cellar/shift/rope_shift.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <random>
#include <vector>

namespace test_rotate {

using cellar::CellsHeadsDims;
using cellar::HeadsDimsCells;
using cellar_test::AddShift;

TEST_CASE_TEMPLATE("one pair of one head of one cell is rotated", Mapping, CellsHeadsDims, HeadsDimsCells) {
    const Mapping mapping{5, 2, 4};
    std::vector<cellar::half> memory(static_cast<std::size_t>(mapping.required_size()), cellar::half{1.0f});
    const std::vector<float> factors{10.0f, 20.0f};
    const cellar::detail::kernel::Rotate<Mapping, cellar::half, AddShift::Rotation, float> kernel{
        mapping, memory.data(), AddShift{2}.rotation(0), factors.data(), {2}};
    cellar::detail::kernel::apply(kernel, 1, 1, 1);
    for (int cell = 0; cell < 5; ++cell) {
        for (int head = 0; head < 2; ++head) {
            for (int d = 0; d < 4; ++d) {
                const bool rotated = cell == 3 && head == 1 && d >= 2;
                const float expected = !rotated ? 1.0f : d == 2 ? 21.0f : 41.0f;
                CHECK(static_cast<float>(memory[static_cast<std::size_t>(mapping(cell, head, d))]) == expected);
            }
        }
    }
}

TEST_CASE("a pair is computed in float and rounded once") {
    using Shift = cellar::RopeShift<>;
    const CellsHeadsDims mapping{1, 1, 2};
    // 1 - 2^-9 and 2^-9 sum up to 1 in float; rounding to bfloat16 in between would lose the small one.
    std::vector<cellar::bfloat16> memory{cellar::bfloat16{1.0f}, cellar::bfloat16{0x1p-9f}};
    const Shift::Factor factor{1.0f - 0x1p-9f, -1.0f};
    const cellar::detail::kernel::Rotate<CellsHeadsDims, cellar::bfloat16, Shift::Rotation, Shift::Factor> kernel{
        mapping, memory.data(), Shift::Rotation{0, 1}, &factor, {0}};
    cellar::detail::kernel::apply(kernel, 0, 0, 0);
    CHECK(static_cast<float>(memory[0]) == 1.0f);
    CHECK(static_cast<float>(memory[1]) == -1.0f);
}

namespace {

/// Two pairs of neighbours, then two pairs of elements apart: an order that packs do not have.
struct Mixed {
    static constexpr int pairs() { return 4; }
    static constexpr int first(int pair) { return pair < 2 ? 2 * pair : pair + 2; }
    static constexpr int second(int pair) { return pair < 2 ? 2 * pair + 1 : pair + 4; }
};

/// First and second elements lie side by side, but the second ones do not begin at a pack.
struct Unaligned {
    static constexpr int pairs() { return 4; }
    static constexpr int first(int pair) { return pair; }
    static constexpr int second(int pair) { return pair + 5; }
};

template <class Rotation>
cellar::detail::PairPlaces places_in_packs_of_4(const Rotation& rotation) {
    return cellar::detail::kernel::places_in_packs<4>(rotation);
}

template <class E, int N, class Pairing>
void check_packs(std::mt19937& random, int begin, int pairs, cellar::detail::PairPlaces places) {
    using Shift = cellar::RopeShift<Pairing>;
    using Rotation = typename Shift::Rotation;
    using Factor = typename Shift::Factor;
    using enum cellar::detail::PairPlaces;
    const Rotation rotation{begin, pairs};
    REQUIRE(cellar::detail::kernel::places_in_packs<N>(rotation) == places);
    const CellsHeadsDims mapping{5, 2, begin + 2 * pairs + 8};
    const std::vector<cellar::Cell> cells{4, 0, 2};
    const auto values = cellar_test::random_elements<float>(random, mapping.required_size());
    alignas(16) E memory[2048];
    alignas(16) Factor factors[64];
    for (int pair = 0; pair < pairs; ++pair) {
        const float angle = 0.1F * static_cast<float>(pair);
        factors[pair] = {std::cos(angle), std::sin(angle)};
    }
    for (std::size_t i = 0; i < values.size(); ++i) memory[i] = static_cast<E>(values[i]);
    std::vector<E> expected(memory, memory + values.size());
    const cellar::detail::kernel::Rotate<CellsHeadsDims, E, Rotation, Factor, cellar::detail::kernel::CellList> one{
        mapping, expected.data(), rotation, factors, {cells.data()}};
    const auto rotate_all = [](const auto& kernel, int count) {
        for (int i = 0; i < 3; ++i)
            for (int head = 0; head < 2; ++head)
                for (int k = 0; k < count; ++k) cellar::detail::kernel::apply(kernel, i, head, k);
    };
    rotate_all(one, pairs);
    const auto rotate_packs = [&](auto packs) { rotate_all(packs, pairs / N); };
    if (places == apart)
        rotate_packs(cellar::detail::kernel::RotatePacks<CellsHeadsDims, E, N, apart, Rotation, Factor>{
            mapping, memory, rotation, factors, {cells.data()}});
    if (places == neighbours)
        rotate_packs(cellar::detail::kernel::RotatePacks<CellsHeadsDims, E, N, neighbours, Rotation, Factor>{
            mapping, memory, rotation, factors, {cells.data()}});
    CHECK(cellar_test::same(std::vector<E>(memory, memory + values.size()), expected));
}

} // namespace

TEST_CASE("pairs are rotated in packs if they fill whole packs") {
    using enum cellar::detail::PairPlaces;
    using Neox = cellar::RopeShift<cellar::Neox>::Rotation;
    using Interleaved = cellar::RopeShift<cellar::Interleaved>::Rotation;
    CHECK(places_in_packs_of_4(Neox{0, 8}) == apart);
    CHECK(places_in_packs_of_4(Neox{4, 8}) == apart);
    CHECK(places_in_packs_of_4(Neox{2, 8}) == other);
    CHECK(places_in_packs_of_4(Neox{0, 6}) == other);
    CHECK(places_in_packs_of_4(Neox{0, 0}) == other);
    CHECK(places_in_packs_of_4(Interleaved{0, 4}) == neighbours);
    CHECK(places_in_packs_of_4(Interleaved{8, 4}) == neighbours);
    CHECK(places_in_packs_of_4(Interleaved{1, 4}) == other);
    CHECK(places_in_packs_of_4(Interleaved{0, 2}) == other);
    CHECK(places_in_packs_of_4(AddShift{8}.rotation(0)) == neighbours);
    CHECK(places_in_packs_of_4(Mixed{}) == other);
    CHECK(places_in_packs_of_4(Unaligned{}) == other);

    std::mt19937 random{5};
    for (const int begin : {0, 8, 16}) {
        check_packs<float, 4, cellar::Neox>(random, begin, 4, apart);
        check_packs<float, 4, cellar::Interleaved>(random, begin, 12, neighbours);
        check_packs<cellar::half, 8, cellar::Neox>(random, begin, 16, apart);
        check_packs<cellar::half, 8, cellar::Interleaved>(random, begin, 8, neighbours);
        check_packs<cellar::bfloat16, 8, cellar::Neox>(random, begin, 32, apart);
    }
}

} // namespace test_rotate
