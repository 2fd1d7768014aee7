// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Kernels are applied to every index once, for any order of threads and any size of teams.
#include "backend/memory.hpp"
#include "kernel/each.hpp"
#include <cellar/kernel/divisor.hpp>
#include <cellar/kernel/gather.hpp>
#include <cellar/kernel/kernel.hpp>
#include <cellar/kernel/scatter.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <random>
#include <vector>

namespace test_each {

using namespace cellar;
using namespace cellar::detail;
using cellar_test::random_elements;
using cellar_test::same;

TEST_CASE("a divisor gives quotient and remainder") {
    std::mt19937 random{1};
    const auto check = [](std::int32_t n, std::int32_t d) {
        const auto [quotient, remainder] = kernel::Divisor{d}.divide(n);
        if (quotient == n / d && remainder == n % d) return;
        CAPTURE(n);
        CAPTURE(d);
        FAIL("wrong quotient or remainder");
    };
    for (std::int32_t d = 1; d <= 300; ++d) {
        CHECK(kernel::Divisor{d}.value() == d);
        for (std::int32_t n = 0; n <= 1000; ++n) check(n, d);
    }
    for (int trial = 0; trial < 100'000; ++trial) {
        const auto d = static_cast<std::int32_t>(1 + (random() >> 1) % (INT32_MAX >> (trial % 31)));
        const auto n = static_cast<std::int32_t>(random() >> 1);
        check(n, d);
        check(INT32_MAX, d);
        check(n / d * d, d);                  // the first number with its quotient
        check(std::max(n / d * d - 1, 0), d); // the last number with the quotient before
    }
    check(INT32_MAX, INT32_MAX);
    check(INT32_MAX - 1, INT32_MAX);
    check(INT32_MAX, 1);
}

namespace {

/// How often each index is read and written, and the number of errors: an index out of range, or a written value that
/// was not read there.
struct Counts {
    std::vector<int> reads;
    std::vector<int> writes;
    int errors = 0;
};

template <class T>
struct Count {
    using Value = T;

    Counts* counts;
    std::int64_t heads;
    std::int64_t dim;

    std::size_t at(std::int64_t i, std::int64_t head, std::int64_t d) const {
        const std::int64_t index = (i * heads + head) * dim + d;
        const bool is_valid =
            i >= 0 && head >= 0 && head < heads && d >= 0 && d < dim && index < std::ssize(counts->reads);
        counts->errors += !is_valid;
        return is_valid ? static_cast<std::size_t>(index) : 0;
    }
    T read(std::int64_t i, std::int64_t head, std::int64_t d) const {
        ++counts->reads[at(i, head, d)];
        return static_cast<T>(at(i, head, d) % 101);
    }
    void write(std::int64_t i, std::int64_t head, std::int64_t d, const T& value) const {
        counts->errors += value != static_cast<T>(at(i, head, d) % 101);
        ++counts->writes[at(i, head, d)];
    }
};

/// Checks that `run` applies a kernel to each index of cells [first, first + cells) once, and to no others.
template <class T, class Run>
void check_indices(int first, int cells, int heads, int dim, Run run) {
    const auto row = static_cast<std::size_t>(heads) * static_cast<std::size_t>(dim);
    const std::size_t size = static_cast<std::size_t>(first + cells) * row;
    Counts counts{std::vector<int>(size), std::vector<int>(size)};
    run(Count<T>{&counts, heads, dim});
    std::vector<int> expected(size, 1);
    std::fill_n(expected.begin(), static_cast<std::size_t>(first) * row, 0);
    CHECK(counts.errors == 0);
    CHECK(counts.reads == expected);
    CHECK(counts.writes == expected);
}

template <class T, bool variant>
void check_each(int cells, int heads, int dim) {
    constexpr int first = 2;
    check_indices<T>(first, cells, heads, dim, [&](const auto& kernel) {
        const kernel::EachElement<Count<T>, variant> each{kernel, first, cells, heads, dim};
        for (std::int32_t i = each.size(); i-- > 0;) each(i);
    });
    for (const int size : {1, 3, 128, 1024})
        check_indices<T>(first, cells, heads, dim, [&](const auto& kernel) {
            cellar_test::Tiles<Count<T>, variant>{kernel, first, cells, heads, dim}.run(size, [](int) {});
        });
}

template <class T>
void check_each_index_once() {
    for (const int cells : {1, 2, 7, 8, 31, 32, 33, 70}) {
        for (const int heads : {1, 3}) {
            for (const int dim : {1, 5, 8, 32, 33, 80}) {
                CAPTURE(cells);
                CAPTURE(heads);
                CAPTURE(dim);
                check_each<T, false>(cells, heads, dim);
                check_each<T, true>(cells, heads, dim);
            }
        }
    }
}

} // namespace

TEST_CASE("each index is read once and written once") {
    check_each_index_once<std::uint8_t>();
    check_each_index_once<float>();
    check_each_index_once<double>();
}

// As in a team of threads, all of a tile is read before any of it is written.
TEST_CASE("scatter and gather by tiles equal those by elements") {
    std::mt19937 random{2};
    for (const int tokens : {1, 31, 32, 33, 70}) {
        for (const int dim : {1, 31, 32, 33, 80}) {
            CAPTURE(tokens);
            CAPTURE(dim);
            const HeadsDimsCells mapping{2 * tokens, 3, dim};
            auto cells = cellar_test::first_cells(2 * tokens);
            std::shuffle(cells.begin(), cells.end(), random);
            const auto rows = random_elements<float>(random, std::int64_t{tokens} * 3 * dim);
            const auto view = contiguous_view(rows.data(), tokens, 3, dim);
            std::vector<half> expected(static_cast<std::size_t>(mapping.required_size()), half{});
            auto memory = expected;
            const auto do_nothing = [](int) {};
            using Scatter = kernel::Scatter<HeadsDimsCells, half, float>;
            const Scatter scatter{mapping, expected.data(), {cells.data()}, view};
            for (int i = 0; i < tokens; ++i)
                for (int h = 0; h < 3; ++h)
                    for (int d = 0; d < dim; ++d) kernel::apply(scatter, i, h, d);
            const Scatter by_tiles{mapping, memory.data(), {cells.data()}, view};
            cellar_test::Tiles<Scatter, true>{by_tiles, 0, tokens, 3, dim}.run(64, do_nothing);
            CHECK(same(memory, expected));

            std::vector<float> gathered(rows.size());
            using Gather = kernel::Gather<HeadsDimsCells, half, float>;
            const auto to = contiguous_view(gathered.data(), tokens, 3, dim);
            const Gather gather{mapping, memory.data(), {cells.data()}, to};
            cellar_test::Tiles<Gather, false>{gather, 0, tokens, 3, dim}.run(64, do_nothing);
            for (std::size_t i = 0; i < rows.size(); ++i) REQUIRE(gathered[i] == static_cast<float>(half{rows[i]}));
        }
    }
}

} // namespace test_each
