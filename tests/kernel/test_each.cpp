// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Kernels at every place: each once, whatever the order of threads and the size of teams.
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

using namespace cellar;
using namespace cellar::detail;
using cellar_test::random_elements;
using cellar_test::same;

TEST_CASE("divisors divide") {
    std::mt19937 random{1};
    const auto check = [](std::int32_t n, std::int32_t d) {
        const auto [quotient, remainder] = kernel::Divisor{d}.divide(n);
        if (quotient == n / d && remainder == n % d) return;
        CAPTURE(n);
        CAPTURE(d);
        FAIL("not the quotient");
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
        check(n / d * d, d);                  // the first of a quotient,
        check(std::max(n / d * d - 1, 0), d); // and the last of the one before
    }
    check(INT32_MAX, INT32_MAX);
    check(INT32_MAX - 1, INT32_MAX);
    check(INT32_MAX, 1);
}

namespace {

/// Counts how often each place is read and written, and what is wrong: a place out of range, or a value that was not
/// read there.
struct Counts {
    std::vector<int> reads;
    std::vector<int> writes;
    int wrong = 0;
};

template <class T>
struct Count {
    using Value = T;

    Counts* counts;
    std::int64_t heads;
    std::int64_t dim;

    std::size_t at(std::int64_t i, std::int64_t head, std::int64_t d) const {
        const std::int64_t place = (i * heads + head) * dim + d;
        const bool is_one =
            i >= 0 && head >= 0 && head < heads && d >= 0 && d < dim && place < std::ssize(counts->reads);
        counts->wrong += !is_one;
        return is_one ? static_cast<std::size_t>(place) : 0;
    }
    T read(std::int64_t i, std::int64_t head, std::int64_t d) const {
        ++counts->reads[at(i, head, d)];
        return static_cast<T>(at(i, head, d) % 101);
    }
    void write(std::int64_t i, std::int64_t head, std::int64_t d, const T& value) const {
        counts->wrong += value != static_cast<T>(at(i, head, d) % 101);
        ++counts->writes[at(i, head, d)];
    }
};

/// What `run` does with a kernel: places of cells [first, first + cells) once each, and no others.
template <class T, class Run>
void check_places(int first, int cells, int heads, int dim, Run run) {
    const auto row = static_cast<std::size_t>(heads) * static_cast<std::size_t>(dim);
    const std::size_t size = static_cast<std::size_t>(first + cells) * row;
    Counts counts{std::vector<int>(size), std::vector<int>(size)};
    run(Count<T>{&counts, heads, dim});
    std::vector<int> expected(size, 1);
    std::fill_n(expected.begin(), static_cast<std::size_t>(first) * row, 0);
    CHECK(counts.wrong == 0);
    CHECK(counts.reads == expected);
    CHECK(counts.writes == expected);
}

template <class T, bool one_way>
void check_each(int cells, int heads, int dim) {
    constexpr int first = 2;
    check_places<T>(first, cells, heads, dim, [&](const auto& kernel) {
        const kernel::EachElement<Count<T>, one_way> each{kernel, first, cells, heads, dim};
        for (std::int32_t i = each.size(); i-- > 0;) each(i);
    });
    for (const int size : {1, 3, 128, 1024})
        check_places<T>(0, cells, heads, dim, [&](const auto& kernel) {
            cellar_test::Tiles<Count<T>, one_way>{kernel, cells, heads, dim}.run(size, [](int) {});
        });
}

template <class T>
void check_each_place_once() {
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

TEST_CASE("each place is read once and written once") {
    check_each_place_once<std::uint8_t>();
    check_each_place_once<float>();
    check_each_place_once<double>();
}

// As threads of a team do: all of a tile is read before any of it is written.
TEST_CASE("a tile at a time scatters and gathers as element by element") {
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
            const auto nothing = [](int) {};
            using Scatter = kernel::Scatter<HeadsDimsCells, half, float>;
            const Scatter scatter{mapping, expected.data(), {cells.data()}, view};
            for (int i = 0; i < tokens; ++i)
                for (int h = 0; h < 3; ++h)
                    for (int d = 0; d < dim; ++d) kernel::apply(scatter, i, h, d);
            const Scatter by_tiles{mapping, memory.data(), {cells.data()}, view};
            cellar_test::Tiles<Scatter, true>{by_tiles, tokens, 3, dim}.run(64, nothing);
            CHECK(same(memory, expected));

            std::vector<float> gathered(rows.size());
            using Gather = kernel::Gather<HeadsDimsCells, half, float>;
            const auto to = contiguous_view(gathered.data(), tokens, 3, dim);
            const Gather gather{mapping, memory.data(), {cells.data()}, to};
            cellar_test::Tiles<Gather, false>{gather, tokens, 3, dim}.run(64, nothing);
            for (std::size_t i = 0; i < rows.size(); ++i) REQUIRE(gathered[i] == static_cast<float>(half{rows[i]}));
        }
    }
}
