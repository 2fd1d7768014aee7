// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cellar/cache/detail/mask.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

namespace test_mask {

using namespace cellar;
using namespace cellar::detail;

namespace {

struct Random {
    std::mt19937 engine;
    int operator()(int min, int max) { return std::uniform_int_distribution<int>{min, max}(engine); }
};

CellSet random_set(CellSetMemory& memory, Cell cells, Random& random) {
    CellSet set{memory, 0};
    for (int i = 0; i < cells / 8; ++i) set.add(random(0, cells - 9), random(1, 8));
    return set;
}

/// Writes rows of random histories and compares every element with the set. The element behind the row must not change.
template <class T>
void check_rows(T untouched, Cell cells = 500, int trials = 500) {
    Random random{std::mt19937{7}};
    CellSetMemory memory{cells, 1};
    const CellSet set = random_set(memory, cells, random);
    for (int trial = 0; trial < trials; ++trial) {
        const int first = random(0, cells - 1);
        const CellRange history{first, random(0, cells - first)};
        // Not a vector of T, because std::vector<bool> packs its elements.
        std::vector<std::uint8_t> bytes((static_cast<std::size_t>(history.count) + 1) * sizeof(T));
        T* const row = reinterpret_cast<T*>(bytes.data());
        row[history.count] = untouched;
        write_mask_row(set, history, row);
        for (std::int32_t i = 0; i < history.count; ++i) {
            const T expected = set.contains(history.first + i) ? MaskValues<T>::visible : MaskValues<T>::hidden;
            REQUIRE(std::memcmp(row + i, &expected, sizeof(T)) == 0);
        }
        REQUIRE(std::memcmp(row + history.count, &untouched, sizeof(T)) == 0);
    }
}

} // namespace

TEST_CASE("a row has the right value for each cell of the history, and nothing behind it is written") {
    check_rows<float>(5.0F);
    check_rows<half>(half{5.0F});
    check_rows<bool>(true);
}

TEST_CASE("rows of many thousands of cells are written, too") {
    check_rows<float>(5.0F, 20'000, 30);
    check_rows<half>(half{5.0F}, 20'000, 3);
}

TEST_CASE("a row of bits has the right bit for each cell of the history") {
    constexpr Cell cells = 500;
    Random random{std::mt19937{8}};
    CellSetMemory memory{cells, 1};
    const CellSet set = random_set(memory, cells, random);
    for (int trial = 0; trial < 500; ++trial) {
        const int first = random(0, cells - 1);
        const CellRange history{first, random(0, cells - first)};
        std::vector<std::uint64_t> row(static_cast<std::size_t>((history.count + 63) / 64) + 1, 42);
        write_mask_bits(set, history, row.data());
        for (std::int32_t i = 0; i < history.count; ++i)
            REQUIRE((row[static_cast<std::size_t>(i / 64)] >> (i % 64) & 1)
                    == (set.contains(history.first + i) ? 1 : 0));
        REQUIRE(row.back() == 42);
    }
}

} // namespace test_mask
