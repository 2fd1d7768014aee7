// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compares the runs of a sequence with a plain list of (position, cell).
#include <cellar/book/position_runs.hpp>
#include <cellar/book/visible_cells.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>
#include <random>
#include <set>
#include <vector>

namespace test_position_runs {

using namespace cellar;
using namespace cellar::detail;

namespace {

struct Token {
    std::int32_t position;
    Cell cell;
    bool operator==(const Token&) const = default;
};

struct Random {
    std::mt19937 engine;
    // Not std::uniform_int_distribution, because its numbers differ between libraries.
    int operator()(int min, int max) { return min + static_cast<int>(engine() % static_cast<unsigned>(max - min + 1)); }
};

std::vector<Token> listed(const PositionRuns& runs, std::int32_t from, std::int32_t to) {
    std::vector<Token> tokens;
    runs.for_each(Position{from}, Position{to}, [&](Position p, Cell cell, std::int32_t n) {
        for (std::int32_t i = 0; i < n; ++i) tokens.push_back({p.value + i, cell + i});
    });
    return tokens;
}

// Runs, and a vector of the same tokens ordered by position.
struct Mirror {
    PositionRuns runs{4};
    std::vector<Token> tokens;
    Cell next_cell = 0;

    void insert(std::int32_t position, std::int32_t n) {
        runs.reserve(2 * n + 1);
        runs.insert(Position{position}, next_cell, n);
        for (std::int32_t i = 0; i < n; ++i) {
            const auto after = std::upper_bound(tokens.begin(), tokens.end(), position + i,
                                                [](std::int32_t p, const Token& t) { return p < t.position; });
            tokens.insert(after, {position + i, next_cell + i});
        }
        next_cell += n;
    }

    // n + 1 tokens at one position.
    void insert_equal(std::int32_t position, std::int32_t n) {
        Mirror expected = {PositionRuns{0}, tokens, next_cell};
        for (std::int32_t i = 0; i <= n; ++i) expected.insert(position, 1);
        runs.reserve(2 * n + 2);
        runs.insert(Position{position}, next_cell, 1);
        std::vector<Cell> cells(static_cast<std::size_t>(n));
        std::iota(cells.begin(), cells.end(), next_cell + 1);
        runs.insert_again(Position{position}, cells.data(), n);
        tokens = expected.tokens;
        next_cell = expected.next_cell;
    }

    void erase(std::int32_t from, std::int32_t to) {
        runs.reserve(1);
        runs.erase(Position{from}, Position{to});
        std::erase_if(tokens, [=](const Token& t) { return from <= t.position && t.position < to; });
    }

    void close_gap(std::int32_t from, std::int32_t to) {
        runs.reserve(1);
        runs.close_gap(Position{from}, Position{to});
        std::erase_if(tokens, [=](const Token& t) { return from <= t.position && t.position < to; });
        for (Token& t : tokens)
            if (t.position >= to) t.position -= to - from;
    }

    // Moves every cell c of [0, next_cell) that has a position from `from` on to cells[c].
    void relocate(std::int32_t from, const std::vector<Cell>& cells) {
        const std::int64_t more = runs.tokens() - runs.runs();
        runs.reserve(more);
        runs.relocate(Position{from}, more, [&](Cell cell, std::int32_t n) {
            const auto first = cells.begin() + cell;
            std::int32_t count = 1;
            while (count < n && first[count] == first[0] + count) ++count;
            return CellRange{first[0], count};
        });
        for (Token& t : tokens)
            if (t.position >= from) t.cell = cells[static_cast<std::size_t>(t.cell)];
    }

    bool covers(std::int32_t from, std::int32_t to) const {
        std::set<std::int32_t> positions;
        for (const Token& t : tokens)
            if (from <= t.position && t.position < to) positions.insert(t.position);
        return to <= from || static_cast<std::int32_t>(positions.size()) == to - from;
    }
};

void compare(const Mirror& mirror, Random& random) {
    const PositionRuns& runs = mirror.runs;
    REQUIRE(listed(runs, 0, INT32_MAX) == mirror.tokens);
    REQUIRE(runs.tokens() == static_cast<std::int32_t>(mirror.tokens.size()));
    REQUIRE(runs.empty() == mirror.tokens.empty());
    if (!runs.empty()) {
        REQUIRE(runs.first().value == mirror.tokens.front().position);
        REQUIRE(runs.last().value == mirror.tokens.back().position);
    }
    const std::int32_t covered = runs.covered_to().value;
    REQUIRE(mirror.covers(0, covered));
    REQUIRE_FALSE(mirror.covers(covered, covered + 1));
    for (int probe = 0; probe < 6; ++probe) {
        const int from = random(0, 70);
        const int to = random(0, 70);
        CAPTURE(from);
        CAPTURE(to);
        REQUIRE(runs.covers(Position{from}, Position{to}) == mirror.covers(from, to));
        std::vector<Token> within;
        for (const Token& t : mirror.tokens)
            if (from <= t.position && t.position < to) within.push_back(t);
        REQUIRE(listed(runs, from, to) == within);
        std::set<Cell> cells;
        runs.for_each_word(Position{from}, Position{to}, [&](std::int64_t at, detail::Word bits) {
            REQUIRE(bits != 0);
            for (; bits != 0; bits &= bits - 1) {
                const bool first_time = cells.insert(static_cast<Cell>(at * 64 + std::countr_zero(bits))).second;
                REQUIRE(first_time);
            }
        });
        REQUIRE(cells.size() == within.size());
        for (const Token& t : within) REQUIRE(cells.contains(t.cell));
        runs.for_each_words(Position{from}, Position{to}, [&](const detail::CellsOfWords& words) {
            REQUIRE((words.words == 1 || (words.words > 1 && words.cells == ~detail::Word{0})));
            for (std::int64_t cell = words.at * 64; cell < (words.at + words.words) * 64; ++cell)
                if ((words.cells >> (cell % 64) & 1) != 0) REQUIRE(cells.erase(static_cast<Cell>(cell)) == 1);
        });
        REQUIRE(cells.empty());
    }
}

} // namespace

TEST_CASE("position runs: two sequences share what has the same tokens in the same cells") {
    const auto runs = [](std::initializer_list<PositionRun> list) {
        PositionRuns made{8};
        for (const PositionRun& run : list) made.insert(Position{run.position}, run.cell, run.count);
        return made;
    };
    const PositionRuns one = runs({{0, 10, 5, 0}, {5, 40, 3, 0}, {8, 80, 4, 0}});
    CHECK(one.shared_until(one).value == 12);
    CHECK(one.shared_until(runs({{0, 10, 5, 0}, {5, 40, 3, 0}})).value == 8);
    CHECK(one.shared_until(runs({{0, 10, 5, 0}, {5, 40, 3, 0}, {8, 90, 4, 0}})).value == 8);
    CHECK(one.shared_until(runs({{0, 10, 5, 0}, {5, 40, 2, 0}, {7, 90, 1, 0}, {8, 80, 4, 0}})).value == 7);
    CHECK(one.shared_until(runs({{0, 10, 4, 0}, {5, 40, 3, 0}})).value == 4);
    CHECK(one.shared_until(runs({{1, 10, 5, 0}})).value == 0);
    CHECK(one.shared_until(PositionRuns{1}).value == 0);
    // One of them, or both, have another token at a position that they share.
    const PositionRuns again = runs({{0, 10, 4, 0}, {3, 50, 1, 0}});
    CHECK(again.shared_until(again).value == 4);
    CHECK(again.shared_until(runs({{0, 10, 4, 0}, {3, 60, 1, 0}})).value == 3);
    CHECK(again.shared_until(runs({{0, 10, 4, 0}})).value == 3);
    CHECK(runs({{0, 10, 4, 0}}).shared_until(again).value == 3);
    CHECK(again.shared_until(runs({{0, 10, 7, 0}})).value == 3);
    CHECK(again.shared_until(runs({{0, 10, 4, 0}, {4, 60, 1, 0}})).value == 3);
}

TEST_CASE("position runs: long runs are visited several words at a time, and each cell once") {
    for (unsigned seed = 0; seed < 300; ++seed) {
        CAPTURE(seed);
        Random random{std::mt19937{seed}};
        PositionRuns runs{20};
        std::vector<Cell> cells; // of each position
        for (Cell cell = random(0, 2) * 32; cells.size() < 2000;
             cell += 64 * random(0, 2) + random(0, 1) * random(1, 90)) {
            const std::int32_t n = random(0, 2) == 0 ? 64 * random(1, 4) : random(1, 300);
            runs.reserve(2);
            runs.insert(Position{static_cast<std::int32_t>(cells.size())}, cell, n);
            for (std::int32_t i = 0; i < n; ++i) cells.push_back(cell + i);
            cell += n;
        }
        const int from = random(0, 1000);
        const int to = random(900, 2000);
        std::set<Cell> expected{cells.begin() + std::min(from, to), cells.begin() + to};
        int several = 0;
        runs.for_each_words(Position{from}, Position{to}, [&](const detail::CellsOfWords& words) {
            several += words.words > 1 ? 1 : 0;
            for (std::int64_t cell = words.at * 64; cell < (words.at + words.words) * 64; ++cell)
                if ((words.cells >> (cell % 64) & 1) != 0) REQUIRE(expected.erase(static_cast<Cell>(cell)) == 1);
        });
        REQUIRE(expected.empty());
        if (to - from > 700) REQUIRE(several > 0);
    }
}

TEST_CASE("position runs: random changes agree with an ordered list") {
    for (unsigned seed = 0; seed < 500; ++seed) {
        CAPTURE(seed);
        Random random{std::mt19937{seed}};
        Mirror mirror;
        if (seed % 2 == 0) mirror.insert(0, 50);
        for (int step = 0; step < 60; ++step) {
            CAPTURE(step);
            const std::int32_t end = mirror.tokens.empty() ? 0 : mirror.tokens.back().position + 1;
            switch (random(0, 10)) {
            case 0:
            case 1:
            case 2:
                mirror.insert(end, random(1, 6));
                break;
            case 3:
                mirror.insert(random(0, 60), random(0, 3) == 0 ? random(4, 20) : random(1, 3));
                if (random(0, 3) == 0) mirror.insert_equal(random(0, 60), random(1, 4));
                break;
            case 4:
                mirror.erase(random(0, 60), random(0, 70));
                break;
            case 5:
                mirror.erase(random(0, 4), random(0, end + 1));
                break; // like a window that slides
            case 6:
                mirror.erase(random(0, 60), INT32_MAX);
                break;
            case 7: {
                const int from = random(0, 60);
                mirror.close_gap(from, from + random(0, 9));
                break;
            }
            case 8: {
                mirror.next_cell += random(0, 2);
                if (mirror.tokens.empty()) break;
                const auto i = random(0, static_cast<int>(mirror.tokens.size()) - 1);
                const Token token = mirror.tokens[static_cast<std::size_t>(i)];
                mirror.runs.reserve(1);
                mirror.runs.erase_one(Position{token.position}, token.cell);
                mirror.tokens.erase(mirror.tokens.begin() + i);
                break;
            }
            case 9: { // two ranges of cells swap places
                std::vector<Cell> cells(static_cast<std::size_t>(mirror.next_cell));
                std::iota(cells.begin(), cells.end(), 0);
                const int cut = random(0, mirror.next_cell);
                std::rotate(cells.begin(), cells.begin() + cut, cells.begin() + random(cut, mirror.next_cell));
                mirror.relocate(0, cells);
                break;
            }
            case 10: { // later tokens move to new cells, in pieces
                std::vector<Cell> cells(static_cast<std::size_t>(mirror.next_cell));
                std::iota(cells.begin(), cells.end(), 0);
                const int from = random(0, end);
                for (const Token& token : mirror.tokens) {
                    mirror.next_cell += random(0, 3) == 0 ? 1 : 0;
                    if (token.position >= from && random(0, 3) != 0)
                        cells[static_cast<std::size_t>(token.cell)] = mirror.next_cell++;
                }
                mirror.relocate(from, cells);
                break;
            }
            }
            compare(mirror, random);
        }
    }
}

TEST_CASE("position runs: a new gap does not hide an older one") {
    Mirror mirror;
    mirror.insert(0, 60);
    mirror.erase(30, 40);
    mirror.erase(10, 20);
    CHECK(mirror.runs.covers(Position{20}, Position{30}));
    CHECK_FALSE(mirror.runs.covers(Position{5}, Position{25}));
    mirror.erase(50, 52);
    CHECK(mirror.runs.covers(Position{40}, Position{50}));
    CHECK_FALSE(mirror.runs.covers(Position{39}, Position{45}));
    CHECK_FALSE(mirror.runs.covers(Position{45}, Position{55}));
}

TEST_CASE("position runs: closing a gap joins runs that then continue each other") {
    PositionRuns runs{8};
    runs.insert(Position{0}, 0, 10);
    runs.insert(Position{10}, 50, 5);
    runs.insert(Position{15}, 10, 5);
    runs.close_gap(Position{10}, Position{15});
    CHECK(runs.runs() == 1);
    CHECK(runs.last() == Position{14});
    CHECK(runs.covers(Position{0}, Position{15}));
}

TEST_CASE("position runs: neighbouring tokens form one run, and there are few runs while a window slides") {
    PositionRuns runs{8};
    for (std::int32_t p = 0; p < 10000; ++p) {
        runs.reserve(3);
        runs.insert(Position{p}, p % 64, 1);
        if (p >= 64) runs.erase(Position{0}, Position{p - 62});
        REQUIRE(runs.runs() <= 2);
    }
    CHECK(runs.covers(Position{9937}, Position{10000}));
}

TEST_CASE("visible cells: after every slide, the set agrees with the definition") {
    for (unsigned seed = 0; seed < 100; ++seed) {
        CAPTURE(seed);
        Random random{std::mt19937{seed}};
        constexpr Cell cells = 4096;
        const std::int32_t sinks = random(0, 1) * random(1, 6);
        Mirror mirror;
        CellSetMemory memory{cells, 1};
        VisibleCells visible{memory, 0, sinks};
        std::int32_t from = 0;
        std::int32_t to = 0;
        for (int step = 0; step < 60; ++step) {
            const int choice = random(0, 6);
            if (choice == 6) {
                const int begin = random(0, 60);
                const int end = begin + random(0, 9);
                for (const Token& t : listed(mirror.runs, begin, end))
                    visible.erased({t.cell / 64, bit_range(t.cell % 64, 1)});
                mirror.close_gap(begin, end);
                visible.gap_closed(Position{begin}, Position{end});
                to = random(from, 70);
            } else if (choice <= 1) {
                const int n = random(0, 1) == 0 ? 1 : random(1, 5);
                // Half of the tokens directly follow the last one.
                const bool behind = mirror.runs.empty() || random(0, 1) == 0;
                const int position = !behind               ? random(0, 60)
                                     : mirror.runs.empty() ? to % 60
                                                           : mirror.runs.last().value + 1;
                const int visible_from = random(0, position);
                // The previous query was directly before this token, or among the first ones.
                if (random(0, 1) == 0)
                    visible.slide(mirror.runs, Position{random(0, position)},
                                  Position{random(0, 1) == 0 ? position : random(0, 6)});
                if (behind && n == 1
                    && visible.follow(mirror.runs, Position{position}, mirror.next_cell, Position{visible_from})) {
                    from = visible_from;
                    to = position + 1;
                } else if (behind) {
                    visible.appended(Position{position}, mirror.next_cell, n);
                } else {
                    visible.inserted(Position{position}, mirror.next_cell, n);
                }
                mirror.insert(position, n);
            } else if (choice == 2) {
                const int begin = random(0, 60);
                const int end = random(begin, 70);
                for (const Token& t : listed(mirror.runs, begin, end))
                    visible.erased({t.cell / 64, bit_range(t.cell % 64, 1)});
                mirror.erase(begin, end);
            } else if (choice == 3 && random(0, 9) == 0) {
                visible.reset();
            } else {
                from = random(0, 60);
                to = random(0, 3) == 0 ? INT32_MAX : random(from, 70);
            }
            visible.slide(mirror.runs, Position{from}, Position{to});
            std::set<Cell> expected;
            for (const Token& t : mirror.tokens)
                if ((t.position < sinks || t.position >= from) && t.position < to) expected.insert(t.cell);
            for (Cell c = 0; c < mirror.next_cell; ++c)
                REQUIRE(visible.cells().contains(c) == (expected.count(c) == 1));
            const CellBounds bounds =
                expected.empty() ? CellBounds{} : CellBounds{*expected.begin(), *expected.rbegin()};
            REQUIRE(visible.bounds() == bounds);
        }
    }
}

TEST_CASE("visible cells: after a query among the sinks, the next query sees all sinks") {
    PositionRuns runs{8};
    runs.insert(Position{0}, 0, 4);
    CellSetMemory memory{64, 1};
    VisibleCells visible{memory, 0, 4};
    visible.slide(runs, Position{0}, Position{2});
    CHECK_FALSE(visible.follow(runs, Position{4}, 4, Position{0}));
    visible.appended(Position{4}, 4, 1);
    runs.append(Position{4}, 4);
    visible.slide(runs, Position{0}, Position{5});
    for (Cell cell = 0; cell < 5; ++cell) CHECK(visible.cells().contains(cell));
}

} // namespace test_position_runs
