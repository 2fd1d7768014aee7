// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Products by a matrix unit beside plain loops in double: with registers that this file has in memory, on every
// machine, and with the processor's own, where it has them.
#include "attended.hpp"
#include "wide_vector.hpp"
#include <cellar/attention/detail/packed_products.hpp>
#include <cellar/attention/detail/row_source.hpp>
#include <cellar/element/bfloat16.hpp>
#include <cellar/element/half.hpp>
#include <cellar/layout/mapping.hpp>

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

#define CELLAR_KERNELS vectors_in_memory
#define CELLAR_VECTOR attention_test::WideVector
#define CELLAR_TARGET
#include <cellar/attention/detail/kernels_for_vector.hpp>

#define CELLAR_KERNELS kernels_in_memory
#define CELLAR_MATRICES attention_test::MatricesInMemory
#define CELLAR_VECTORS vectors_in_memory
#define CELLAR_TARGET
#include <cellar/attention/detail/kernels_for_matrix_unit.hpp>

namespace test_matrix_unit {

using namespace cellar::detail;
using attention_test::Floats;

namespace {

constexpr double u = 0x1p-24; // half a unit in the last place of 1
constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

// All kernels for rows, with vectors and registers in memory.
template <class E>
RowKernels<E> rows_in_memory() {
    using namespace vectors_in_memory;
    return {dot<E>,
            add_values<E>,
            pack_keys<E>,
            pack_values<E>,
            kernels_in_memory::split_keys<E>,
            kernels_in_memory::split_values<E>};
}
FloatKernels floats_in_memory() {
    using namespace vectors_in_memory;
    return {rows_in_memory<float>(), multiply, add_packed_values, softmax};
}
constexpr MatrixKernels unit_in_memory{kernels_in_memory::split_left, kernels_in_memory::multiply_split};

struct Unit {
    const char* name;
    MatrixKernels kernels;
    bool is_in_memory;
    template <class E>
    RowKernels<E> rows() const {
        return is_in_memory ? rows_in_memory<E>() : row_kernels<E>(Instructions::amx);
    }
};
std::vector<Unit> units() {
    std::vector<Unit> found{{"in memory", unit_in_memory, true}};
    if (!has_matrix_unit()) return found;
    const MatrixKernels kernels = matrix_kernels(Instructions::amx); // none if the system does not permit it
    if (kernels) found.push_back({"the processor's", kernels, false});
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

// Rows of a tile, with NaNs behind each.
template <class E>
struct RowsOf {
    std::vector<E> elements;
    std::int64_t stride;
    RowPointers<E> pointers;

    RowsOf(const Floats& floats, int rows) : elements(floats.size()), stride{std::ssize(floats) / rows} {
        std::transform(floats.begin(), floats.end(), elements.begin(), [](float x) { return E(x); });
        for (int r = 0; r < rows; ++r) pointers.rows[r] = elements.data() + r * stride;
        pointers.repeat_last(rows);
    }
    HeadRows<E> view() const { return {pointers.rows, 0}; }
    double at(std::int64_t row, std::int64_t i) const {
        return static_cast<double>(static_cast<float>(view()[row][i]));
    }
};

enum class Side { keys, values };

// left [rows, n] times the rows of `cells`, each of `dim` elements: transposed if they are keys.
template <class Left, class E>
void check_product(const Unit& unit, std::mt19937& random, Side side, int rows, int cells, std::int64_t dim) {
    CAPTURE(unit.name);
    CAPTURE(rows);
    CAPTURE(cells);
    CAPTURE(dim);
    const bool are_keys = side == Side::keys;
    const std::int64_t n = are_keys ? dim : cells;
    const std::int64_t wide = padded_dim(are_keys ? cells : dim);
    const std::int64_t stride = wide + 16;
    Floats left = numbers<Left>(random, rows, n, padded_dim(n));
    std::replace_if(
        left.begin(), left.end(), [](float x) { return std::isnan(x); }, 0.0F);
    const RowsOf<E> right{numbers<E>(random, cells, dim, dim + 5), cells};
    const Floats before = numbers<float>(random, rows + 1, wide, stride);
    Floats out = before;
    Ahead ahead;
    Bytes left_pieces{split_bytes(rows, n, pieces_of<Left>)}, right_pieces{split_bytes(wide, n, pieces_of<E>)};
    REQUIRE(unit.kernels.split_left(left.data(), padded_dim(n), rows, n, pieces_of<Left>, left_pieces.data()));
    const auto split = are_keys ? unit.rows<E>().split_keys : unit.rows<E>().split_values;
    REQUIRE(split(right.view(), cells, dim, right_pieces.data()));
    unit.kernels.multiply({left_pieces.data(), pieces_of<Left>}, {right_pieces.data(), pieces_of<E>},
                          {rows, n, wide, out.data(), stride, !are_keys}, ahead.rows());
    int wrong = 0;
    for (std::int64_t r = 0; r <= rows; ++r)
        for (std::int64_t c = 0; c < stride; ++c) {
            const auto at = static_cast<std::size_t>(r * stride + c);
            if (r == rows || c >= wide) { // nothing is written there
                if (std::memcmp(&out[at], &before[at], sizeof(float)) != 0) ++wrong;
                continue;
            }
            if (are_keys && c >= cells) continue; // anything
            double sum = are_keys ? 0 : static_cast<double>(before[at]);
            double magnitude = std::abs(sum);
            for (std::int64_t k = 0; k < n && (are_keys || c < dim); ++k) {
                const double product = static_cast<double>(left[static_cast<std::size_t>(r * padded_dim(n) + k)])
                                       * (are_keys ? right.at(c, k) : right.at(k, c));
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
                   Sides<float, cellar::half>, Sides<float, float>, Sides<cellar::half, cellar::half>,
                   Sides<cellar::half, cellar::bfloat16>, Sides<cellar::half, float>,
                   Sides<cellar::bfloat16, cellar::half>, Sides<cellar::bfloat16, cellar::bfloat16>,
                   Sides<cellar::bfloat16, float>) {
    using Left = typename S::Left;
    using Right = typename S::Right;
    std::mt19937 random{1};
    for (const Unit& unit : units())
        for (const int rows : {1, 15, 16, 17, 33, 64})
            for (const int cells : {1, 15, 16, 17, 32, 33, 64})
                for (const std::int64_t dim : {8, 16, 24, 32, 48, 72}) {
                    check_product<Left, Right>(unit, random, Side::keys, rows, cells, dim);
                    check_product<Left, Right>(unit, random, Side::values, rows, cells, dim);
                }
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

namespace {

// The product of two numbers, where matrices have nothing else.
template <class E>
float product_of(const Unit& unit, float l, float r) {
    Floats left(16);
    left[0] = l;
    const RowsOf<E> right{Floats(8, r), 1};
    Bytes left_pieces{split_bytes(1, 1, 3)}, right_pieces{split_bytes(16, 1, 3)};
    Floats out(16);
    REQUIRE(unit.kernels.split_left(left.data(), 16, 1, 1, 3, left_pieces.data()));
    REQUIRE(unit.rows<E>().split_values(right.view(), 1, 8, right_pieces.data()));
    unit.kernels.multiply({left_pieces.data(), 3}, {right_pieces.data(), pieces_of<E>},
                          {1, 1, 16, out.data(), 16, false}, {});
    return out[0];
}

} // namespace

TEST_CASE("a product of two numbers is as exact as one of floats") {
    // The pieces that are left out are as large as they can be, if the first ones are rounded, and if they were cut.
    const float pairs[][2] = {{1 + 0x1p-8F - 0x1p-17F - 0x1p-23F, 1 + 0x1p-8F - 0x1p-10F},
                              {1 + 0x1p-7F - 0x1p-23F, 1 + 0x1p-7F - 0x1p-10F}};
    for (const auto& [l, r] : pairs)
        for (const Unit& unit : units()) {
            CAPTURE(unit.name);
            CAPTURE(l);
            const auto error = [](float product, float a, float b) {
                return std::abs(static_cast<double>(product) - static_cast<double>(a) * static_cast<double>(b));
            };
            CHECK(error(product_of<cellar::half>(unit, l, r), l, r) <= 2 * u);
            CHECK(error(product_of<float>(unit, l, l), l, l) <= 2 * u);
        }
}

namespace {

// Whether the rows of 17 cells are split, and those of 17 keys.
template <class E>
bool are_split(const Unit& unit, const Floats& floats) {
    const RowsOf<E> rows{floats, 17};
    Bytes bytes{std::max(split_bytes(17, 48, 3), split_bytes(48, 17, 3))};
    const bool as_keys = unit.rows<E>().split_keys(rows.view(), 17, 48, bytes.data());
    const bool as_values = unit.rows<E>().split_values(rows.view(), 17, 48, bytes.data());
    CHECK(as_keys == as_values);
    return as_keys;
}

} // namespace

TEST_CASE("numbers that are too large are refused, wherever they are") {
    const auto of_bits = [](std::uint32_t bits) {
        float x = 0;
        std::memcpy(&x, &bits, 4);
        return x;
    };
    constexpr float most = 0x1.fep59F;
    for (const Unit& unit : units())
        for (const float bad : {infinity, -infinity, not_a_number, of_bits(0x7fffffff), of_bits(0xffffffff), 0x1p60F,
                                -0x1p60F, 0x1.fep127F})
            for (const std::size_t at : {0U, 15U, 16U, 47U, 48U, 770U, 815U}) {
                CAPTURE(unit.name);
                CAPTURE(bad);
                CAPTURE(at);
                Bytes bytes{split_bytes(17, 48, 3)};
                const Floats good(std::size_t{17} * 48, at % 2 == 0 ? most : -most);
                Floats floats = good;
                floats[at] = bad;
                for (const int pieces : {1, 2, 3}) {
                    CHECK(unit.kernels.split_left(good.data(), 48, 17, 48, pieces, bytes.data()));
                    CHECK_FALSE(unit.kernels.split_left(floats.data(), 48, 17, 48, pieces, bytes.data()));
                }
                CHECK(are_split<float>(unit, good));
                CHECK(are_split<cellar::bfloat16>(unit, good));
                CHECK(are_split<cellar::half>(unit, Floats(good.size(), 65504)));
                CHECK_FALSE(are_split<float>(unit, floats));
                CHECK_FALSE(are_split<cellar::bfloat16>(unit, floats));
                CHECK_FALSE(are_split<cellar::half>(unit, floats)); // there, they are infinite
            }
}

namespace {

// The products of one tile, with the unit in memory.
template <class Key, class Value>
struct PackedTile {
    using Keys = cellar::StoredRows<cellar::CellsHeadsDims, Key>;
    using Values = cellar::StoredRows<cellar::CellsHeadsDims, Value>;
    using Products = PackedProducts<float, Keys, Values>;
    static constexpr int cells = 40;
    int rows;
    int dim; // if not a multiple of 8, rows are converted to floats first
    std::int64_t wide = padded_dim(dim);
    std::mt19937 random{3};
    Floats q = numbers<float>(random, rows, dim, wide);
    Floats keys = numbers<Key>(random, cells, dim, dim);
    Floats weights = numbers<float>(random, rows, cells, tile_cells);
    Floats values = numbers<Value>(random, cells, dim, dim);
    Floats out = numbers<float>(random, rows, wide, wide);
    Floats scores = Floats(static_cast<std::size_t>(rows) * tile_cells, 0);
    bool are_added = false;

    PackedTile(int r, int d) : rows{r}, dim{d} {
        for (Floats* const floats : {&q, &weights}) // zeros behind the numbers
            std::replace_if(
                floats->begin(), floats->end(), [](float x) { return std::isnan(x); }, 0.0F);
    }

    // How many products of matrices the unit made.
    int run(const MatrixKernels& unit) {
        const RowsOf<Key> key_rows{keys, cells};
        const RowsOf<Value> value_rows{values, cells};
        const cellar::CellsHeadsDims mapping{cells, 1, dim};
        const Keys key_source{mapping, key_rows.elements.data(), dim};
        const Values value_source{mapping, value_rows.elements.data(), dim};
        const FloatKernels vectors = floats_in_memory();
        const typename TileRows<Keys>::Kernels key_kernels{rows_in_memory<Key>(), vectors.rows};
        const typename TileRows<Values>::Kernels value_kernels{rows_in_memory<Value>(), vectors.rows};
        Bytes room{2 * tile_cells * wide * std::int64_t{sizeof(float)}};
        ScratchArrays rooms{room.data()};
        TileRows<Keys> of_keys{key_source, key_kernels, rows, rooms};
        TileRows<Values> of_values{value_source, value_kernels, rows, rooms};
        Tile tile;
        for (int c = 0; c < cells; ++c) tile.cells[tile.count++] = cellar::Cell{c};

        ScratchArrays counted;
        Products{vectors, unit, of_keys, of_values, rows, counted};
        Bytes memory{counted.bytes()};
        ScratchArrays arrays{memory.data()};
        Products products{vectors, unit, of_keys, of_values, rows, arrays};
        const int before = attention_test::MatricesInMemory::products;
        products.start(q.data(), rows);
        of_keys.start(tile, nullptr);
        of_keys.find(tile, 0);
        products.multiply(cells, scores.data(), {});
        of_values.start(tile, nullptr);
        of_values.find(tile, 0);
        are_added = products.add_values(weights.data(), cells, false, out.data(), {});
        return attention_test::MatricesInMemory::products - before;
    }
};

// How many products the unit makes of such a tile. Vectors must give the same results.
template <class Key, class Value>
int products_of(const PackedTile<Key, Value>& tile) {
    PackedTile<Key, Value> with = tile;
    PackedTile<Key, Value> without = tile;
    const int products = with.run(unit_in_memory);
    CHECK(without.run({}) == 0);
    CHECK(with.are_added == without.are_added);
    const auto same = [](float a, float b) {
        if (!std::isfinite(b)) return std::isnan(a) == std::isnan(b) && (std::isnan(a) || a == b);
        return std::abs(a - b) <= 0.02F; // of sums of up to 3000
    };
    int wrong = 0;
    for (int r = 0; r < tile.rows; ++r)
        for (int c = 0; c < tile.cells; ++c) {
            const auto at = static_cast<std::size_t>(r * tile_cells + c);
            if (!same(with.scores[at], without.scores[at])) ++wrong;
        }
    CHECK(wrong == 0);
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
    // Of [rows, 48] and [48, 48], then of [rows, 40] and [40, 48]: pairs of 16 rows, pairs of 16 columns, steps of 32.
    const auto products = [](int pieces) { return rows / 32 * 2 * 2 * 4 * (pieces == 3 ? 6 : pieces == 2 ? 5 : 3); };
    const int for_scores = products(pieces_of<Key>);
    const int for_values = products(pieces_of<Value>);
    const Tile tile{rows, 48};
    CHECK(products_of(tile) == for_scores + for_values);
    CHECK(products_of(Tile{rows - 4, 48}) == 0);
    CHECK(products_of(Tile{rows + 4, 48}) > for_scores + for_values);
    CHECK(products_of(Tile{rows, 45}) == products(3) + products(3));
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
    CHECK(products_of(PackedTile<float, float>{128, 48}) == 0);
    CHECK(products_of(PackedTile<cellar::half, float>{128, 48}) == 0);
}

} // namespace test_matrix_unit
