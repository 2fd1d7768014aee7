// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compares the sets of cells with plain vectors.
#include <cellar/book/cell_pool.hpp>
#include <cellar/book/cell_set.hpp>
#include <cellar/book/defragmentation.hpp>
#include <cellar/book/free_cells.hpp>
#include <cellar/book/owner_count.hpp>
#include <cellar/book/position_runs.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

namespace test_cells {

using namespace cellar;
using namespace cellar::detail;

namespace {

using Flags = std::vector<bool>;

struct Random {
    std::mt19937 engine;
    int operator()(int min, int max) { return std::uniform_int_distribution<int>{min, max}(engine); }
};

Cell naive_run(const Flags& free, int n) {
    int length = 0;
    for (std::size_t c = 0; c < free.size(); ++c) {
        length = free[c] ? length + 1 : 0;
        if (length == n) return static_cast<Cell>(c) - n + 1;
    }
    return -1;
}

Cell naive_next(const Flags& flags, Cell from) {
    for (auto c = static_cast<std::size_t>(from); c < flags.size(); ++c)
        if (flags[c]) return static_cast<Cell>(c);
    return -1;
}

std::vector<CellRange> naive_runs(const Flags& flags, Cell from, Cell end, bool value) {
    std::vector<CellRange> runs;
    for (Cell c = from; c < end; ++c) {
        if (flags[static_cast<std::size_t>(c)] != value) continue;
        const bool follows = !runs.empty() && runs.back().first + runs.back().count == c;
        follows ? void(++runs.back().count) : runs.push_back({c, 1});
    }
    return runs;
}

// The lowest of the longest runs of free cells.
CellRange naive_longest(const Flags& free) {
    CellRange longest;
    for (const CellRange& run : naive_runs(free, 0, static_cast<Cell>(free.size()), true))
        if (run.count > longest.count) longest = run;
    return longest;
}

// Calls `visit(words)` for [first, first + n) as a sequence with these cells does.
template <class Visit>
void for_each_words(Cell first, std::int32_t n, Visit visit) {
    PositionRuns runs{1};
    runs.insert(Position{0}, first, n);
    runs.for_each_words(Position{0}, to_end, visit);
}

std::vector<CellRange> listed(BitRuns runs) {
    std::vector<CellRange> all;
    for (CellRange run = runs.next(); run.count != 0; run = runs.next()) all.push_back(run);
    return all;
}

} // namespace

TEST_CASE("free cells: every query agrees with a scan") {
    for (const Cell cells : {1, 2, 63, 64, 65, 127, 128, 129, 300, 1000}) {
        CAPTURE(cells);
        Random random{std::mt19937{static_cast<unsigned>(cells)}};
        FreeCells free{cells};
        Flags model(static_cast<std::size_t>(cells), true);
        for (int step = 0; step < 2000; ++step) {
            // Mostly takes the lowest free cells, so that cells given back lie below the lowest free one.
            const Cell lowest = naive_next(model, 0);
            const int first = lowest >= 0 && random(0, 2) != 0 ? lowest : random(0, cells - 1);
            const bool state = model[static_cast<std::size_t>(first)];
            int n = 1;
            while (first + n < cells && model[static_cast<std::size_t>(first + n)] == state && n < 100) ++n;
            n = random(1, n);
            std::fill_n(model.begin() + first, n, !state);
            state ? free.take(first, n) : free.give(first, n);
            // Updates are deferred to the next query, so a step makes only some of the queries.
            REQUIRE(free.count() == static_cast<Cell>(std::count(model.begin(), model.end(), true)));
            const int from = random(0, cells - 1);
            const auto queries = random(0, 15);
            if ((queries & 1) != 0) {
                const int length = random(1, cells);
                REQUIRE(free.find_run(length) == naive_run(model, length));
                REQUIRE(free.find_run(1) == naive_run(model, 1));
            }
            if ((queries & 2) != 0) REQUIRE(free.next(from) == naive_next(model, from));
            if ((queries & 4) != 0) REQUIRE(free.lowest() == naive_next(model, 0));
            if ((queries & 8) == 0) continue;
            REQUIRE(free.contains(from) == model[static_cast<std::size_t>(from)]);
            const int end = random(from, cells);
            REQUIRE(listed(free.free_runs(from, end)) == naive_runs(model, from, end, true));
            REQUIRE(listed(free.used_runs(from, end)) == naive_runs(model, from, end, false));
            const std::int32_t longest = free.longest_run();
            REQUIRE(naive_run(model, longest + 1) == -1);
            REQUIRE((longest == 0 || naive_run(model, longest) >= 0));
        }
        CHECK(free.next(cells) == -1);
        CHECK(free.next(cells + 5000) == -1);
    }
}

TEST_CASE("owner count: counting 64 cells at a time equals counting one at a time") {
    for (const std::int32_t owners : {1, 2, 3, 7, 64, 1000}) {
        CAPTURE(owners);
        constexpr Cell cells = 200;
        Random random{std::mt19937{static_cast<unsigned>(owners)}};
        OwnerCount counts{cells, owners};
        std::vector<int> model(cells);
        for (int step = 0; step < 4000; ++step) {
            const int first = random(0, cells - 1);
            const int n = random(1, cells - first);
            const auto begin = model.begin() + first;
            const bool room = *std::max_element(begin, begin + n) < owners;
            const bool owned = *std::min_element(begin, begin + n) > 0;
            if (room && (!owned || random(0, 1) == 0)) {
                counts.add(first, n);
                std::for_each(begin, begin + n, [](int& c) { ++c; });
            } else if (owned) {
                Flags expected(cells);
                for (int c = first; c < first + n; ++c)
                    expected[static_cast<std::size_t>(c)] = --model[static_cast<std::size_t>(c)] == 0;
                Flags freed(cells);
                visit_words(first, n, [&](std::int64_t at, Word dropped) {
                    for (Word gone = counts.drop_word(at, dropped); gone != 0; gone &= gone - 1)
                        freed[static_cast<std::size_t>(at * 64 + std::countr_zero(gone))] = true;
                });
                REQUIRE(freed == expected);
            }
            const Cell probe = random(0, cells - 1);
            REQUIRE(counts.count(probe) == model[static_cast<std::size_t>(probe)]);
            REQUIRE(counts.is_shared(probe) == (model[static_cast<std::size_t>(probe)] > 1));
            REQUIRE(counts.shared(first, n) == std::count_if(begin, begin + n, [](int c) { return c > 1; }));
            const std::int32_t uniform = counts.uniform(first, n);
            for (int i = 0; i < uniform; ++i) REQUIRE((begin[i] > 1) == (begin[0] > 1));
            if (uniform < n) REQUIRE((begin[uniform] > 1) != (begin[0] > 1));
        }
    }
}

TEST_CASE("owner count: owners move with their cells") {
    Random random{std::mt19937{5}};
    for (int trial = 0; trial < 1000; ++trial) {
        constexpr Cell cells = 300;
        constexpr int owners = 5;
        OwnerCount counts{cells, owners};
        std::vector<int> model(cells);
        const int n = random(1, cells / 2);
        const int to = random(0, cells - 2 * n);
        const int from = random(to + n, cells - n);
        const int first = random(1, n); // in one move or in two, which may leave cells in use between their targets
        const int second = random(to + first, from - (n - first));
        const bool shares = trial % 2 == 0; // else no cell from the first source's word on has several owners
        for (Cell cell = 0; cell < cells; ++cell) {
            const bool is_target = (cell >= to && cell < to + first) || (cell >= second && cell < second + n - first);
            const int own = shares || cell < from / 64 * 64 ? random(1, owners) : 1;
            model[static_cast<std::size_t>(cell)] = is_target ? 0 : own;
            for (int i = 0; i < model[static_cast<std::size_t>(cell)]; ++i) counts.add(cell, 1);
        }
        TrivialList<Move> moves;
        moves.push_back({from, to, first});
        if (first < n) moves.push_back({from + first, second, n - first});
        counts.transfer(moves);
        std::copy_n(model.begin() + from, first, model.begin() + to);
        std::copy_n(model.begin() + from + first, n - first, model.begin() + second);
        std::fill_n(model.begin() + from, n, 0);
        for (Cell cell = 0; cell < cells; ++cell) REQUIRE(counts.count(cell) == model[static_cast<std::size_t>(cell)]);
    }
}

TEST_CASE("pool: owners that come and go by several words at once agree with a count for each cell") {
    for (unsigned seed = 0; seed < 60; ++seed) {
        CAPTURE(seed);
        Random random{std::mt19937{seed}};
        const Cell cells = random(1, seed % 3 == 0 ? 12000 : 900); // of more words than are counted at once
        const int owners = random(1, 5);
        CellPool pool{cells, owners, Choice::blocks};
        auto& free = const_cast<FreeCells&>(pool.free());
        std::vector<int> model(static_cast<std::size_t>(cells));
        std::vector<CellRange> owned; // by one owner each
        for (int step = 0; step < 150; ++step) {
            const bool gives = !owned.empty() && random(0, 1) == 0;
            CellRange range;
            if (gives) {
                const auto given = owned.begin() + random(0, static_cast<int>(owned.size()) - 1);
                range = *given;
                owned.erase(given);
            } else if (!owned.empty() && random(0, 2) == 0) {
                range = owned[static_cast<std::size_t>(random(0, static_cast<int>(owned.size()) - 1))];
            } else {
                range.first = random(0, 1) == 0 ? random(0, (cells - 1) / 64) * 64 : random(0, cells - 1);
                range.count = random(1, cells - range.first);
                if (range.count > 64 && random(0, 1) == 0) range.count = range.count / 64 * 64;
            }
            const auto [first, n] = range;
            CAPTURE(first);
            CAPTURE(n);
            const auto begin = model.begin() + first;
            const auto [least, most] = std::minmax_element(begin, begin + n);
            if (gives) {
                for_each_words(first, n, [&](const CellsOfWords& words) { pool.give(words); });
                std::for_each(begin, begin + n, [](int& c) { --c; });
            } else if (*most < owners && (*least > 0 || *most == 0)) {
                if (*most == 0) free.take(first, n);
                for_each_words(first, n, [&](const CellsOfWords& words) { pool.share(words); });
                std::for_each(begin, begin + n, [](int& c) { ++c; });
                owned.push_back(range);
            }
            std::int32_t shared = 0;
            for_each_words(first, n, [&](const CellsOfWords& words) { shared += pool.owners().shared(words); });
            REQUIRE(shared == std::count_if(begin, begin + n, [](int c) { return c > 1; }));
            const auto lowest = std::find(model.begin(), model.end(), 0);
            REQUIRE(free.lowest() == (lowest == model.end() ? -1 : static_cast<Cell>(lowest - model.begin())));
            if (step % 10 != 0) continue;
            for (Cell c = 0; c < cells; ++c) {
                REQUIRE(pool.owners().count(c) == model[static_cast<std::size_t>(c)]);
                REQUIRE(free.contains(c) == (model[static_cast<std::size_t>(c)] == 0));
            }
            Flags flags(model.size());
            std::transform(model.begin(), model.end(), flags.begin(), [](int c) { return c == 0; });
            REQUIRE(free.count() == std::count(flags.begin(), flags.end(), true));
            REQUIRE(free.find_longest_run() == naive_longest(flags));
            for (std::int64_t block = 0; block * 64 < cells; ++block) {
                const auto from = flags.begin() + block * 64;
                const bool all = std::all_of(from, from + std::min<std::int64_t>(64, cells - block * 64),
                                             [](bool is) { return is; });
                REQUIRE(free.is_whole(block) == all);
            }
        }
    }
}

TEST_CASE("cell set: lowest cell, highest cell and bits agree with a plain vector") {
    for (const Cell cells : {1, 64, 65, 513, 4096, 5000}) { // 513: the last block has one word
        CAPTURE(cells);
        Random random{std::mt19937{static_cast<unsigned>(cells)}};
        CellSetMemory memory{cells, 2};
        CellSet set{memory, 0};
        CellSet copy{memory, 1};
        Flags model(static_cast<std::size_t>(cells));
        for (int step = 0; step < 1000; ++step) {
            const int first = random(0, cells - 1);
            const int n = random(1, std::min(cells - first, 200));
            const bool value = random(0, 2) == 0;
            std::fill_n(model.begin() + first, n, value);
            if (value) {
                set.add(first, n);
            } else {
                for_each_words(first, n, [&](const CellsOfWords& words) { set.remove(words); });
            }
            const Cell lowest = naive_next(model, 0);
            const Flags reversed{model.rbegin(), model.rend()};
            const Cell from_end = naive_next(reversed, 0);
            // Removals are deferred to the next query of the bounds, so not every step makes one.
            const CellBounds bounds = lowest < 0 ? CellBounds{} : CellBounds{lowest, cells - 1 - from_end};
            if (random(0, 1) == 0) REQUIRE(set.bounds() == bounds);
            REQUIRE(set.contains(first) == value);
            int behind = first; // the first cell that was not visited
            set.for_each_64({first, random(1, cells - first)}, [&](std::int64_t index, Word bits) {
                REQUIRE(behind == first + 64 * index);
                for (int i = 0; i < 64; ++i) {
                    const bool expected = behind + i < cells && model[static_cast<std::size_t>(behind + i)];
                    REQUIRE((bits >> i & 1) == (expected ? 1U : 0U));
                }
                behind += 64;
            });
            if (step % 50 == 0) {
                Flags held(static_cast<std::size_t>(cells));
                set.for_each_word([&](std::int64_t at, Word word) {
                    REQUIRE(word != 0);
                    for (; word != 0; word &= word - 1)
                        held[static_cast<std::size_t>(at * 64 + std::countr_zero(word))] = true;
                });
                REQUIRE(held == model);
                copy.assign(set);
                for (Cell c = 0; c < cells; ++c) REQUIRE(copy.contains(c) == set.contains(c));
                REQUIRE(copy.bounds() == set.bounds());
            }
        }
        set.clear();
        CHECK(set.bounds().empty());
        CHECK_FALSE(set.contains(0));
        copy.clear();
        CHECK(memory.blocks().taken() == 0);
        CHECK(memory.branches().taken() == 0);
    }
}

TEST_CASE("cell set: the bounds move across empty ends of blocks and branches") {
    constexpr Cell near_ends[] = {0, 300, 511, 512, 575, 1000, 8191, 8192, 8300, 16384, 20000};
    CellSetMemory memory{20001, 1};
    for (const Cell stays : near_ends) {
        for (const Cell removed : near_ends) {
            if (removed == stays) continue;
            CAPTURE(stays);
            CAPTURE(removed);
            CellSet set{memory, 0};
            set.add(stays);
            set.add(removed);
            set.remove_word(word_of(removed), Word{1} << bit_of(removed));
            CHECK(set.bounds() == CellBounds{stays, stays});
            set.clear();
        }
    }
}

TEST_CASE("cell sets: memory follows the cells, and serves other sets once it is given back") {
    constexpr Cell cells = 1 << 20;
    Random random{std::mt19937{12}};
    CellSetMemory memory{cells, 3, 0};
    CHECK_FALSE(memory.is_complete());
    std::vector<CellSet> sets;
    std::vector<std::set<Cell>> models(3);
    for (int i = 0; i < 3; ++i) sets.emplace_back(memory, i);
    for (int step = 0; step < 3000; ++step) {
        const auto i = static_cast<std::size_t>(random(0, 2));
        const Cell cell = random(0, 3) * 8192 + random(0, 3) * 512 + random(0, 40);
        const int choice = random(0, 9);
        if (choice == 0) {
            memory.blocks().reserve(sets[i].block_count());
            memory.branches().reserve(sets[i].block_count());
            sets[(i + 1) % 3].assign(sets[i]);
            models[(i + 1) % 3] = models[i];
        } else if (choice == 1 && random(0, 20) == 0) {
            sets[i].clear();
            models[i].clear();
        } else if (choice < 6) {
            memory.blocks().reserve(1);
            memory.branches().reserve(1);
            sets[i].add(cell);
            models[i].insert(cell);
        } else {
            sets[i].remove_word(word_of(cell), Word{1} << bit_of(cell));
            models[i].erase(cell);
        }
        std::int64_t blocks = 0;
        std::int64_t branches = 0;
        for (std::size_t k = 0; k < 3; ++k) {
            std::set<Cell> held;
            sets[k].for_each_word([&](std::int64_t at, Word word) {
                for (; word != 0; word &= word - 1) held.insert(static_cast<Cell>(at * 64 + std::countr_zero(word)));
            });
            REQUIRE(held == models[k]);
            std::set<Cell> of_blocks;
            std::set<Cell> of_branches;
            for (const Cell c : models[k]) {
                of_blocks.insert(c / 512);
                of_branches.insert(c / 8192);
            }
            REQUIRE(sets[k].block_count() == static_cast<std::int64_t>(of_blocks.size()));
            blocks += sets[k].block_count();
            branches += static_cast<std::int64_t>(of_branches.size());
        }
        REQUIRE(memory.blocks().taken() == blocks);
        REQUIRE(memory.branches().taken() == branches);
    }
}

TEST_CASE("cell sets: no cells lie in more blocks and branches than are reserved for them") {
    Random random{std::mt19937{13}};
    for (int trial = 0; trial < 2000; ++trial) {
        const Cell cells = random(1, 40000);
        CellSetMemory memory{cells, 1};
        CellSet set{memory, 0};
        std::int64_t runs = 0;
        std::int64_t tokens = 0;
        for (Cell first = random(0, 600); first < cells; ++runs) {
            const int n = std::min(cells - first, random(0, 1) == 0 ? 1 : random(1, 1500));
            set.add(first, n);
            tokens += n;
            first += n + random(1, random(0, 1) == 0 ? 3 : 12000);
        }
        REQUIRE(set.block_count() <= memory.max_blocks(tokens, runs));
        REQUIRE(memory.branches().taken() <= memory.max_branches(tokens, runs));
    }
}

TEST_CASE("cell set: assign makes it equal to another set of many cells or few") {
    constexpr Cell cells = 2 * 64 * 64 + 100;
    const auto equal = [](CellSet& a, CellSet& b) {
        for (Cell c = 0; c < cells; ++c)
            if (a.contains(c) != b.contains(c)) return false;
        return a.bounds() == b.bounds();
    };
    CellSetMemory memory{cells, 5};
    CellSet all{memory, 0};
    all.add(0, cells);
    CellSet some{memory, 1};
    some.add(70, 5000);
    CellSet few{memory, 2};
    few.add(7, 1);
    few.add(8000, 3);
    CellSet none{memory, 3};
    CellSet changed{memory, 4};
    for (CellSet* next : {&some, &all, &few, &all, &none, &all, &some, &few}) {
        changed.assign(*next);
        CHECK(equal(changed, *next));
        changed.add(6000, 1); // must not change the other set
        CHECK(changed.contains(6000));
        CHECK(next->contains(6000) == (next == &all));
    }
}

TEST_CASE("defragmentation makes the fewest moves, and none overwrites a cell that another one reads") {
    Random random{std::mt19937{3}};
    for (int trial = 0; trial < 300; ++trial) {
        const Cell cells = random(1, 300);
        FreeCells free{cells};
        Flags used(static_cast<std::size_t>(cells));
        for (Cell c = 0; c < cells; ++c)
            if (random(0, 2) != 0) {
                free.take(c, 1);
                used[static_cast<std::size_t>(c)] = true;
            }
        const auto n = static_cast<Cell>(std::count(used.begin(), used.end(), true));
        const Defragmentation defragmentation{free, cells};
        Cell moved = 0;
        const Move* before = nullptr;
        for (const Move& move : defragmentation.moves()) {
            REQUIRE(move.from >= n);
            REQUIRE(move.to + move.count <= n);
            if (before != nullptr)
                REQUIRE((before->from + before->count != move.from || before->to + before->count != move.to));
            for (Cell i = 0; i < move.count; ++i) {
                REQUIRE(used[static_cast<std::size_t>(move.from + i)]);
                REQUIRE_FALSE(used[static_cast<std::size_t>(move.to + i)]);
                used[static_cast<std::size_t>(move.from + i)] = false;
                used[static_cast<std::size_t>(move.to + i)] = true;
            }
            moved += move.count;
            before = &move;
        }
        REQUIRE(std::count(used.begin(), used.begin() + n, true) == n);
        REQUIRE(moved <= n);
    }
}

} // namespace test_cells
