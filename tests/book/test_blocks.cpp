// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compares the choice of cells by blocks with a plain scan of all cells.
#include <cellar/base/batch_builder.hpp>
#include <cellar/book/audit.hpp>
#include <cellar/book/cache_book.hpp>
#include <cellar/book/cell_pool.hpp>
#include <cellar/book/free_cells.hpp>
#include <cellar/book/number_set.hpp>
#include <cellar/window/full_causal.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

namespace test_blocks {

using namespace cellar;
using namespace cellar::detail;

namespace {

using Flags = std::vector<bool>;

struct Random {
    std::mt19937 engine;
    int operator()(int min, int max) { return std::uniform_int_distribution<int>{min, max}(engine); }
};

std::vector<CellRange> runs_of(const Flags& flags) {
    std::vector<CellRange> runs;
    for (std::size_t i = 0; i < flags.size(); ++i) {
        if (!flags[i]) continue;
        if (i == 0 || !flags[i - 1]) runs.push_back({static_cast<Cell>(i), 0});
        ++runs.back().count;
    }
    return runs;
}

Cell size_of(const Flags& flags) {
    return static_cast<Cell>(flags.size());
}

/// Which blocks of 64 cells are wholly free; the last may have fewer cells.
Flags whole_blocks(const Flags& free) {
    Flags whole((free.size() + 63) / 64, true);
    for (std::size_t c = 0; c < free.size(); ++c)
        if (!free[c]) whole[c / 64] = false;
    return whole;
}

/// The cells of each run of wholly free blocks.
std::vector<CellRange> runs_of_blocks(const Flags& free) {
    std::vector<CellRange> runs = runs_of(whole_blocks(free));
    for (CellRange& run : runs) {
        const Cell end = std::min((run.first + run.count) * 64, size_of(free));
        run = {run.first * 64, end - run.first * 64};
    }
    return runs;
}

/// The rule, for n neighbouring tokens of one sequence whose last token is in cell `last`, or -1.
std::vector<Cell> chosen(Flags free, int n, Cell last) {
    std::vector<Cell> cells;
    const auto take = [&](Cell cell) {
        free[static_cast<std::size_t>(cell)] = false;
        cells.push_back(cell);
    };
    const auto is_missing = [&] { return static_cast<int>(cells.size()) < n; };
    for (Cell c = last + 1; last >= 0 && is_missing() && c < size_of(free); ++c) {
        const bool begins_block = c % 64 == 0;
        if (!free[static_cast<std::size_t>(c)]) break;
        if (begins_block && (n == 1 || !whole_blocks(free)[static_cast<std::size_t>(c / 64)])) break;
        take(c);
    }
    while (is_missing()) {
        const int rest = n - static_cast<int>(cells.size());
        CellRange place{};
        for (const CellRange& run : runs_of_blocks(free)) {
            if (place.count == 0) place = run; // the lowest
            if (run.count < rest) continue;
            place = run;
            break;
        }
        if (place.count == 0) {
            CellRange longest{};
            for (const CellRange& run : runs_of(free))
                if (run.count > longest.count) longest = run;
            Cell first = longest.first + longest.count / 2;
            while (first > longest.first && longest.first + longest.count - first < rest) --first;
            place = {first, longest.first + longest.count - first};
        }
        for (Cell c = place.first; c < place.first + place.count && is_missing(); ++c) take(c);
    }
    return cells;
}

} // namespace

TEST_CASE("a set of numbers agrees with std::set") {
    for (const int size : {1, 63, 64, 65, 4096, 4097, 300000}) {
        CAPTURE(size);
        Random random{std::mt19937{static_cast<unsigned>(size)}};
        NumberSet set{size};
        std::set<int> model;
        for (int step = 0; step < 3000; ++step) {
            const int near = random(0, 2) == 0 || model.empty() ? random(0, size - 1) : *model.begin();
            if (model.contains(near)) {
                set.remove(near);
                model.erase(near);
            } else {
                set.add(near);
                model.insert(near);
            }
            REQUIRE(set.count() == static_cast<std::int64_t>(model.size()));
            REQUIRE(set.lowest() == (model.empty() ? -1 : *model.begin()));
            REQUIRE(set.contains(near) == model.contains(near));
            if (random(0, 500) != 0) continue;
            const int first = random(0, size);
            const int end = random(first, size);
            set.assign(first, end);
            model.clear();
            for (int number = first; number < end; ++number) model.insert(number);
        }
    }
}

TEST_CASE("free cells: queries of blocks agree with a scan") {
    for (const Cell cells : {1, 2, 63, 64, 65, 127, 128, 129, 300, 1000, 9000}) {
        CAPTURE(cells);
        Random random{std::mt19937{static_cast<unsigned>(cells)}};
        FreeCells free{cells};
        Flags model(static_cast<std::size_t>(cells), true);
        for (int step = 0; step < 1500; ++step) {
            if (random(0, 100) == 0) {
                const Cell used = random(0, cells);
                free.pack(used);
                for (Cell c = 0; c < cells; ++c) model[static_cast<std::size_t>(c)] = c >= used;
                REQUIRE(free.count() == cells - used);
                REQUIRE(free.lowest() == (used == cells ? -1 : used));
            }
            const int first = random(0, 1) == 0 ? random(0, cells - 1) : random(0, (cells - 1) / 64) * 64;
            const bool state = model[static_cast<std::size_t>(first)];
            int n = 1;
            while (first + n < cells && model[static_cast<std::size_t>(first + n)] == state && n < 300) ++n;
            n = random(0, 1) == 0 ? n : random(1, n);
            std::fill_n(model.begin() + first, n, !state);
            state ? free.take(first, n) : free.give(first, n);
            const Flags whole = whole_blocks(model);
            const std::vector<CellRange> blocks = runs_of_blocks(model);
            REQUIRE(free.whole_blocks() == std::count(whole.begin(), whole.end(), true));
            REQUIRE(free.lowest_block() == (blocks.empty() ? -1 : blocks.front().first));
            for (std::size_t b = 0; b < whole.size(); ++b) REQUIRE(free.is_whole(static_cast<Cell>(b)) == whole[b]);
            REQUIRE_FALSE(free.is_whole(static_cast<Cell>(whole.size())));
            const auto lowest_of = [&](int least) {
                const auto found = std::find_if(blocks.begin(), blocks.end(),
                                                [&](const CellRange& run) { return run.count >= least; });
                return found == blocks.end() ? CellRange{} : *found;
            };
            const int wanted = random(1, cells);
            REQUIRE(free.find_blocks(wanted) == lowest_of(wanted));
            int most = cells;
            for (int least = wanted; least > 0; least -= random(1, 200))
                REQUIRE(free.find_blocks(least, most) == lowest_of(least));
            const Cell from = random(0, cells);
            int room = 0;
            while (from + room < std::min(cells, from / 64 * 64 + 64) && model[static_cast<std::size_t>(from + room)])
                ++room;
            REQUIRE(free.free_in_block(from) == room);
            const int block = random(0, (cells + 63) / 64);
            int in_blocks = 0;
            for (const CellRange& run : blocks)
                if (run.first <= block * 64 && block * 64 < run.first + run.count)
                    in_blocks = run.first + run.count - block * 64;
            REQUIRE(std::min(free.free_in_blocks(block, wanted), wanted) == std::min(in_blocks, wanted));
            if (random(0, 2) != 0) continue;
            CellRange longest{};
            for (const CellRange& run : runs_of(model))
                if (run.count > longest.count) longest = run;
            REQUIRE(free.find_longest_run() == longest);
        }
    }
}

TEST_CASE("free cells: words that change far apart are all seen by the next query") {
    constexpr Cell cells = 64 * 5000;
    Random random{std::mt19937{8}};
    FreeCells free{cells};
    free.take(0, cells);
    for (int step = 0; step < 300; ++step) {
        std::set<Cell> given;
        for (int i = random(1, 5); i > 0; --i) given.insert(random(0, cells / 64 - 1) * 64 + 40);
        for (const Cell cell : given) free.give(cell, 1 + step % 20);
        if (random(0, 1) == 0) REQUIRE(free.find_run(1 + step % 20) == *given.begin());
        const Cell between = random(0, cells - 1);
        const auto next = given.lower_bound(between - between % 64); // its cells begin in the middle of the block
        if (between % 64 < 40) REQUIRE(free.next(between) == (next == given.end() ? -1 : *next));
        REQUIRE(free.find_longest_run() == CellRange{*given.begin(), 1 + step % 20});
        for (const Cell cell : given) free.take(cell, 1 + step % 20);
        if (random(0, 1) == 0) REQUIRE(free.find_run(1) == -1);
    }
}

namespace {

/// The positions of each sequence, without gaps from 0 on, and their cells.
struct Model {
    Flags free() const {
        Flags all(static_cast<std::size_t>(cells), true);
        for (const std::vector<Cell>& s : sequences)
            for (const Cell cell : s) all[static_cast<std::size_t>(cell)] = false;
        return all;
    }
    int owners(Cell cell) const {
        int count = 0;
        for (const std::vector<Cell>& s : sequences) count += std::count(s.begin(), s.end(), cell) != 0 ? 1 : 0;
        return count;
    }
    void add(std::vector<Cell>& s, int n) const {
        const std::vector<Cell> more = chosen(free(), n, s.empty() ? -1 : s.back());
        s.insert(s.end(), more.begin(), more.end());
    }
    /// Closes a gap. Shared cells behind it are copied, in runs of neighbours, behind one another if they can be.
    void close_gap(std::vector<Cell>& s, int begin, int end) const {
        s.erase(s.begin() + begin, s.begin() + end);
        const std::vector<Cell> old = s;
        std::vector<bool> shared;
        for (const Cell cell : old) shared.push_back(owners(cell) > 1);
        Cell last = -1;
        for (std::size_t i = static_cast<std::size_t>(begin), n = 0; i < s.size(); i += n) {
            for (n = 1; i + n < s.size() && old[i + n] == old[i] + static_cast<Cell>(n) && shared[i + n] == shared[i];)
                ++n;
            if (!shared[i]) continue;
            const std::vector<Cell> copies = chosen(free(), static_cast<int>(n), last);
            std::copy(copies.begin(), copies.end(), s.begin() + static_cast<std::ptrdiff_t>(i));
            last = copies.back();
        }
    }

    Cell cells;
    std::vector<std::vector<Cell>> sequences;
};

using Book = CacheBook<FullCausal>;

std::vector<Cell> cells_of(const Book& book, Sequence s) {
    std::vector<Cell> cells;
    book.table().record(s).runs.for_each(Position{0}, to_end, [&](Position, Cell cell, std::int32_t n) {
        for (std::int32_t i = 0; i < n; ++i) cells.push_back(cell + i);
    });
    return cells;
}

/// Decode steps, prompts, or both, of sequences in any order.
BatchBuilder draw_batch(const Model& model, Random& random) {
    BatchBuilder tokens;
    std::vector<int> next;
    for (const std::vector<Cell>& s : model.sequences) next.push_back(static_cast<int>(s.size()));
    const auto add = [&](int s, int n) {
        tokens.add(Sequence{s}, Position{next[static_cast<std::size_t>(s)]}, n);
        next[static_cast<std::size_t>(s)] += n;
    };
    const int kind = random(0, 3);
    const int sequences = static_cast<int>(model.sequences.size());
    if (kind == 0) {
        for (int i = random(1, 5); i > 0; --i) add(random(0, sequences - 1), random(1, 3));
    } else if (kind == 1) {
        add(random(0, sequences - 1), random(1, 220));
        add(random(0, sequences - 1), 1);
    } else {
        for (int s = 0; s < sequences; ++s) add(s, 1);
    }
    return tokens;
}

void advance(Model& model, const BatchBuilder& tokens) {
    const Batch batch = tokens;
    for (std::size_t i = 0, n = 0; i < batch.sequences.size(); i += n) {
        for (n = 1; i + n < batch.sequences.size() && batch.sequences[i + n] == batch.sequences[i];) ++n;
        model.add(model.sequences[static_cast<std::size_t>(batch.sequences[i].value)], static_cast<int>(n));
    }
}

} // namespace

TEST_CASE("by blocks, sequences get the cells of the rule, whatever they do") {
    for (unsigned seed = 0; seed < 24; ++seed) {
        CAPTURE(seed);
        Random random{std::mt19937{seed}};
        const Cell cells = seed % 4 == 0 ? random(1, 130) : random(200, 1500);
        const int sequences = random(1, 9);
        Book book{
            {.cells = cells, .sequences = sequences, .batch = 300, .planned_runs = 2 * cells, .choice = Choice::blocks},
            FullCausal{}};
        Model model{cells, std::vector<std::vector<Cell>>(static_cast<std::size_t>(sequences))};
        for (int step = 0; step < 500; ++step) {
            CAPTURE(step);
            const Sequence s{random(0, sequences - 1)};
            std::vector<Cell>& own = model.sequences[static_cast<std::size_t>(s.value)];
            const int length = static_cast<int>(own.size());
            const int choice = random(0, 19);
            if (choice == 0) {
                const Sequence to{random(0, sequences - 1)};
                const int shared = random(0, 1) == 0 ? length : random(0, length);
                book.prepare_copy_prefix(s, to, Position{shared}).value();
                book.finish_copy_prefix(s, to, Position{shared});
                const std::vector<Cell> prefix{own.begin(), own.begin() + shared};
                if (s != to) model.sequences[static_cast<std::size_t>(to.value)] = prefix;
            } else if (choice <= 3) {
                const int begin = choice == 1 ? 0 : random(0, length);
                const int end = random(0, 2) != 0 ? length : random(begin, length);
                auto removal = book.prepare_remove(s, Position{begin}, Position{end}, MovedKeys::rotated, begin - end);
                if (removal) {
                    book.finish_remove(*removal);
                    if (removal->closes_gap()) {
                        model.close_gap(own, begin, end);
                    } else {
                        own.erase(own.begin() + begin, own.begin() + end);
                    }
                }
            } else {
                const BatchBuilder tokens = draw_batch(model, random);
                const Flags free = model.free();
                const bool fits = tokens.size() <= std::count(free.begin(), free.end(), true);
                REQUIRE(book.prepare_open(tokens).has_value() == fits);
                if (!fits) continue;
                Model next = model;
                advance(next, tokens);
                REQUIRE(book.end_of_next(tokens) > 0); // opens and drops the pass
                book.prepare_tokens(tokens);
                book.open(tokens);
                for (int each = 0; each < sequences; ++each)
                    REQUIRE(cells_of(book, Sequence{each}) == next.sequences[static_cast<std::size_t>(each)]);
                if (random(0, 4) == 0) {
                    book.drop();
                } else {
                    book.commit();
                    model = next;
                }
            }
            for (int each = 0; each < sequences; ++each)
                REQUIRE(cells_of(book, Sequence{each}) == model.sequences[static_cast<std::size_t>(each)]);
        }
        REQUIRE(audit(book.table()).empty());
    }
}

TEST_CASE("by blocks, what is taken ends where it was said to, also if others are given up before") {
    for (unsigned seed = 0; seed < 3000; ++seed) {
        CAPTURE(seed);
        Random random{std::mt19937{seed}};
        const Cell cells = random(1, 900);
        CellPool pool{cells, 1, Choice::blocks};
        Flags free(static_cast<std::size_t>(cells), true);
        std::vector<CellRange> used;
        for (Cell c = random(0, 300); c < cells; c += random(0, 2) == 0 ? 1 : random(1, 300)) {
            const int n = std::min(cells - c, random(1, random(0, 1) == 0 ? 4 : 200));
            PositionRuns runs{1};
            runs.insert(Position{0}, c, n);
            const_cast<FreeCells&>(pool.free()).take(c, n);
            pool.share(c, n);
            used.push_back({c, n});
            c += n;
        }
        const int n = random(1, 300);
        const Cell last = random(0, 1) == 0 || used.empty() ? -1 : used.front().first + used.front().count - 1;
        const Cell end = pool.end_of_next(n, last);
        const std::int64_t most = pool.max_runs(n);
        for (std::size_t i = 1; i < used.size(); ++i)
            if (random(0, 1) == 0)
                visit_words(used[i].first, used[i].count, [&](std::int64_t at, Word c) { pool.give({at, c}); });
        if (pool.free().count() < n) continue;
        for (Cell c = 0; c < cells; ++c) free[static_cast<std::size_t>(c)] = pool.free().contains(c);
        std::vector<Cell> taken;
        pool.take(n, last, taken);
        REQUIRE(taken == chosen(free, n, last));
        REQUIRE(*std::max_element(taken.begin(), taken.end()) < end);
        std::int64_t runs = 1;
        for (std::size_t i = 1; i < taken.size(); ++i) runs += taken[i] == taken[i - 1] + 1 ? 0 : 1;
        REQUIRE(runs <= most);
    }
}

TEST_CASE("by blocks, what is taken behind the last cell of all ends with the cells") {
    CellPool pool{640, 1, Choice::blocks};
    CHECK(pool.end_of_next(64, 639) == 640);
    CHECK(pool.end_of_next(640, 639) == 640);
    CHECK(pool.end_of_next(64, 600) == 640);
    CHECK(pool.end_of_next(64, 575) == 640);
    CHECK(pool.end_of_next(64, 574) == 639);
    CHECK(pool.end_of_next(64, -1) == 64);
}

TEST_CASE("by blocks, 64 sequences that decode in turn are runs of 64 cells") {
    constexpr int sequences = 64;
    Book book{{.cells = sequences * 640, .sequences = sequences, .batch = sequences, .choice = Choice::blocks},
              FullCausal{}};
    for (int p = 0; p < 640; ++p) {
        BatchBuilder step;
        for (int s = 0; s < sequences; ++s) step.add(Sequence{s}, Position{p});
        REQUIRE(book.prepare_open(step));
        book.open(step);
        book.commit();
    }
    CHECK(book.table().free().count() == 0);
    for (int s = 0; s < sequences; ++s) CHECK(book.table().record(Sequence{s}).runs.runs() <= 10);
}

} // namespace test_blocks
