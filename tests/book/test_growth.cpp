// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Books whose sequences reserve memory as they grow.
#include <cellar/base/batch_builder.hpp>
#include <cellar/book/audit.hpp>
#include <cellar/book/cache_book.hpp>
#include <cellar/window/sliding_window.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace test_growth {

using namespace cellar;
using namespace cellar::detail;

namespace {

struct Random {
    std::mt19937 engine;
    int operator()(int min, int max) { return std::uniform_int_distribution<int>{min, max}(engine); }
};

using Book = CacheBook<SlidingWindow<>>;

constexpr Cell cells = 3 * 8192;
constexpr std::int32_t sequences = 6;

Book book(std::int32_t width, std::int64_t planned_runs, std::int64_t planned_blocks, Choice choice) {
    const SlidingWindow<> window = SlidingWindow<>{width, {.sinks = 3}}.resolved(sequences, cells);
    return {{.cells = cells,
             .sequences = sequences,
             .batch = 600,
             .planned_runs = planned_runs,
             .planned_blocks = planned_blocks,
             .choice = choice},
            window};
}

/// What the tokens of the open pass see.
std::vector<std::vector<CellRange>> visible(Book& book) {
    std::vector<std::vector<CellRange>> rows;
    book.for_each_visible_row([&](std::int64_t, const CellSet& set) {
        rows.emplace_back();
        set.for_each_run([&](CellRange run) { rows.back().push_back(run); });
    });
    return rows;
}

BatchBuilder random_batch(const Book& book, Random& random) {
    BatchBuilder tokens;
    const bool one_each = random(0, 1) == 0;
    for (int i = random(1, 3); i > 0; --i) {
        const Sequence s{random(0, sequences - 1)};
        const int first = random(0, 9) == 0 ? random(0, book.next(s).value) : book.next(s).value;
        for (int n = one_each ? 1 : random(1, 190), p = 0; p < n; ++p) tokens.add(s, Position{first + p});
    }
    return tokens;
}

} // namespace

TEST_CASE("a book that planned no memory agrees with one that planned all of it") {
    for (unsigned seed = 0; seed < 12; ++seed) {
        CAPTURE(seed);
        Random random{std::mt19937{seed}};
        const std::int32_t width = seed % 2 == 0 ? cells : random(1, 900);
        const Choice placed = seed % 4 < 2 ? Choice::lowest : Choice::blocks;
        Book complete = book(width, cells, sequences * cells, placed);
        Book growing = book(width, 0, 0, placed);
        const auto both = [&](auto operation) {
            operation(complete);
            operation(growing);
        };
        std::vector<std::pair<Sequence, Position>> scheduled; // some have ended
        for (int step = 0; step < 400; ++step) {
            const int choice = random(0, 9);
            const Sequence s{random(0, sequences - 1)};
            if (choice == 0) {
                const Sequence to{random(0, sequences - 1)};
                const int length = random(0, complete.next(s).value);
                both([&](Book& b) {
                    b.prepare_copy_prefix(s, to, Position{length}).value();
                    b.finish_copy_prefix(s, to, Position{length});
                });
            } else if (choice == 1) {
                const int begin = random(0, complete.next(s).value);
                const int end = random(0, 1) == 0 ? INT32_MAX : random(begin, complete.next(s).value);
                both([&](Book& b) {
                    auto removal = b.prepare_remove(s, Position{begin}, Position{end}, MovedKeys::rotated, begin - end);
                    if (removal) b.finish_remove(*removal);
                });
            } else if (choice == 3 && random(0, 1) == 0) {
                const Position p = complete.next(s) + random(1, 60);
                both([&](Book& b) {
                    b.prepare_schedule(s);
                    b.finish_schedule(s, p);
                });
                scheduled.emplace_back(s, p);
            } else if (choice == 3 && scheduled.size() > 4) {
                const std::size_t chosen = static_cast<std::size_t>(random(0, 3));
                both([&](Book& b) {
                    b.prepare_unschedule(scheduled[chosen].first, scheduled[chosen].second);
                    b.finish_unschedule(scheduled[chosen].first, scheduled[chosen].second);
                });
                scheduled.erase(scheduled.begin() + static_cast<std::ptrdiff_t>(chosen));
            } else if (choice == 2 && random(0, 5) == 0) {
                both([&](Book& b) {
                    const Defragmentation moves = b.table().prepare_defragment();
                    b.table().finish_defragment(moves);
                });
            } else {
                const BatchBuilder tokens = random_batch(complete, random);
                const bool look = random(0, 5) == 0;
                const bool keep = random(0, 2) != 0;
                const auto prepare = [&](Book& b) { return look ? b.prepare_look(tokens) : b.prepare_open(tokens); };
                const bool possible = prepare(complete).has_value();
                REQUIRE(prepare(growing).has_value() == possible);
                if (!possible) continue;
                both([&](Book& b) { look ? b.look(tokens) : b.open(tokens); });
                REQUIRE(std::ranges::equal(complete.pass().cells, growing.pass().cells));
                REQUIRE(complete.pass().history == growing.pass().history);
                if (random(0, 1) == 0) REQUIRE(visible(complete) == visible(growing));
                both([&](Book& b) { keep && !look ? b.commit() : b.drop(); });
            }
            REQUIRE(complete.next(s) == growing.next(s));
        }
        REQUIRE(audit(growing.table()).empty());
        REQUIRE(audit(complete.table()).empty());
    }
}

TEST_CASE("a defragmentation prepares room for the runs that it divides a snapshot into, and for no more") {
    constexpr std::int32_t n = 20;
    Book book = test_growth::book(cells, 0, 0, Choice::lowest);
    const auto add = [&](const BatchBuilder& tokens) {
        REQUIRE(book.prepare_open(tokens));
        book.open(tokens);
        book.commit();
    };
    add(BatchBuilder{Sequence{3}, Position{0}, n});
    const KeptCellsPointer stays = book.prepare_keep(Sequence{3}, Position{0}, Position{n}, Resuming::checked).value();
    book.finish_keep(Sequence{3}, *stays);
    for (std::int32_t p = 0; p < n; ++p) {
        add(BatchBuilder{Sequence{0}, Position{p}, 1});
        add(BatchBuilder{Sequence{1}, Position{p}, 1});
    }
    add(BatchBuilder{Sequence{2}, Position{0}, n});
    const KeptCellsPointer kept = book.prepare_keep(Sequence{2}, Position{0}, Position{n}, Resuming::checked).value();
    book.finish_keep(Sequence{2}, *kept);
    for (const Sequence s : {Sequence{1}, Sequence{2}}) { // leaves a hole behind each cell of sequence 0
        auto removal = book.prepare_remove(s, Position{0}, to_end, MovedKeys::rotated, 0);
        book.finish_remove(*removal);
    }
    const Defragmentation moves = book.table().prepare_defragment();
    REQUIRE(kept->runs.runs() == 1);
    CHECK(moves.splits(kept->runs) == n - 1);
    CHECK(moves.splits(stays->runs) == 0);
    REQUIRE(kept->runs.has_room(n - 1));
    CHECK_FALSE(stays->runs.has_room(n - 1)); // none of its cells moves
    book.table().finish_defragment(moves);
    CHECK(kept->runs.runs() == n);
    CHECK(audit(book.table()).empty());
}

} // namespace test_growth
