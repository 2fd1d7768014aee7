// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "numbers.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <utility>
#include <vector>

/// Lists and page tables after random operations, compared with what a scan of the sequences finds.
namespace list_trial {

using namespace cellar;
using numbers::Numbers;
using numbers::prompt;
using numbers::Values;

using Ints = std::vector<std::int32_t>;

inline Ints ints(std::span<const std::int32_t> list) {
    return {list.begin(), list.end()};
}

/// Reads a list in the memory of a cache's backend.
struct ReadHost {
    template <class Cache>
    Ints operator()(const Cache&, std::span<const std::int32_t> list) const {
        return ints(list);
    }
};

/// A part of a list.
inline Ints part(const Ints& list, std::int32_t first, std::int32_t count) {
    return {list.begin() + first, list.begin() + first + count};
}

struct Row {
    Sequence sequence;
    Ints cells;
    Ints positions;
};

/// What the rows of a batch should be, from nothing but the cells of each sequence and the window.
template <class Cache>
std::vector<Row> expected_rows(const Cache& cache, const Numbers& batch) {
    std::vector<Row> rows;
    for (const numbers::Token& first : batch) {
        const auto is_same = [&](const Row& row) { return row.sequence.value == first.sequence; };
        if (std::any_of(rows.begin(), rows.end(), is_same)) continue;
        Position from = to_end;
        Position to{0};
        for (const numbers::Token& token : batch) {
            if (token.sequence != first.sequence) continue;
            from = std::min(from, cache.window().oldest_visible(Position{token.position}));
            to = std::max(to, Position{token.position + 1});
        }
        Row row{Sequence{first.sequence}, {}, {}};
        cache.visit_cells(row.sequence, [&](Position position, Cell cell, std::int32_t count) {
            for (std::int32_t i = 0; i < count; ++i) {
                const Position p = position + i;
                if (p >= to || (p < from && p.value >= cache.window().sinks())) continue;
                row.cells.push_back(cell + i);
                row.positions.push_back(p.value);
            }
        });
        rows.push_back(row);
    }
    return rows;
}

/// The pages of a row, if it has any, found the slow way.
inline std::optional<Ints> expected_pages(const Row& row, std::int32_t size) {
    Ints pages;
    for (std::size_t i = 0; i < row.cells.size(); ++i) {
        if (row.positions[i] != row.positions[0] + static_cast<std::int32_t>(i)) return std::nullopt;
        if (row.positions[i] % size != row.cells[i] % size) return std::nullopt;
        if (i == 0 || row.positions[i] % size == 0) pages.push_back(row.cells[i] / size);
        if (pages.back() != row.cells[i] / size) return std::nullopt;
    }
    return pages;
}

/// `read` reads lists in the memory of the backend.
template <class Pass, class Read>
void check_lists(Pass& pass, const std::vector<Row>& expected, Read read) {
    const CellLists lists = pass.lists();
    REQUIRE(lists.rows() == static_cast<std::int32_t>(expected.size()));
    const Ints starts = read(lists.starts());
    const Ints lengths = read(lists.lengths());
    const Ints indices = read(lists.indices());
    const CompressedLists compressed = lists.compressed();
    const Ints indptr = read(compressed.indptr);
    const Ints all = read(compressed.indices);
    REQUIRE(indptr.size() == expected.size() + 1);
    REQUIRE(indptr[0] == 0);
    for (std::int32_t r = 0; r < lists.rows(); ++r) {
        const auto i = static_cast<std::size_t>(r);
        REQUIRE(lists.sequence(r) == expected[i].sequence);
        REQUIRE(ints(lists.cells(r)) == expected[i].cells);
        REQUIRE(ints(lists.positions(r)) == expected[i].positions);
        REQUIRE(part(indices, starts[i], lengths[i]) == expected[i].cells);
        REQUIRE(part(all, indptr[i], indptr[i + 1] - indptr[i]) == expected[i].cells);
    }
    REQUIRE(static_cast<std::size_t>(indptr.back()) == all.size());
}

template <class Pass, class Read>
int check_pages(Pass& pass, const std::vector<Row>& expected, std::int32_t size, Read read) {
    const auto pages = pass.pages(size);
    const auto has_none = [&](const Row& row) { return !expected_pages(row, size); };
    const auto refused = std::find_if(expected.begin(), expected.end(), has_none);
    REQUIRE(pages.has_value() == (refused == expected.end()));
    if (!pages) {
        REQUIRE(pages.error() == Refusal{.reason = Reason::no_pages, .sequence = refused->sequence});
        return 0;
    }
    const CompressedLists compressed = pages->compressed();
    const Ints indptr = read(compressed.indptr);
    const Ints all = read(compressed.indices);
    const Ints indices = read(pages->indices());
    const Ints starts = read(pages->starts());
    const Ints counts = read(pages->counts());
    const Ints first_offsets = read(pages->first_offsets());
    const Ints last_lengths = read(pages->last_lengths());
    const Ints lengths = read(pages->lengths());
    for (std::int32_t r = 0; r < pages->rows(); ++r) {
        const auto i = static_cast<std::size_t>(r);
        const Row& row = expected[i];
        const Ints own = *expected_pages(row, size);
        REQUIRE(pages->sequence(r) == row.sequence);
        REQUIRE(ints(pages->pages(r)) == own);
        REQUIRE(part(indices, starts[i], counts[i]) == own);
        REQUIRE(part(all, indptr[i], indptr[i + 1] - indptr[i]) == own);
        if (own.empty()) continue;
        REQUIRE(first_offsets[i] == row.positions.front() % size);
        REQUIRE(last_lengths[i] == row.positions.back() % size + 1);
        REQUIRE(lengths[i] == first_offsets[i] + static_cast<std::int32_t>(row.cells.size()));
    }
    return 1;
}

/// Random operations, with lists asked for in most passes, and looked at in most of these.
template <class Window, class Backend, class Read>
class Trial {
public:
    Trial(unsigned seed, const Window& window, Positions positions, int sequences)
        : random_{seed},
          positions_{positions},
          cache_{numbers::small,
                 {.sequences = sequences,
                  .capacity = 40,
                  .batch = 9,
                  .placement = placement_of(seed),
                  .positions = positions},
                 window},
          page_size_{below(2) == 0 ? 4 : 1 << below(4)} {}

    void run(int steps) {
        for (int i = 0; i < steps; ++i) step();
    }

    int offloaded = 0;
    int passes = 0;

private:
    static Placement placement_of(unsigned seed) {
        const Placement all[] = {CacheLimits{}.placement, Placement::scattered, Placement::contiguous};
        return all[seed / 2 % 3];
    }

    int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
    Sequence any() { return Sequence{below(cache_.sequences())}; }
    Position any_position(Sequence s) { return Position{below(cache_.next(s).value + 2)}; }

    void step() {
        const Sequence s = any();
        switch (below(16)) {
        case 0: {
            const Position begin = any_position(s);
            (void)cache_.remove(s, begin, begin + below(4));
            break;
        }
        case 1:
            (void)cache_.remove(s, any_position(s), to_end);
            break;
        case 2:
            (void)cache_.copy_prefix(any(), s, Position{below(30)});
            break;
        case 3:
            if (auto kept = cache_.snapshot(s)) snapshots_.push_back(*std::move(kept));
            break;
        case 4:
            if (!snapshots_.empty()) {
                (void)cache_.restore(s, snapshots_.back());
                if (below(2) == 0) snapshots_.pop_back();
            }
            break;
        case 5:
            cache_.defragment();
            break;
        case 6:
            if (below(4) == 0) (void)cache_.remove(s, Position{0}, to_end);
            break;
        case 7:
            (void)cache_.schedule(s, cache_.next(s) + 1 + below(5));
            break;
        default:
            pass();
        }
    }

    void pass() {
        Numbers batch;
        std::vector<int> next;
        for (int s = 0; s < cache_.sequences(); ++s) next.push_back(cache_.next(Sequence{s}).value);
        for (int i = 0; i < 1 + below(3); ++i) {
            const int s = any().value;
            const int first = positions_ == Positions::any && below(6) == 0
                                  ? below(next[static_cast<std::size_t>(s)] + 3)
                                  : next[static_cast<std::size_t>(s)];
            const int n = below(3) == 0 ? 3 : 1;
            batch = batch + prompt(s, first, Values(static_cast<std::size_t>(n)));
            next[static_cast<std::size_t>(s)] = std::max(next[static_cast<std::size_t>(s)], first + n);
        }
        auto pass = numbers::begin(cache_, batch);
        if (!pass) {
            (void)cache_.remove(any(), Position{0}, to_end);
            return;
        }
        switch (below(8)) {
        case 0:
            break;
        case 1:
            (void)pass->lists();
            (void)pass->pages(page_size_);
            break;
        default:
            check(*pass, batch);
        }
        if (below(5) == 0) return;
        pass->mark_put(0);
        pass->commit();
    }

    template <class Pass>
    void check(Pass& pass, const Numbers& batch) {
        ++passes;
        const std::vector<Row> expected = expected_rows(cache_, batch);
        const auto read = [&](std::span<const std::int32_t> list) { return Read{}(cache_, list); };
        check_lists(pass, expected, read);
        if (below(3) != 0) offloaded += check_pages(pass, expected, below(20) == 0 ? 2 : page_size_, read);
        for (std::size_t i = 0; i < batch.size(); ++i) { // the row has what each token sees
            std::set<Cell> seen;
            for (const CellRange& run : pass.visible(static_cast<std::int32_t>(i)))
                for (Cell c = run.first; c < run.first + run.count; ++c) seen.insert(c);
            const auto row = std::find_if(expected.begin(), expected.end(),
                                          [&](const Row& one) { return one.sequence.value == batch[i].sequence; });
            const std::set<Cell> all{row->cells.begin(), row->cells.end()};
            REQUIRE(std::includes(all.begin(), all.end(), seen.begin(), seen.end()));
            if (batch.size() == 1) REQUIRE(all == seen);
        }
    }

    std::mt19937 random_;
    Positions positions_;
    Cache<StandardV<float>, Window, numbers::Adding, Backend> cache_;
    std::int32_t page_size_;
    std::vector<CellSnapshot> snapshots_;
};

template <class Backend, class Read, class Window>
void run_trials(const Window& window, unsigned trials) {
    int offloaded = 0;
    int passes = 0;
    for (unsigned seed = 0; seed < trials; ++seed) {
        Trial<Window, Backend, Read> trial{seed, window, seed % 2 == 0 ? Positions::any : Positions::consecutive,
                                           seed % 3 == 0 ? 1 : 3};
        trial.run(250);
        offloaded += trial.offloaded;
        passes += trial.passes;
    }
    CHECK(passes > 60 * static_cast<int>(trials));
    CHECK(offloaded > static_cast<int>(trials));
}

template <class Backend, class Read>
void run_all_trials(unsigned trials) {
    run_trials<Backend, Read>(FullCausal{}, trials);
    run_trials<Backend, Read>(SlidingWindow<7>{}, trials);
    run_trials<Backend, Read>(SlidingWindow<5>{{.retention = 8, .sinks = 2}}, trials);
    run_trials<Backend, Read>(ChunkedAttention<6>{}, trials);
}

} // namespace list_trial
