// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "backend/memory.hpp"
#include <cellar/kernel/kernel.hpp>
#include <cellar/kernel/pack.hpp>
#include <cellar/kernel/write_mask.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <type_traits>
#include <vector>

namespace test_packs {

using namespace cellar;
using namespace cellar::detail;
using cellar_test::random_elements;
using cellar_test::same;
using kernel::Pack;

static_assert(std::is_trivially_copyable_v<Pack<half, 8>> && std::is_trivially_default_constructible_v<Pack<half, 8>>);
static_assert(sizeof(Pack<half, 8>) == 16 && alignof(Pack<half, 8>) == 16);
static_assert(sizeof(Pack<bfloat16, 4>) == 8 && alignof(Pack<bfloat16, 4>) == 8);
static_assert(kernel::pack_width<half, half> == 8 && kernel::pack_width<half, float> == 4);
static_assert(kernel::pack_width<float, half> == 4 && kernel::pack_width<bool, bool> == 16);

TEST_CASE("packs convert element by element") {
    std::mt19937 random{1};
    Pack<float, 4> floats;
    const auto values = random_elements<float>(random, 4);
    std::copy(values.begin(), values.end(), floats.elements);
    const auto halves = static_cast<Pack<half, 4>>(floats);
    for (int i = 0; i < 4; ++i) CHECK(halves.elements[i].bits == half{values[static_cast<std::size_t>(i)]}.bits);
}

TEST_CASE("rows form packs if all of them begin at multiples of a pack") {
    alignas(16) float memory[200];
    const auto rows = [&](std::int64_t first, std::int64_t dim, std::int64_t token, std::int64_t head) {
        return StridedView<float, 3>{memory + first, {2, 2, dim}, {token, head, 1}};
    };
    CHECK(kernel::is_in_packs<4>(rows(0, 8, 16, 8)));
    CHECK(kernel::is_in_packs<4>(rows(4, 4, 20, 12)));
    CHECK(!kernel::is_in_packs<4>(rows(1, 8, 16, 8)));
    CHECK(!kernel::is_in_packs<4>(rows(0, 6, 16, 8)));
    CHECK(!kernel::is_in_packs<4>(rows(0, 8, 18, 8)));
    CHECK(!kernel::is_in_packs<4>(rows(0, 8, 20, 10)));
    CHECK(!kernel::is_in_packs<4>(StridedView<float, 3>{memory, {2, 2, 8}, {32, 16, 2}}));
    const auto packs = kernel::in_packs<4>(rows(4, 8, 32, 12));
    CHECK(packs.extent(2) == 2);
    CHECK(packs.stride(0) == 8);
    CHECK(packs.stride(1) == 3);
    CHECK(packs(1, 1, 1).elements == memory + 4 + 32 + 12 + 4);
}

TEST_CASE("a mask written in packs equals one written by elements") {
    std::mt19937_64 random{3};
    std::vector<std::uint64_t> bits(3 * 2); // three rows of 128
    for (std::uint64_t& word : bits) word = random();
    std::vector<Pack<float, 1>> singles(3 * 96);
    std::vector<Pack<float, 4>> packs(3 * 24);
    const kernel::WriteMask<float, 1> one{bits.data(), 0.0F, -1.0F, singles.data(), 96};
    const kernel::WriteMask<float, 4> four{bits.data(), 0.0F, -1.0F, packs.data(), 96};
    for (std::int64_t token = 0; token < 3; ++token) {
        for (std::int64_t i = 0; i < 96; ++i) kernel::apply(one, token, 0, i);
        for (std::int64_t i = 0; i < 24; ++i) kernel::apply(four, token, 0, i);
    }
    for (std::size_t i = 0; i < singles.size(); ++i) {
        const bool visible = (bits[i / 96 * 2 + i % 96 / 64] >> (i % 96 % 64) & 1) != 0;
        CHECK(singles[i].elements[0] == (visible ? 0.0F : -1.0F));
        CHECK(packs[i / 4].elements[i % 4] == singles[i].elements[0]);
    }
}

} // namespace test_packs
