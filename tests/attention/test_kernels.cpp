// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The kernels of attention beside plain loops: those that this processor has, and those of vectors of 16 lanes, which
// this file tests on every machine. All numbers are small integers, so sums are exact.
#include "attended.hpp"
#include "wide_vector.hpp"
#include <cellar/attention/detail/tile_kernels.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <type_traits>
#include <vector>

#define CELLAR_KERNELS wide_kernels
#define CELLAR_VECTOR attention_test::WideVector
#define CELLAR_TARGET
#include <cellar/attention/detail/kernels_for_vector.hpp>

namespace test_kernels {

using namespace cellar::detail;
using attention_test::Floats;

namespace {

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

template <class E>
struct Kernels {
    const char* name;
    RowKernels<E> rows;
    FloatKernels floats;
};

template <class E>
std::vector<Kernels<E>> all_kernels() {
    constexpr const char* names[] = {"baseline", "avx2", "avx512", "amx"};
    static_assert(std::size(names) == static_cast<std::size_t>(Instructions::amx) + 1);
    std::vector<Kernels<E>> found;
    for (const Instructions instructions : attention_test::instructions()) {
        const RowKernels<E> rows = row_kernels<E>(instructions);
        if (rows.dot != nullptr)
            found.push_back({names[static_cast<int>(instructions)], rows, float_kernels(instructions)});
    }
    if constexpr (std::is_same_v<E, float>) {
        using namespace wide_kernels;
        const RowKernels<float> rows{dot<float>, add_values<float>, pack_keys<float>, pack_values<float>};
        found.push_back({"16 lanes", rows, {rows, multiply, add_packed_values, softmax}});
    }
    return found;
}

// Small integers that look random: the same ones for the same `seed`.
float number(int i, int seed) {
    const std::uint32_t mixed = (static_cast<std::uint32_t>(i) * 2654435761U + static_cast<std::uint32_t>(seed)) >> 13;
    return static_cast<float>(mixed % 13) - 6;
}

// `count` rows of `dim` elements, in reverse order and with something that is not a number behind each.
template <class E>
struct Rows {
    static constexpr int gap = 3, offset = 1;
    std::vector<E> elements;
    RowPointers<E> pointers;
    int dim;
    int stride;

    Rows(int count, int n, int seed)
        : elements(static_cast<std::size_t>(offset + count * (n + gap)), E(not_a_number)), dim{n}, stride{n + gap} {
        for (int c = 0; c < count; ++c) {
            const int first = (count - 1 - c) * stride;
            for (int d = 0; d < n; ++d)
                elements[static_cast<std::size_t>(offset + first + d)] = E(number(c * n + d, seed));
            pointers.rows[c] = elements.data() + first;
        }
        pointers.repeat_last(count);
    }
    HeadRows<E> view() const { return {pointers.rows, offset}; }
    float at(int c, int d) const { return static_cast<float>(view()[c][d]); }
};

// [rows, stride], of which `n` elements of a row are numbers.
Floats numbers(int rows, int n, std::int64_t stride, int seed) {
    Floats floats(static_cast<std::size_t>(rows * stride));
    for (int r = 0; r < rows; ++r)
        for (int i = 0; i < n; ++i) floats[static_cast<std::size_t>(r * stride + i)] = number(r * n + i, seed);
    return floats;
}

constexpr int some_cells[] = {1, 2, 3, 7, 33, 62, 63, 64};
constexpr int some_dims[] = {8, 16, 24, 40, 64, 104};

// What a kernel gets and what it gives.
template <class E>
struct Job {
    int rows, dim, cells;
    std::int64_t wide = padded_dim(dim);
    Floats q = numbers(rows, dim, wide, 1);
    Rows<E> keys{cells, dim, 2}, values{cells, dim, 3};
    Floats weights = numbers(rows, cells, tile_cells, 4);
    Floats before = numbers(rows, dim, wide, 5);
    Floats scores = Floats(static_cast<std::size_t>(rows) * tile_cells, not_a_number);
    Floats out = before;

    void check() const {
        int wrong = 0;
        for (int r = 0; r < rows; ++r) {
            for (int c = 0; c < cells; ++c) {
                float sum = 0;
                for (int d = 0; d < dim; ++d) sum += at(q, r * wide + d) * keys.at(c, d);
                if (at(scores, r * tile_cells + c) != sum) ++wrong;
            }
            for (int d = 0; d < dim; ++d) {
                float sum = at(before, r * wide + d);
                for (int c = 0; c < cells; ++c) sum += at(weights, r * tile_cells + c) * values.at(c, d);
                if (at(out, r * wide + d) != sum) ++wrong;
            }
        }
        CHECK(wrong == 0);
    }
    static float at(const Floats& floats, std::int64_t i) { return floats[static_cast<std::size_t>(i)]; }
};

template <class E>
void check_rows_in_place(const Kernels<E>& kernels, int rows, int dim, int cells) {
    Job<E> job{rows, dim, cells};
    const HeadRows<E> keys = job.keys.view(), values = job.values.view();
    kernels.rows.dot(job.q.data(), job.wide, rows, dim, keys, keys, cells, job.scores.data());
    kernels.rows.add_values(job.weights.data(), rows, cells, values, values, dim, job.out.data(), job.wide);
    job.check();
}

template <class E>
void check_packed_rows(const Kernels<E>& kernels, int rows, int dim, int cells) {
    Job<E> job{rows, dim, cells};
    const Rows<float> ahead{cells, dim, 6};
    const std::byte* first[tile_cells];
    for (int c = 0; c < cells; ++c) first[c] = reinterpret_cast<const std::byte*>(ahead.view()[c]);
    const int bytes = dim * int{sizeof(float)};
    const FetchedRows next{first, bytes, cells * ((bytes + 63) / 64)};
    Floats packed(static_cast<std::size_t>(job.wide * tile_cells), not_a_number);
    kernels.rows.pack_keys(job.keys.view(), cells, dim, packed.data());
    kernels.floats.multiply(job.q.data(), job.wide, rows, job.wide, packed.data(), cells, job.scores.data(), next);
    CHECK(kernels.rows.pack_values(job.values.view(), cells, dim, packed.data()));
    kernels.floats.add_packed_values(job.weights.data(), rows, cells, packed.data(), job.wide, job.out.data(), job.wide,
                                     next);
    job.check();
}

} // namespace

TEST_CASE_TEMPLATE("kernels equal plain loops", E, float, cellar::half, cellar::bfloat16) {
    for (const Kernels<E>& kernels : all_kernels<E>()) {
        CAPTURE(kernels.name);
        for (const int dim : some_dims)
            for (const int cells : some_cells) {
                CAPTURE(dim);
                CAPTURE(cells);
                for (const int rows : {1, 2, 4, 12}) check_rows_in_place(kernels, rows, dim, cells);
                for (const int rows : {1, 2, 3, 5, 6, 7, 12, 16, 23}) check_packed_rows(kernels, rows, dim, cells);
            }
    }
}

TEST_CASE_TEMPLATE("packing says if a value is not finite", E, float, cellar::half, cellar::bfloat16) {
    for (const Kernels<E>& kernels : all_kernels<E>()) {
        CAPTURE(kernels.name);
        for (const int dim : some_dims)
            for (const float bad : {infinity, -infinity, not_a_number}) {
                Rows<E> values{5, dim, 3};
                Floats packed(static_cast<std::size_t>(padded_dim(dim)) * tile_cells);
                CHECK(kernels.rows.pack_values(values.view(), 5, dim, packed.data()));
                const int last = values.offset + dim - 1; // of the last row, which lies first
                values.elements[static_cast<std::size_t>(last)] = E(bad);
                CHECK_FALSE(kernels.rows.pack_values(values.view(), 5, dim, packed.data()));
            }
    }
}

TEST_CASE("the softmax of a tile equals its definition") {
    constexpr int rows = 5, dim = 16;
    const std::uint64_t visible[rows] = {~std::uint64_t{0}, 0x5555555555555555, 1, 0, ~std::uint64_t{2}};
    const float slopes[rows] = {0, 0.5F, -0.25F, 1, 0.125F};
    const cellar::HeadRule of_rows[rows] = {{slopes[0]}, {slopes[1]}, {slopes[2]}, {slopes[3]}, {slopes[4]}};
    std::int32_t positions[tile_cells], queries[rows];
    for (int c = 0; c < tile_cells; ++c) positions[c] = 3 * c;
    for (int r = 0; r < rows; ++r) queries[r] = 100 + r;
    for (const Kernels<float>& kernels : all_kernels<float>())
        for (const int cells : some_cells)
            for (const float cap : {0.0F, 4.0F})
                for (const bool biased : {false, true}) {
                    CAPTURE(kernels.name);
                    CAPTURE(cells);
                    CAPTURE(cap);
                    CAPTURE(biased);
                    const Floats scores = numbers(rows, tile_cells, tile_cells, 1);
                    Floats weights = scores;
                    Floats values = numbers(rows, dim, dim, 2);
                    const Floats values_before = values;
                    const float largest_before[rows] = {-infinity, 2, 30, 1, -3};
                    const float sums_before[rows] = {0, 1.5F, 2, 3, 4};
                    Floats largest(largest_before, largest_before + rows), sums(sums_before, sums_before + rows);
                    kernels.floats.softmax({.scores = weights.data(),
                                            .rows = rows,
                                            .cells = cells,
                                            .visible = visible,
                                            .rule = {0.5F, cap, biased ? slopes : nullptr, nullptr},
                                            .of_rows = of_rows,
                                            .positions = positions,
                                            .queries = queries,
                                            .largest = largest.data(),
                                            .sums = sums.data(),
                                            .values = values.data(),
                                            .value_stride = dim,
                                            .value_dim = dim});
                    for (int r = 0; r < rows; ++r) {
                        const auto row = static_cast<std::size_t>(r);
                        double expected[tile_cells];
                        double most = largest_before[r];
                        bool sees = false;
                        for (int c = 0; c < cells; ++c) {
                            double x =
                                0.5 * static_cast<double>(scores[row * tile_cells + static_cast<std::size_t>(c)]);
                            if (cap != 0) x = cap * std::tanh(x / cap);
                            if (biased) x -= slopes[r] * static_cast<double>(std::abs(positions[c] - queries[r]));
                            const bool seen = (visible[r] >> c & 1) != 0;
                            sees = sees || seen;
                            expected[c] = seen ? x : -infinity;
                            most = std::max(most, expected[c]);
                        }
                        double sum = sums_before[r] * (sees ? std::exp(largest_before[r] - most) : 1);
                        for (int c = 0; c < cells; ++c) {
                            const double weight = sees ? std::exp(expected[c] - most) : 0;
                            sum += weight;
                            const float found = weights[row * tile_cells + static_cast<std::size_t>(c)];
                            CHECK(found == doctest::Approx(weight).epsilon(1e-5));
                        }
                        CHECK(sums[row] == doctest::Approx(sum).epsilon(1e-5));
                        CHECK(largest[row] == doctest::Approx(sees ? most : largest_before[r]).epsilon(1e-5));
                        const double factor =
                            sees && largest_before[r] != -infinity ? std::exp(largest_before[r] - most) : 1;
                        for (std::size_t d = 0; d < dim; ++d)
                            CHECK(values[row * dim + d]
                                  == doctest::Approx(factor * values_before[row * dim + d]).epsilon(1e-5));
                    }
                }
}

} // namespace test_kernels
