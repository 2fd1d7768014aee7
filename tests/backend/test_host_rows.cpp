// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The functions of the host backend that convert, scatter, gather and move rows.

#include <cellar/backend/host/ordered_cells.hpp>
#include <cellar/backend/host/rows.hpp>
#include <cellar/backend/host/runs.hpp>
#include <cellar/element/half.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

namespace test_host_rows {

using namespace cellar;

namespace {

std::vector<half> all_halves() {
    std::vector<half> all(1 << 16);
    for (std::uint32_t bits = 0; bits < all.size(); ++bits) all[bits].bits = static_cast<std::uint16_t>(bits);
    return all;
}

bool is_same(float a, float b) {
    return std::isnan(a) ? std::isnan(b) : std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

/// Cells in runs of up to `max_run`, each cell once.
std::vector<Cell> cells_in_runs(int tokens, int max_run, std::mt19937& random) {
    std::vector<Cell> firsts(static_cast<std::size_t>(tokens));
    for (std::size_t i = 0; i < firsts.size(); ++i) firsts[i] = static_cast<Cell>(i) * (max_run + 1);
    std::shuffle(firsts.begin(), firsts.end(), random);
    std::vector<Cell> cells;
    for (std::size_t run = 0; std::ssize(cells) < tokens; ++run)
        for (int i = 0; i < max_run && std::ssize(cells) < tokens; ++i) cells.push_back(firsts[run] + i);
    return cells;
}

template <class E>
void check_rows(int tokens, int dim, int max_run) {
    CAPTURE(tokens);
    CAPTURE(dim);
    CAPTURE(max_run);
    std::mt19937 random{static_cast<unsigned>(tokens * dim + max_run)};
    constexpr int heads = 2;
    const std::vector<Cell> cells = cells_in_runs(tokens, max_run, random);
    const HeadsDimsCells mapping{std::int64_t{tokens} * (max_run + 1), heads, dim};
    std::vector<E> memory(static_cast<std::size_t>(mapping.required_size()), E{-1.0F});
    std::vector<E> rows(static_cast<std::size_t>(tokens * heads * dim));
    for (E& element : rows) element = E{static_cast<float>(random() % 1000)};
    const auto view = contiguous_view(static_cast<const E*>(rows.data()), tokens, heads, dim);

    std::vector<E> expected = memory;
    for (int i = 0; i < tokens; ++i)
        for (int head = 0; head < heads; ++head)
            for (int d = 0; d < dim; ++d)
                expected[static_cast<std::size_t>(mapping(cells[static_cast<std::size_t>(i)], head, d))] =
                    view(i, head, d);
    detail::scatter_rows(mapping, memory.data(), cells, view);
    const auto same = [](E a, E b) { return static_cast<float>(a) == static_cast<float>(b); };
    REQUIRE(std::equal(memory.begin(), memory.end(), expected.begin(), same));

    // In two parts, as two threads would do it, to rows with gaps between them.
    std::vector<E> back(static_cast<std::size_t>(tokens * (heads * dim + 3)), E{-2.0F});
    auto padded = contiguous_view(back.data(), tokens, heads, dim);
    padded.strides[0] += 3;
    const std::int64_t parts = detail::gather_parts(mapping, cells);
    const auto cut = static_cast<std::int64_t>(random() % static_cast<unsigned>(parts + 1));
    detail::gather_rows(mapping, memory.data(), cells, padded, 0, cut);
    for (int i = 0; i < tokens; ++i) // the first part leaves the second one alone
        for (std::int64_t strip = cut; strip < parts; ++strip)
            REQUIRE(static_cast<float>(padded(i, strip / dim, strip % dim)) == -2.0F);
    detail::gather_rows(mapping, memory.data(), cells, padded, cut, parts);
    std::vector<E> expected_back(back.size(), E{-2.0F});
    for (int i = 0; i < tokens; ++i)
        std::copy_n(&view(i, 0, 0), heads * dim, expected_back.begin() + i * padded.strides[0]);
    REQUIRE(std::equal(back.begin(), back.end(), expected_back.begin(), same));
}

} // namespace

TEST_CASE("host: halves convert to the same floats many at a time as one at a time") {
    const std::vector<half> halves = all_halves();
    for (const std::int64_t offset : {0, 3}) { // 3: the last vector is not full
        std::vector<float> floats(halves.size());
        detail::convert_run(halves.data(), floats.data() + offset, std::ssize(halves) - offset);
        for (std::size_t i = 0; i + static_cast<std::size_t>(offset) < halves.size(); ++i)
            REQUIRE(is_same(floats[i + static_cast<std::size_t>(offset)], static_cast<float>(halves[i])));
    }
}

TEST_CASE("host: floats convert to the same halves many at a time as one at a time") {
    std::mt19937 random{1};
    std::vector<float> floats(1 << 18);
    for (float& f : floats) f = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    // Midpoints between neighbouring halves and the floats next to them decide the rounding.
    std::size_t at = 0;
    for (const half h : all_halves()) {
        const auto exact = std::bit_cast<std::uint32_t>(static_cast<float>(h));
        for (const std::uint32_t more : {0xfffU, 0x1000U, 0x1001U}) floats[at++] = std::bit_cast<float>(exact + more);
    }
    std::vector<half> halves(floats.size());
    detail::convert_run(floats.data(), halves.data(), std::ssize(floats));
    for (std::size_t i = 0; i < floats.size(); ++i) {
        CAPTURE(floats[i]);
        REQUIRE(is_same(static_cast<float>(halves[i]), static_cast<float>(half{floats[i]})));
    }
}

namespace {

/// True if all cells of a memory, the highest first, are sorted. With few cells, each has a bucket of its own.
template <Cell Capacity>
constexpr bool sorts_all_cells() {
    Cell cells[static_cast<std::size_t>(Capacity)] = {};
    for (Cell i = 0; i < Capacity; ++i) cells[i] = Capacity - 1 - i;
    const detail::OrderedCells ordered{cells, Capacity};
    bool sorted = true;
    for (Cell i = 0; i < Capacity; ++i) {
        sorted = sorted && cells[ordered.row(i)] == ordered.cells()[static_cast<std::size_t>(i)];
        if (Capacity <= 256) sorted = sorted && ordered.row(i) == Capacity - 1 - i;
    }
    return sorted;
}

} // namespace

// The compiler refuses to access an element that an array does not have.
static_assert(sorts_all_cells<1>() && sorts_all_cells<256>() && sorts_all_cells<257>() && sorts_all_cells<513>());

TEST_CASE("host: rows scattered to strips are gathered unchanged, for any number of tokens and any runs of cells") {
    for (const int tokens : {1, 7, 8, 9, 255, 256, 257, 300})
        for (const int dim : {1, 5, 16, 32, 33})
            for (const int max_run : {1, 2, 9, 300}) {
                check_rows<float>(tokens, dim, max_run);
                check_rows<half>(tokens, dim, max_run);
            }
    for (const int max_run : {1, 100}) check_rows<half>(9000, 3, max_run); // more cells than are sorted at once
    check_rows<half>(200, 150, 100); // a head of several blocks, where the next block is prefetched
}

TEST_CASE("host: a batch large enough to bypass the caches is written completely, and read again") {
    constexpr int tokens = 300;
    constexpr int heads = 2;
    std::mt19937 random{11};
    for (const int dim : {3, 129, 1100}) // rows do not begin at cache lines; only the first batch is small
        for (const int max_run : {1, 2, 7, 30}) {
            CAPTURE(dim);
            CAPTURE(max_run);
            const CellsHeadsDims mapping{tokens * (max_run + 1) + 1, heads, dim};
            std::vector<float> rows(static_cast<std::size_t>(tokens * heads * dim));
            std::iota(rows.begin(), rows.end(), 1.0F);
            const auto view = contiguous_view(static_cast<const float*>(rows.data()), tokens, heads, dim);
            std::vector<Cell> cells = cells_in_runs(tokens, max_run, random);
            for (Cell& cell : cells) ++cell;
            std::vector<float> memory(static_cast<std::size_t>(mapping.required_size()), -1.0F);
            detail::scatter_rows(mapping, memory.data(), cells, view);
            CHECK(std::count(memory.begin(), memory.end(), -1.0F) == std::ssize(memory) - std::ssize(rows));
            for (int i = 0; i < tokens; ++i)
                CHECK(std::equal(&view(i, 0, 0), &view(i, 0, 0) + heads * dim,
                                 &memory[static_cast<std::size_t>(mapping(cells[static_cast<std::size_t>(i)], 0, 0))]));
            std::vector<float> back(rows.size());
            detail::gather_rows(mapping, memory.data(), cells, contiguous_view(back.data(), tokens, heads, dim), 0,
                                tokens);
            CHECK(back == rows);
        }
}

TEST_CASE("host: runs move correctly in one part or two, even if they overlap themselves") {
    std::mt19937 random{7};
    const auto below = [&](int n) { return static_cast<Cell>(random() % static_cast<unsigned>(n)); };
    for (int trial = 0; trial < 300; ++trial) {
        constexpr Cell cells = 700;
        constexpr int heads = 2;
        constexpr int dim = 5;
        std::vector<Move> moves; // the first may overlap itself, upwards or downwards; the second never does
        moves.push_back({1 + below(20), 0, 1 + below(200)});
        if (trial % 2 == 0) std::swap(moves[0].from, moves[0].to);
        moves.push_back({450 + below(50), 230 + below(20), 1 + below(200)});
        std::vector<float> memory(static_cast<std::size_t>(cells * heads * dim));
        std::iota(memory.begin(), memory.end(), 0.0F);
        const auto check = [&](const auto& mapping) {
            std::vector<float> expected = memory;
            for (const Move& move : moves)
                for (Cell i = 0; i < move.count; ++i)
                    for (int head = 0; head < heads; ++head)
                        for (int d = 0; d < dim; ++d)
                            expected[static_cast<std::size_t>(mapping(move.to + i, head, d))] =
                                memory[static_cast<std::size_t>(mapping(move.from + i, head, d))];
            std::vector<float> moved = memory;
            const std::int64_t parts = detail::move_parts(mapping, moves);
            const bool strips = detail::contiguous_cells<std::remove_cvref_t<decltype(mapping)>>;
            const std::int64_t cut = strips ? below(static_cast<int>(parts)) : 0;
            detail::move_runs(mapping, moved.data(), moves, 0, cut);
            detail::move_runs(mapping, moved.data(), moves, cut, parts);
            REQUIRE(moved == expected);
        };
        check(HeadsDimsCells{cells, heads, dim});
        check(CellsHeadsDims{cells, heads, dim});
        check(BlocksHeadsCellsDims<16>{cells, heads, dim});
    }
}

} // namespace test_host_rows
