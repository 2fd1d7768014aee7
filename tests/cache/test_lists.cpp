// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The cells that a batch sees, as index lists and as page tables.
#include "../backend/list_writer.hpp"
#include "../hybrid/failing_allocations.hpp"
#include "../violations.hpp"
#include "list_trial.hpp"

#include <new>

namespace test_lists {

using namespace cellar;
using cellar_test::ListWriter;
using namespace list_trial;
using numbers::feed;
using numbers::Numbers;
using numbers::prompt;
using numbers::Values;

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
    run_all_trials<HostBackend, ReadHost>(60);
}

TEST_CASE("random operations: lists that a backend writes are what a scan of the sequences finds") {
    run_all_trials<ListWriter, ReadHost>(30);
}

namespace {

using Written = Cache<StandardV<float>, FullCausal, DisabledShift, ListWriter>;

Numbers decoded(const Written& cache, const std::vector<int>& sequences) {
    Numbers batch;
    for (const int s : sequences) batch.push_back({s, cache.next(Sequence{s}).value, 1});
    return batch;
}

} // namespace

TEST_CASE("a backend that writes lists gets what changed, and nothing twice") {
    Written cache{numbers::small, {.sequences = 4, .capacity = 100, .batch = 60}};
    cache.reserve_lists(100);
    const auto written = [&](const std::vector<int>& sequences) {
        const std::int64_t before = ListWriter::written;
        const Numbers batch = decoded(cache, sequences);
        auto pass = numbers::begin(cache, batch);
        (void)pass->lists();
        const std::int64_t entries = ListWriter::written - before;
        (void)pass->lists();
        CHECK(ListWriter::written == before + entries);
        check_lists(*pass, expected_rows(cache, batch), ints);
        numbers::put(*pass, cache.shape(), batch);
        pass->commit();
        return entries;
    };
    const std::int64_t before = ListWriter::written;
    for (int s = 0; s < 4; ++s) feed(cache, prompt(s, 0, Values(10)));
    CHECK(ListWriter::written == before); // nobody asked for lists
    CHECK(written({0}) == 11 + 1);        // cells and a length; 0 begins where new memory says
    CHECK(written({0}) == 1 + 1);
    CHECK(written({1}) == 11 + 2);
    feed(cache, prompt(0, 12, Values(5)));
    CHECK(written({0}) == 6 + 2);
    CHECK(written({0, 1}) == 2 + 3);
    CHECK(written({0, 1}) == 2 + 2);
    {
        auto pass = numbers::begin(cache, prompt(1, 13, Values(3)));
        (void)pass->lists();
    }
    REQUIRE(cache.remove(Sequence{0}, Position{15}, to_end));
    CHECK(written({0, 1}) == 2 + 3); // both rows begin elsewhere than in the pass that was dropped
}

namespace {

// Does it again after each call of the backend that throws. Returns how many of them did.
template <class F>
int writes_that_throw(F f) {
    for (int calls = 0;; ++calls) {
        ListWriter::throws_after = calls;
        try {
            f();
            ListWriter::throws_after = -1;
            return calls;
        } catch (const std::bad_alloc&) {}
    }
}

} // namespace

TEST_CASE("entries that a backend could not upload are not written together with those of the next pass") {
    Written cache{numbers::small, {.sequences = 4, .capacity = 100, .batch = 60}};
    for (int s = 0; s < 4; ++s) feed(cache, prompt(s, 0, Values(static_cast<std::size_t>(10 + s))));
    const std::int64_t repeated = ListWriter::repeated;
    const auto lists_throw = [&](const std::vector<int>& sequences) {
        auto pass = numbers::begin(cache, decoded(cache, sequences));
        ListWriter::throws_after = 0;
        CHECK_THROWS_AS((void)pass->lists(), std::bad_alloc);
        ListWriter::throws_after = -1;
    };
    const auto check = [&](const std::vector<int>& sequences) {
        const Numbers batch = decoded(cache, sequences);
        auto pass = numbers::begin(cache, batch);
        const CellLists lists = pass->lists();
        for (std::size_t r = sequences.size(); r < 4; ++r) CHECK(lists.lengths().data()[r] == 0);
        check_lists(*pass, expected_rows(cache, batch), ints);
    };
    lists_throw({0, 1, 2});
    check({3, 0}); // other numbers for the same rows of the batch
    lists_throw({2, 1});
    lists_throw({1, 3, 2});
    check({2});
    lists_throw({0, 1, 2, 3});
    cache.reserve_lists(1000); // other places for the same rows
    check({1});
    {
        const Numbers batch = decoded(cache, {1, 2});
        auto pass = numbers::begin(cache, batch);
        const CellLists lists = pass->lists();
        CHECK(writes_that_throw([&] { (void)lists.compressed(); }) == 1);
        check_lists(*pass, expected_rows(cache, batch), ints);
    }
    {
        auto pass = numbers::begin(cache, decoded(cache, {3, 0, 1}));
        const CellLists lists = pass->lists();
        ListWriter::throws_after = 0;
        CHECK_THROWS_AS((void)lists.compressed(), std::bad_alloc);
        ListWriter::throws_after = -1;
    }
    check({0, 2});
    CHECK(ListWriter::repeated == repeated);
}

TEST_CASE("long rows whose upload throws in between are complete after the next call") {
    constexpr int most = 1 << 15; // entries of one upload
    for (const int tokens : {most, most + 1, 2 * most - 1}) {
        Written cache{numbers::small, {.sequences = 2, .capacity = 2 * most, .batch = 2 * most}};
        feed(cache, prompt(1, 0, Values(static_cast<std::size_t>(tokens - 1))));
        const Numbers batch = decoded(cache, {1});
        auto pass = numbers::begin(cache, batch);
        const std::int64_t repeated = ListWriter::repeated;
        CHECK(writes_that_throw([&] { (void)pass->lists(); }) > 1);
        check_lists(*pass, expected_rows(cache, batch), ints);
        CHECK(ListWriter::repeated == repeated);
    }
}

TEST_CASE("rows that a backend writes are empty behind those of the batch") {
    Written cache{numbers::small, {.sequences = 4, .capacity = 100, .batch = 60}};
    for (int s = 0; s < 4; ++s) feed(cache, prompt(s, 0, Values(10)));
    for (const auto& sequences : {std::vector<int>{0, 1, 2, 3}, {2, 1}, {3}, {1, 3, 0}}) {
        const Numbers batch = decoded(cache, sequences);
        auto pass = numbers::begin(cache, batch);
        const CellLists lists = pass->lists();
        for (std::size_t r = 0; r < 4; ++r) {
            CHECK(lists.lengths().data()[r] == (r < sequences.size() ? 11 : 0));
            if (r >= sequences.size()) CHECK(lists.starts().data()[r] == 0);
        }
        check_lists(*pass, expected_rows(cache, batch), ints);
    }
}

TEST_CASE("rows that a backend compresses have the empty ones of an encoder's pass, and are not compressed again") {
    EncoderMemory<StandardV<float>, ListWriter> inputs{
        {.layers = 1, .kv_heads = 1, .head_dim = 1},
        {.sequences = 3, .capacity = 20, .batch = 8, .placement = Placement::scattered}};
    auto written = inputs.write(Sequence{1}, Position{0}, 3).value();
    written.put(0, Values(3), Values(3));
    written.commit();
    const auto indptr_of = [&](const BatchBuilder& batch) {
        auto pass = inputs.begin(batch).value();
        CHECK(ints(pass.lists().compressed().indices).size() == 3);
        return ints(pass.lists().compressed().indptr);
    };
    const int before = ListWriter::compressed;
    CHECK(indptr_of(BatchBuilder{Sequence{1}, Position{5}}) == Ints{0, 3});
    CHECK(indptr_of(BatchBuilder{Sequence{1}, Position{6}}.add(Sequence{0}, Position{6})) == Ints{0, 3, 3});
    CHECK(ListWriter::compressed == before + 2);
    CHECK(indptr_of(BatchBuilder{Sequence{1}, Position{9}}.add(Sequence{0}, Position{6}))
          == Ints{0, 3, 3}); // the same rows
    CHECK(ListWriter::compressed == before + 2);
    CHECK(indptr_of(BatchBuilder{Sequence{2}, Position{7}}.add(Sequence{1}, Position{7})) == Ints{0, 0, 3});
    CHECK(ListWriter::compressed == before + 3);
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
        if (p == 120) REQUIRE(cache.remove(Sequence{1}, Position{10}, Position{20}));
    }
    REQUIRE(cache.remove(Sequence{0}, Position{140}, Position{142})); // rebuilds the row from there on
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
    Cache<Blocked<float, page>> cache{{.layers = 1, .kv_heads = heads, .head_dim = dim},
                                      {.sequences = 2, .capacity = 32, .batch = 16, .placement = Placement::scattered}};
    const auto rows = [](int s, int first, int n, float sign) {
        Values all;
        for (int p = first; p < first + n; ++p)
            for (int e = 0; e < heads * dim; ++e) all.push_back(sign * static_cast<float>(1000 * s + 10 * p + e));
        return all;
    };
    const auto run = [&](int s, int first, int n) {
        BatchBuilder tokens;
        for (int p = first; p < first + n; ++p) tokens.add(Sequence{s}, Position{p});
        auto pass = cache.begin(tokens).value();
        pass.put(0, rows(s, first, n, 1), rows(s, first, n, -1));
        pass.commit();
    };
    run(0, 0, 8); // two pages each, in turn
    run(1, 0, 8);
    run(0, 8, 4);
    run(1, 8, 3);
    {
        auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{12}}.add(Sequence{1}, Position{11}))
                        .value(); // 0 gets a cell in the page of 1
        CHECK(pass.pages(page).error() == Refusal{.reason = Reason::no_pages, .sequence = Sequence{0}});
    }
    auto pass = cache.begin(BatchBuilder{Sequence{1}, Position{11}}).value();
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
    Cache<StandardV<float>, SlidingWindow<6>> cache{{.layers = 1, .kv_heads = 1, .head_dim = 1},
                                                    {.capacity = 64, .batch = 16},
                                                    SlidingWindow<6>{{.retention = 40}}};
    BatchBuilder tokens;
    for (int p = 0; p < 11; ++p) tokens.add(Sequence{0}, Position{p});
    auto pass = cache.begin(tokens).value();
    pass.put(0, Values(11), Values(11));
    CHECK(ints(pass.pages(4).value().pages(0)) == Ints{0, 1, 2});
    pass.commit();
    auto next = cache.begin(BatchBuilder{Sequence{0}, Position{11}}).value();
    const PageLists pages = next.pages(4).value();
    CHECK(ints(pages.pages(0)) == Ints{1, 2});
    CHECK(ints(pages.first_offsets()) == Ints{2});
    CHECK(ints(pages.last_lengths()) == Ints{4});
    CHECK(ints(pages.lengths()) == Ints{8});
    CHECK(violation_of([&] { (void)next.pages(0); }) == "pages: a page size of 0, expected 1 or more");
}

TEST_CASE("a page may be longer than any sequence") {
    Cache<StandardV<float>> cache{{.layers = 1, .kv_heads = 1, .head_dim = 1}, {.capacity = 16, .batch = 8}};
    for (int first = 0; first < 16; first += 8) {
        auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{first}, 8}).value();
        pass.put(0, Values(8), Values(8));
        for (const std::int32_t size : {INT32_MAX, 1 << 30}) {
            const PageLists pages = pass.pages(size).value();
            CHECK(ints(pages.pages(0)) == Ints{0});
            CHECK(ints(pages.lengths()) == Ints{first + 8});
        }
        pass.commit();
    }
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

    EncoderMemory<> inputs{{.layers = 1, .kv_heads = 1, .head_dim = 1},
                           {.sequences = 2, .capacity = 20, .batch = 8, .placement = Placement::scattered}};
    inputs.reserve_lists(20);
    for (const int position : {3, 1, 3}) {
        auto written = inputs.write(Sequence{0}, Position{position}, 3).value();
        written.put(0, Values(3), Values(3));
        written.commit();
        auto read = inputs.begin(BatchBuilder{Sequence{0}, Position{2}}.add(Sequence{1}, Position{5})).value();
        CHECK(read.lists().rows() == 2);
        CHECK(read.lists().cells(0).size() == (position == 3 && inputs.tokens(Sequence{0}) == 3 ? 0 : 3));
        CHECK(read.lists().cells(1).empty());
    }
    {
        auto read = inputs.begin(BatchBuilder{Sequence{0}, Position{4}}).value();
        CHECK(ints(read.lists().cells(0)) == Ints{3, 4, 5, 0, 1, 2, 6, 7, 8});
        CHECK(ints(read.lists().positions(0)) == Ints{1, 1, 1, 3, 3, 3, 3, 3, 3});
    }
    auto earlier = inputs.begin(BatchBuilder{Sequence{0}, Position{2}}).value();
    CHECK(ints(earlier.lists().cells(0)) == Ints{3, 4, 5});
}

TEST_CASE("lists of more entries than 32 bits count throw, and the pass goes on") {
    constexpr std::int32_t sequences = 20'000;
    constexpr std::int32_t tokens = 108'000; // a table of that many entries for each sequence has more than 2^31
    static_assert(std::int64_t{sequences} * tokens > INT32_MAX);
    Cache<StandardV<float>, FullCausal, DisabledShift, NoData> cache{
        {.layers = 1, .kv_heads = 1, .head_dim = 1}, {.sequences = sequences, .cells = tokens + 64, .batch = 1000}};
    for (std::int32_t done = 0; done < tokens; done += 1000) cache.begin(Sequence{0}, 1000).value().commit();
    {
        auto pass = cache.begin(Sequence{0}, 1).value();
        CHECK_THROWS_AS((void)pass.lists(), std::bad_alloc);
        CHECK(pass.visible(0).size() == 1);
        pass.commit();
    }
    CHECK(cache.next(Sequence{0}) == Position{tokens + 1});
    auto pass = cache.begin(Sequence{7}, 3).value();
    CHECK(ints(pass.lists().positions(0)) == Ints{0, 1, 2});
}

TEST_CASE_TEMPLATE("lists without memory change nothing, and are right once there is memory", Backend, HostBackend,
                   ListWriter) {
    Cache<StandardV<float>, SlidingWindow<40>, numbers::Adding, Backend> cache{
        numbers::small, {.sequences = 2, .capacity = 200, .batch = 100}};
    int failures = 0;
    for (int p = 0; p < 180; p += p < 100 ? 20 : 1) {
        const Numbers batch = prompt(0, p, Values(p < 100 ? 20 : 1)) + prompt(1, p, Values(p < 100 ? 20 : 1));
        auto pass = numbers::begin(cache, batch);
        const std::vector<Row> expected = expected_rows(cache, batch);
        failures += failures_of([&] { (void)pass->lists().compressed(); }, [] {});
        failures += failures_of([&] { (void)pass->pages(1).value().compressed(); }, [] {});
        check_lists(*pass, expected, ints);
        REQUIRE(check_pages(*pass, expected, 1, ints) == 1);
        numbers::put(*pass, cache.shape(), batch);
        pass->commit();
    }
    CHECK(failures > 5);
    const auto check = [&] {
        auto pass = numbers::begin(cache, prompt(0, 180, {1}));
        check_lists(*pass, expected_rows(cache, prompt(0, 180, {1})), ints);
        return pass->lists().pitch();
    };
    const std::int32_t before = check();
    CHECK(failures_of([&] { cache.reserve_lists(1000, 4); }, check) > 2);
    CHECK(check() > before);
    CHECK_THROWS_AS(cache.reserve_lists(INT32_MAX), std::bad_alloc); // more entries than 32 bits count
    CHECK(violation_of([&] { cache.reserve_lists(-1); }) == "reserve_lists: -1 cells, pages of 0, expected 0 or more");
    CHECK(violation_of([&] { cache.reserve_lists(2000, -4); })
          == "reserve_lists: 2000 cells, pages of -4, expected 0 or more");
    CHECK(check() > before);
}

} // namespace test_lists
