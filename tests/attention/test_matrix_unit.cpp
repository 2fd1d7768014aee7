// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Products by a matrix unit beside plain loops in double: with registers that this file has in memory, on every machine,
// and with the processor's own, where it has them.
#include "attended.hpp"
#include <cellar/attention/detail/packed_products.hpp>
#include <cellar/element/bfloat16.hpp>
#include <cellar/element/half.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

// How to pass wide vectors, which are never passed: all is inline. To the end of the file, where templates are made.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace attention_test {

/// The registers of a matrix unit, in memory.
struct MatricesInMemory {
    using Rows = std::array<std::array<std::byte, 64>, 16>;
    static inline thread_local std::array<Rows, 8> all{};
    static inline thread_local bool is_started = false;
    static inline int products = 0;

    // Two of them are a word, the first one in its lower half.
    static float of_bfloat16(const Rows& rows, int row, int i) {
        std::uint32_t bits = 0;
        std::memcpy(&bits, &rows[static_cast<std::size_t>(row)][static_cast<std::size_t>(4 * (i / 2))], 4);
        bits = i % 2 == 0 ? bits << 16 : bits & 0xffff0000U;
        float x = 0;
        std::memcpy(&x, &bits, 4);
        return x;
    }

    static void start() {
        CHECK_FALSE(is_started);
        is_started = true;
    }
    static void stop() {
        CHECK(is_started);
        is_started = false;
    }
    template <int Matrix>
    static void zero() {
        all[Matrix] = {};
    }
    template <int Matrix>
    static void load(const std::byte* from) {
        std::memcpy(&all[Matrix], from, sizeof(Rows));
    }
    template <int Matrix>
    static void store(float* to) {
        std::memcpy(to, &all[Matrix], sizeof(Rows));
    }
    // Rows of the right matrix are pairs of rows: column c has elements 2 c and 2 c + 1.
    template <int Sum, int Left, int Right>
    static void multiply() {
        ++products;
        std::array<float, 256> sums{};
        std::memcpy(sums.data(), &all[Sum], sizeof(sums));
        for (int r = 0; r < 16; ++r)
            for (int c = 0; c < 16; ++c) {
                float& sum = sums[static_cast<std::size_t>(16 * r + c)];
                for (int pair = 0; pair < 16; ++pair)
                    for (int i = 0; i < 2; ++i)
                        sum += of_bfloat16(all[Left], r, 2 * pair + i) * of_bfloat16(all[Right], pair, 2 * c + i);
            }
        std::memcpy(&all[Sum], sums.data(), sizeof(sums));
    }
};

} // namespace attention_test

#define CELLAR_KERNELS kernels_in_memory
#define CELLAR_MATRICES attention_test::MatricesInMemory
#define CELLAR_TARGET
#include <cellar/attention/detail/kernels_for_matrix_unit.hpp>
#undef CELLAR_KERNELS
#undef CELLAR_MATRICES
#undef CELLAR_TARGET

namespace test_matrix_unit {

using namespace cellar::detail;
using attention_test::Floats;

namespace {

constexpr double u = 0x1p-24; // half a unit in the last place of 1
constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

struct Unit {
    const char* name;
    MatrixKernels kernels;
};
std::vector<Unit> units() {
    using namespace kernels_in_memory;
    std::vector<Unit> found{{"in memory", {split_left, split_right, multiply_split}}};
    if (!has_matrix_unit()) return found;
    const MatrixKernels kernels = matrix_kernels(Instructions::amx); // none if the system does not permit it
    if (kernels) found.push_back({"the processor's", kernels});
    return found;
}

// Numbers of many magnitudes that E holds exactly. Behind the first `n` of each row: not a number.
template <class E>
Floats numbers(std::mt19937& random, std::int64_t rows, std::int64_t n, std::int64_t stride) {
    std::normal_distribution<float> normal;
    Floats floats(static_cast<std::size_t>(rows * stride), not_a_number);
    for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t i = 0; i < n; ++i)
            floats[static_cast<std::size_t>(r * stride + i)] =
                static_cast<float>(E(std::ldexp(normal(random), static_cast<int>(random() % 10) - 5)));
    return floats;
}

// Aligned memory that holds nothing but NaNs.
struct Bytes {
    explicit Bytes(std::int64_t n) : memory(static_cast<std::size_t>(n) + 64, std::byte{0xff}) {}
    std::byte* data() {
        const std::size_t over = reinterpret_cast<std::uintptr_t>(memory.data()) % 64;
        return memory.data() + (64 - over) % 64;
    }
    std::vector<std::byte> memory;
};

// Rows that are prefetched.
struct Ahead {
    Floats floats = Floats(std::size_t{40} * 32);
    std::array<const std::byte*, 40> first{};
    FetchedRows rows() {
        for (std::size_t i = 0; i < first.size(); ++i)
            first[i] = reinterpret_cast<const std::byte*>(floats.data() + 32 * i);
        return {first.data(), 128, 80};
    }
};

// One rounding for each product, and 8 for the pieces.
double allowed(std::int64_t n, double magnitude) {
    return (static_cast<double>(n) + 8) * magnitude * u;
}

template <class Left, class Right>
void check_product(const Unit& unit, std::mt19937& random, int rows, std::int64_t n, std::int64_t width, bool adds) {
    CAPTURE(unit.name);
    CAPTURE(rows);
    CAPTURE(n);
    CAPTURE(width);
    const std::int64_t stride = width + 16;
    const std::int64_t read = (n + 15) / 16 * 16;
    Floats left = numbers<Left>(random, rows, n, read);
    for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t i = n; i < read; ++i) left[static_cast<std::size_t>(r * read + i)] = 0;
    Floats right = numbers<Right>(random, n, width, width);
    right.resize(static_cast<std::size_t>((n + 5) * width), not_a_number);
    const Floats before = numbers<float>(random, rows + 1, width, stride);
    Floats out = before;
    Ahead ahead;
    Bytes left_pieces{split_bytes(rows, n, pieces_of<Left>)}, right_pieces{split_bytes(width, n, pieces_of<Right>)};
    REQUIRE(unit.kernels.split_left(left.data(), read, rows, n, pieces_of<Left>, left_pieces.data()));
    REQUIRE(unit.kernels.split_right(right.data(), n, width, pieces_of<Right>, right_pieces.data()));
    unit.kernels.multiply({left_pieces.data(), pieces_of<Left>}, {right_pieces.data(), pieces_of<Right>},
                          {rows, n, width, out.data(), stride, adds}, ahead.rows());
    int wrong = 0;
    for (std::int64_t r = 0; r <= rows; ++r)
        for (std::int64_t c = 0; c < stride; ++c) {
            const auto at = static_cast<std::size_t>(r * stride + c);
            if (r == rows || c >= width) { // nothing is written there
                if (std::memcmp(&out[at], &before[at], sizeof(float)) != 0) ++wrong;
                continue;
            }
            double sum = adds ? static_cast<double>(before[at]) : 0;
            double magnitude = std::abs(sum);
            for (std::int64_t k = 0; k < n; ++k) {
                const double product = static_cast<double>(left[static_cast<std::size_t>(r * read + k)])
                                       * static_cast<double>(right[static_cast<std::size_t>(k * width + c)]);
                sum += product;
                magnitude += std::abs(product);
            }
            if (!(std::abs(static_cast<double>(out[at]) - sum) <= allowed(n, magnitude))) ++wrong;
        }
    CHECK(wrong == 0);
}

template <class L, class R>
struct Sides {
    using Left = L;
    using Right = R;
};

} // namespace

TEST_CASE_TEMPLATE("products of pieces equal products in double", S, Sides<float, cellar::bfloat16>,
                   Sides<float, cellar::half>, Sides<cellar::half, cellar::half>, Sides<cellar::half, cellar::bfloat16>,
                   Sides<cellar::bfloat16, cellar::half>, Sides<cellar::bfloat16, cellar::bfloat16>) {
    std::mt19937 random{1};
    for (const Unit& unit : units())
        for (const int rows : {1, 15, 16, 17, 33, 64})
            for (const std::int64_t n : {1, 16, 17, 31, 32, 33, 64, 80})
                for (const std::int64_t width : {16, 32, 48, 64})
                    check_product<typename S::Left, typename S::Right>(unit, random, rows, n, width,
                                                                       (rows + n) % 2 == 0);
}

TEST_CASE("three pieces have all bits of a float") {
    std::mt19937 random{2};
    const Floats floats = numbers<float>(random, 1, 64, 64);
    for (const Unit& unit : units()) {
        Bytes pieces{split_bytes(1, 64, 3)};
        REQUIRE(unit.kernels.split_left(floats.data(), 64, 1, 64, 3, pieces.data()));
        for (int i = 0; i < 64; ++i) {
            float sum = 0;
            for (int piece = 2; piece >= 0; --piece) {
                attention_test::MatricesInMemory::Rows rows;
                std::memcpy(&rows, pieces.data() + (i / 32 * 3 + piece) * matrix_bytes, sizeof(rows));
                // Pairs are elements that are 16 apart.
                sum += attention_test::MatricesInMemory::of_bfloat16(rows, 0, 2 * (i % 16) + i % 32 / 16);
            }
            CHECK(sum == floats[static_cast<std::size_t>(i)]);
        }
    }
}

TEST_CASE("a product of two numbers is as exact as one of floats") {
    // The pieces that are left out are as large as they can be, if the first ones are rounded, and if they were cut.
    const float pairs[][2] = {{1 + 0x1p-8F - 0x1p-17F - 0x1p-23F, 1 + 0x1p-8F - 0x1p-10F},
                              {1 + 0x1p-7F - 0x1p-23F, 1 + 0x1p-7F - 0x1p-10F}};
    for (const auto& [l, r] : pairs)
        for (const Unit& unit : units()) {
            CAPTURE(unit.name);
            CAPTURE(l);
            const Floats left(16, l);
            const Floats right(32, r);
            Bytes left_pieces{split_bytes(1, 1, 3)}, right_pieces{split_bytes(32, 1, 2)};
            Floats out(32);
            REQUIRE(unit.kernels.split_left(left.data(), 16, 1, 1, 3, left_pieces.data()));
            REQUIRE(unit.kernels.split_right(right.data(), 1, 32, 2, right_pieces.data()));
            const Product product{1, 1, 32, out.data(), 32, false};
            unit.kernels.multiply({left_pieces.data(), 3}, {right_pieces.data(), 2}, product, {});
            for (const float x : out)
                CHECK(std::abs(static_cast<double>(x) - static_cast<double>(l) * static_cast<double>(r)) <= 2 * u);
        }
}

TEST_CASE("numbers that are too large are refused, wherever they are") {
    const auto of_bits = [](std::uint32_t bits) {
        float x = 0;
        std::memcpy(&x, &bits, 4);
        return x;
    };
    constexpr float most = 0x1.fffffep59F;
    for (const Unit& unit : units())
        for (const int pieces : {1, 2, 3})
            for (const float bad : {infinity, -infinity, not_a_number, of_bits(0x7fffffff), of_bits(0xffffffff),
                                    0x1p60F, -0x1p60F, std::numeric_limits<float>::max()})
                for (const std::size_t at : {0U, 15U, 16U, 47U, 48U, 770U, 815U}) {
                    CAPTURE(unit.name);
                    CAPTURE(bad);
                    CAPTURE(at);
                    Bytes bytes{std::max(split_bytes(17, 48, 3), split_bytes(48, 17, 3))};
                    Floats floats(std::size_t{17} * 48, at % 2 == 0 ? most : -most);
                    CHECK(unit.kernels.split_left(floats.data(), 48, 17, 48, pieces, bytes.data()));
                    if (pieces < 3) CHECK(unit.kernels.split_right(floats.data(), 17, 48, pieces, bytes.data()));
                    floats[at] = bad;
                    CHECK_FALSE(unit.kernels.split_left(floats.data(), 48, 17, 48, pieces, bytes.data()));
                    if (pieces < 3) CHECK_FALSE(unit.kernels.split_right(floats.data(), 17, 48, pieces, bytes.data()));
                }
}

namespace {

// Packed products of one tile, with the unit in memory.
template <class Key, class Value>
struct PackedTile {
    using Products = PackedProducts<float, Key, Value>;
    static constexpr int dim = 48, cells = 40;
    int rows;
    std::mt19937 random{3};
    Floats q = numbers<float>(random, rows, dim, dim);
    Floats keys = numbers<Key>(random, dim, tile_cells, tile_cells);
    Floats weights = numbers<float>(random, rows, cells, tile_cells);
    Floats values = numbers<Value>(random, cells, dim, dim);
    Floats scores = Floats(static_cast<std::size_t>(rows) * tile_cells);
    Floats out = numbers<float>(random, rows, dim, dim);
    FloatKernels vectors = float_kernels(Instructions::portable);

    explicit PackedTile(int n) : rows{n} {
        for (int r = 0; r < rows; ++r)
            for (int c = cells; c < 48; ++c) weights[static_cast<std::size_t>(r * tile_cells + c)] = 0;
    }

    // How many products of matrices the unit made.
    int run(const MatrixKernels& unit) {
        ScratchArrays counted;
        Products{vectors, unit, rows, dim, dim, counted};
        Bytes memory{counted.bytes()};
        ScratchArrays arrays{memory.data()};
        Products products{vectors, unit, rows, dim, dim, arrays};
        const int before = attention_test::MatricesInMemory::products;
        products.start(q.data(), rows);
        products.multiply(keys.data(), tile_cells, scores.data(), {});
        products.add_values(weights.data(), cells, values.data(), out.data(), {});
        return attention_test::MatricesInMemory::products - before;
    }
};

// How many products the unit makes of such a tile. Vectors must give the same results.
template <class Key, class Value>
int products_of(const PackedTile<Key, Value>& tile) {
    PackedTile<Key, Value> with = tile;
    PackedTile<Key, Value> without = tile;
    const int products = with.run(units().front().kernels);
    CHECK(without.run({}) == 0);
    const auto same = [](float a, float b) {
        if (!std::isfinite(b)) return std::isnan(a) == std::isnan(b) && (std::isnan(a) || a == b);
        return std::abs(a - b) <= 0.02F; // of sums of up to 3000
    };
    CHECK(std::equal(with.scores.begin(), with.scores.end(), without.scores.begin(), same));
    CHECK(std::equal(with.out.begin(), with.out.end(), without.out.begin(), same));
    return products;
}

} // namespace

TEST_CASE_TEMPLATE("packed products use the unit where it pays and no number is too large", S,
                   Sides<cellar::bfloat16, cellar::bfloat16>, Sides<cellar::half, cellar::half>,
                   Sides<cellar::bfloat16, cellar::half>, Sides<cellar::half, cellar::bfloat16>) {
    using Key = typename S::Left;
    using Value = typename S::Right;
    using Tile = PackedTile<Key, Value>;
    constexpr int rows = Tile::Products::least_rows;
    // Of [rows, 48] and [48, 64], then of [rows, 40] and [40, 48]: pairs of 16 rows, pairs of 16 columns, steps of 32.
    const auto products = [](int pieces) { return rows / 32 * 2 * 2 * 4 * (pieces == 1 ? 3 : 5); };
    const int for_scores = products(pieces_of<Key>);
    const int for_values = products(pieces_of<Value>);
    const Tile tile{rows};
    CHECK(products_of(tile) == for_scores + for_values);
    CHECK(products_of(Tile{rows - 4}) == 0);
    CHECK(products_of(Tile{rows + 4}) > for_scores + for_values);
    for (const float bad : {infinity, -infinity, not_a_number, 0x1p61F}) {
        CAPTURE(bad);
        const auto with = [&](Floats Tile::*where, std::size_t at) {
            Tile other = tile;
            (other.*where)[at] = bad;
            return products_of(other);
        };
        CHECK(with(&Tile::q, 100) == 0);
        CHECK(with(&Tile::keys, 100) == for_values);
        CHECK(with(&Tile::weights, 70) == for_scores);
        CHECK(with(&Tile::values, 100) == for_scores);
    }
}

TEST_CASE("floats have too many pieces for the unit") {
    CHECK(products_of(PackedTile<float, float>{128}) == 0);
    CHECK(products_of(PackedTile<cellar::half, float>{128}) == 0);
}

} // namespace test_matrix_unit
