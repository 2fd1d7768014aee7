// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The cells that a batch sees, as index lists and as page tables.
#include "../hybrid/failing_allocations.hpp"
#include "../violations.hpp"
#include "numbers.hpp"

#include <optional>
#include <random>
#include <set>

using namespace cellar;
using numbers::feed;
using numbers::Numbers;
using numbers::prompt;
using numbers::Values;

namespace {

using Ints = std::vector<std::int32_t>;

Ints ints(std::span<const std::int32_t> list) {
    return {list.begin(), list.end()};
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
            from = std::min(from, cache.window().oldest_visible({token.position}));
            to = std::max(to, Position{token.position + 1});
        }
        Row row{{first.sequence}, {}, {}};
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
std::optional<Ints> expected_pages(const Row& row, std::int32_t size) {
    Ints pages;
    for (std::size_t i = 0; i < row.cells.size(); ++i) {
        if (row.positions[i] != row.positions[0] + static_cast<std::int32_t>(i)) return std::nullopt;
        if (row.positions[i] % size != row.cells[i] % size) return std::nullopt;
        if (i == 0 || row.positions[i] % size == 0) pages.push_back(row.cells[i] / size);
        if (pages.back() != row.cells[i] / size) return std::nullopt;
    }
    return pages;
}

template <class Pass>
void check_lists(Pass& pass, const std::vector<Row>& expected) {
    const CellLists lists = pass.lists();
    const CompressedLists compressed = lists.compressed();
    REQUIRE(lists.rows() == static_cast<std::int32_t>(expected.size()));
    REQUIRE(compressed.indptr.size() == expected.size() + 1);
    REQUIRE(compressed.indptr[0] == 0);
    for (std::int32_t r = 0; r < lists.rows(); ++r) {
        const auto i = static_cast<std::size_t>(r);
        REQUIRE(lists.sequence(r) == expected[i].sequence);
        REQUIRE(ints(lists.cells(r)) == expected[i].cells);
        REQUIRE(ints(lists.positions(r)) == expected[i].positions);
        const auto start = static_cast<std::size_t>(lists.starts()[i]);
        const auto length = static_cast<std::size_t>(lists.lengths()[i]);
        REQUIRE(ints(lists.indices().subspan(start, length)) == expected[i].cells);
        const auto first = static_cast<std::size_t>(compressed.indptr[i]);
        const auto end = static_cast<std::size_t>(compressed.indptr[i + 1]);
        REQUIRE(ints(compressed.indices.subspan(first, end - first)) == expected[i].cells);
    }
    REQUIRE(static_cast<std::size_t>(compressed.indptr.back()) == compressed.indices.size());
}

template <class Pass>
int check_pages(Pass& pass, const std::vector<Row>& expected, std::int32_t size) {
    const auto pages = pass.pages(size);
    const auto has_none = [&](const Row& row) { return !expected_pages(row, size); };
    const auto refused = std::find_if(expected.begin(), expected.end(), has_none);
    REQUIRE(pages.has_value() == (refused == expected.end()));
    if (!pages) {
        REQUIRE(pages.error() == Refusal{.reason = Reason::no_pages, .sequence = refused->sequence});
        return 0;
    }
    const CompressedLists compressed = pages->compressed();
    for (std::int32_t r = 0; r < pages->rows(); ++r) {
        const auto i = static_cast<std::size_t>(r);
        const Row& row = expected[i];
        const Ints own = *expected_pages(row, size);
        REQUIRE(pages->sequence(r) == row.sequence);
        REQUIRE(ints(pages->pages(r)) == own);
        const auto first = static_cast<std::size_t>(pages->starts()[i]);
        REQUIRE(ints(pages->indices().subspan(first, static_cast<std::size_t>(pages->counts()[i]))) == own);
        const auto begin = static_cast<std::size_t>(compressed.indptr[i]);
        const auto end = static_cast<std::size_t>(compressed.indptr[i + 1]);
        REQUIRE(ints(compressed.indices.subspan(begin, end - begin)) == own);
        if (own.empty()) continue;
        REQUIRE(pages->first_offsets()[i] == row.positions.front() % size);
        REQUIRE(pages->last_lengths()[i] == row.positions.back() % size + 1);
        REQUIRE(pages->lengths()[i] == pages->first_offsets()[i] + static_cast<std::int32_t>(row.cells.size()));
    }
    return 1;
}

/// Random operations, with lists asked for in most passes.
template <class Window>
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

    int paged = 0;
    int passes = 0;

private:
    static Placement placement_of(unsigned seed) {
        const Placement all[] = {CacheLimits{}.placement, Placement::scattered, Placement::contiguous};
        return all[seed / 2 % 3];
    }

    int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
    Sequence any() { return {below(cache_.sequences())}; }
    Position any_position(Sequence s) { return {below(cache_.next(s).value + 2)}; }

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
            (void)cache_.copy_prefix(any(), s, below(30));
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
            if (below(4) == 0) (void)cache_.remove(s, {0}, to_end);
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
        for (int s = 0; s < cache_.sequences(); ++s) next.push_back(cache_.next({s}).value);
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
            (void)cache_.remove(any(), {0}, to_end);
            return;
        }
        if (below(4) != 0) check(*pass, batch);
        if (below(5) == 0) return;
        numbers::put(*pass, cache_.shape(), batch);
        pass->commit();
    }

    template <class Pass>
    void check(Pass& pass, const Numbers& batch) {
        ++passes;
        const std::vector<Row> expected = expected_rows(cache_, batch);
        check_lists(pass, expected);
        if (below(3) != 0) paged += check_pages(pass, expected, below(20) == 0 ? 2 : page_size_);
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
    numbers::Cache<Window> cache_;
    std::int32_t page_size_;
    std::vector<CellSnapshot> snapshots_;
};

template <class Window>
void run_trials(const Window& window) {
    int paged = 0;
    int passes = 0;
    for (unsigned seed = 0; seed < 60; ++seed) {
        Trial<Window> trial{seed, window, seed % 2 == 0 ? Positions::any : Positions::consecutive,
                            seed % 3 == 0 ? 1 : 3};
        trial.run(250);
        paged += trial.paged;
        passes += trial.passes;
    }
    CHECK(passes > 4000);
    CHECK(paged > 100);
}

} // namespace

TEST_CASE("a row has what a sequence sees, in the order of positions") {
    numbers::Cache<SlidingWindow<3>> cache{
        numbers::small,
        {.sequences = 2, .capacity = 30, .batch = 12, .placement = Placement::scattered},
        SlidingWindow<3>{{.sinks = 1}}};
    for (int p = 0; p < 6; ++p) feed(cache, {{1, p, 1}, {0, p, 2}});
    auto pass = numbers::begin(cache, {{1, 6, 1}});
    const CellLists lists = pass->lists();
    REQUIRE(lists.rows() == 1);
    CHECK(lists.sequence(0) == Sequence{1});
    CHECK(ints(lists.positions(0)) == Ints{0, 4, 5, 6});
    const Ints cells = ints(lists.cells(0));
    CHECK(cells.front() == 0);
    CHECK(cells.back() == pass->cells()[0]);
    CHECK(ints(lists.compressed().indptr) == Ints{0, 4});
    CHECK(ints(lists.compressed().indices) == cells);
    CHECK(violation_of([&] { (void)lists.cells(1); }) == "lists: row 1, expected 0 to 0");
}

TEST_CASE("random operations: the lists are what a scan of the sequences finds") {
    run_trials(FullCausal{});
    run_trials(SlidingWindow<7>{});
    run_trials(SlidingWindow<5>{{.retention = 8, .sinks = 2}});
    run_trials(ChunkedAttention<6>{});
}

TEST_CASE("a decode step appends one entry and touches no other, and a removal elsewhere rebuilds nothing") {
    numbers::Cache<> cache{numbers::small, {.sequences = 2, .capacity = 200, .batch = 100}};
    cache.reserve_lists(200);
    feed(cache, prompt(0, 0, Values(100)));
    feed(cache, prompt(1, 0, Values(50)));
    {
        auto pass = numbers::begin(cache, prompt(0, 100, {1}));
        (void)pass->lists();
    }
    const std::int32_t* address = nullptr;
    for (int p = 100; p < 150; ++p) {
        auto pass = numbers::begin(cache, prompt(0, p, {1}));
        const CellLists lists = pass->lists();
        auto* const row = const_cast<std::int32_t*>(lists.cells(0).data());
        if (address == nullptr) address = row;
        CHECK(row == address);
        CHECK(lists.starts()[0] == 0);
        CHECK(lists.lengths()[0] == p + 1);
        CHECK(row[p] == pass->cells()[0]);
        if (p > 100) CHECK(row[p - 1] == -p); // what was written over entries stays: they were not written again
        row[p] = -p - 1;
        numbers::put(*pass, cache.shape(), prompt(0, p, {1}));
        pass->commit();
        if (p == 120) REQUIRE(cache.remove({1}, {10}, {20}));
    }
    REQUIRE(cache.remove({0}, {140}, {142})); // rebuilds the row from there on
    auto pass = numbers::begin(cache, prompt(0, 148, {1}));
    const CellLists lists = pass->lists();
    CHECK(lists.cells(0)[139] == -140);
    CHECK(lists.cells(0)[140] >= 0);
}

TEST_CASE("a decode step of a sliding window moves nothing but its edges and sinks") {
    numbers::Cache<SlidingWindow<20>> cache{
        numbers::small, {.capacity = 100, .batch = 20}, SlidingWindow<20>{{.sinks = 2}}};
    cache.reserve_lists(22);
    feed(cache, prompt(0, 0, Values(20)));
    int moved = 0;
    const std::int32_t* address = nullptr;
    for (int p = 20; p < 220; ++p) {
        auto pass = numbers::begin(cache, prompt(0, p, {1}));
        const CellLists lists = pass->lists();
        const Ints positions = ints(lists.positions(0));
        CHECK(positions.back() == p);
        CHECK(positions.size() == static_cast<std::size_t>(p < 22 ? p + 1 : 22));
        if (address != nullptr) moved += lists.cells(0).data() < address ? 1 : 0;
        address = lists.cells(0).data();
        CHECK(lists.pitch() == 48); // 2 * 22, in whole lines
        numbers::put(*pass, cache.shape(), prompt(0, p, {1}));
        pass->commit();
    }
    CHECK(moved <= 200 / (48 - 22) + 1);
    CHECK(moved > 0);
}

TEST_CASE("keys and values are read through a page table with plain loops") {
    constexpr int heads = 2;
    constexpr int dim = 3;
    constexpr int page = 4;
    Cache<Blocked<float, page>> cache{{1, heads, dim},
                                      {.sequences = 2, .capacity = 32, .batch = 16, .placement = Placement::scattered}};
    const auto rows = [](int s, int first, int n, float sign) {
        Values all;
        for (int p = first; p < first + n; ++p)
            for (int e = 0; e < heads * dim; ++e) all.push_back(sign * static_cast<float>(1000 * s + 10 * p + e));
        return all;
    };
    const auto run = [&](int s, int first, int n) {
        Tokens tokens;
        for (int p = first; p < first + n; ++p) tokens.add({s}, {p});
        auto pass = cache.begin(tokens).value();
        pass.put(0, rows(s, first, n, 1), rows(s, first, n, -1));
        pass.commit();
    };
    run(0, 0, 8); // two pages each, in turn
    run(1, 0, 8);
    run(0, 8, 4);
    run(1, 8, 3);
    {
        auto pass = cache.begin(Tokens{{0}, {12}}.add({1}, {11})).value(); // 0 gets a cell in the page of 1
        CHECK(pass.pages(page).error() == Refusal{.reason = Reason::no_pages, .sequence = {0}});
    }
    auto pass = cache.begin(Tokens{{1}, {11}}).value();
    pass.put(0, rows(1, 11, 1, 1), rows(1, 11, 1, -1));

    const PageLists pages = pass.pages(page).value();
    const auto memory = pass.in_place(0);
    const float* const k = memory.keys.pointer;
    const float* const v = memory.values.pointer;
    REQUIRE(pages.lengths()[0] == 12);
    for (int p = 0; p < pages.lengths()[0]; ++p)
        for (int h = 0; h < heads; ++h)
            for (int d = 0; d < dim; ++d) { // [page, head, place in page, d]
                const int number = pages.indices()[static_cast<std::size_t>(pages.starts()[0] + p / page)];
                const int at = ((number * heads + h) * page + p % page) * dim + d;
                const auto expected = static_cast<float>(1000 + 10 * p + h * dim + d);
                CHECK(k[at] == expected);
                CHECK(v[at] == -expected);
            }
}

TEST_CASE("the pages of a window say where its first token is") {
    Cache<StandardV<float>, SlidingWindow<6>> cache{
        {1, 1, 1}, {.capacity = 64, .batch = 16}, SlidingWindow<6>{{.retention = 40}}};
    Tokens tokens;
    for (int p = 0; p < 11; ++p) tokens.add({0}, {p});
    auto pass = cache.begin(tokens).value();
    pass.put(0, Values(11), Values(11));
    CHECK(ints(pass.pages(4).value().pages(0)) == Ints{0, 1, 2});
    pass.commit();
    auto next = cache.begin(Tokens{{0}, {11}}).value();
    const PageLists pages = next.pages(4).value();
    CHECK(ints(pages.pages(0)) == Ints{1, 2});
    CHECK(ints(pages.first_offsets()) == Ints{2});
    CHECK(ints(pages.last_lengths()) == Ints{4});
    CHECK(ints(pages.lengths()) == Ints{8});
    CHECK(violation_of([&] { (void)next.pages(0); }) == "pages: a page size of 0, expected 1 or more");
}

TEST_CASE("groups see their last token, reserved passes have no rows, and encoders' passes have those of the inputs") {
    numbers::Cache<> cache{numbers::small, {.capacity = 12, .batch = 8}};
    auto pass = numbers::begin(cache, {{0, 0, 1, 0}, {0, 1, 2, 0}, {0, 2, 3, 0}});
    CHECK(ints(pass->lists().cells(0)) == Ints{0, 1, 2});
    pass->drop();
    auto reserved = cache.reserve(3);
    CHECK(reserved.lists().rows() == 0);
    CHECK(reserved.pages(4).value().rows() == 0);
    CHECK(ints(reserved.lists().compressed().indptr) == Ints{0});
    reserved.drop();

    EncoderMemory<> inputs{{1, 1, 1}, {.sequences = 2, .capacity = 20, .batch = 8, .placement = Placement::scattered}};
    inputs.reserve_lists(20);
    for (const int position : {3, 1, 3}) {
        auto written = inputs.write({0}, {position}, 3).value();
        written.put(0, Values(3), Values(3));
        written.commit();
        auto read = inputs.begin(Tokens{{0}, {2}}.add({1}, {5})).value();
        CHECK(read.lists().rows() == 2);
        CHECK(read.lists().cells(0).size() == (position == 3 && inputs.tokens({0}) == 3 ? 0 : 3));
        CHECK(read.lists().cells(1).empty());
    }
    {
        auto read = inputs.begin(Tokens{{0}, {4}}).value();
        CHECK(ints(read.lists().cells(0)) == Ints{3, 4, 5, 0, 1, 2, 6, 7, 8});
        CHECK(ints(read.lists().positions(0)) == Ints{1, 1, 1, 3, 3, 3, 3, 3, 3});
    }
    auto earlier = inputs.begin(Tokens{{0}, {2}}).value();
    CHECK(ints(earlier.lists().cells(0)) == Ints{3, 4, 5});
}

TEST_CASE("lists without memory change nothing, and are right once there is memory") {
    numbers::Cache<SlidingWindow<40>> cache{numbers::small, {.sequences = 2, .capacity = 200, .batch = 100}};
    int failures = 0;
    for (int p = 0; p < 180; p += p < 100 ? 20 : 1) {
        const Numbers batch = prompt(0, p, Values(p < 100 ? 20 : 1)) + prompt(1, p, Values(p < 100 ? 20 : 1));
        auto pass = numbers::begin(cache, batch);
        const std::vector<Row> expected = expected_rows(cache, batch);
        failures += failures_of([&] { (void)pass->lists().compressed(); }, [] {});
        failures += failures_of([&] { (void)pass->pages(1).value().compressed(); }, [] {});
        check_lists(*pass, expected);
        REQUIRE(check_pages(*pass, expected, 1) == 1);
        numbers::put(*pass, cache.shape(), batch);
        pass->commit();
    }
    CHECK(failures > 10);
    const auto check = [&] {
        auto pass = numbers::begin(cache, prompt(0, 180, {1}));
        check_lists(*pass, expected_rows(cache, prompt(0, 180, {1})));
        return pass->lists().pitch();
    };
    const std::int32_t before = check();
    CHECK(failures_of([&] { cache.reserve_lists(1000, 4); }, check) > 2);
    CHECK(check() > before);
    CHECK(violation_of([&] { cache.reserve_lists(INT32_MAX); })
          == "lists: rows of 4294967296 entries for 2 sequences, expected at most 2147483647 entries in all");
}
