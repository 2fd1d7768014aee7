// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Sequences that share prefixes of any length have pages.
#include "numbers.hpp"
#include <cellar/cache/audit.hpp>
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace test_form_pages {

using namespace cellar;

namespace {

struct Count : StateTensor<1> {};

using Pool = numbers::Cache<>;
using List = std::vector<std::int32_t>;

/// n tokens of s, each a number of its own.
numbers::Numbers next_tokens(const Pool& cache, Sequence s, int n, int& number) {
    numbers::Numbers tokens;
    for (int i = 0; i < n; ++i)
        tokens.push_back({s.value, cache.next(s).value + i, static_cast<float>(number++ % 100'000)});
    return tokens;
}

/// A token as it is stored: its key is its value, and by how much `remove` moved it.
struct Stored {
    std::int32_t key = 0;
    std::int32_t value = 0;

    bool operator==(const Stored&) const = default;
};

/// What a kernel reads through the page table of a row.
template <class Pass>
std::vector<Stored> read(const Pass& pass, const PageLists& pages, std::int32_t row, int layer) {
    std::vector<Stored> tokens;
    const auto keys = pass.keys(layer);
    const auto of_values = pass.values(layer);
    const std::int32_t first = pages.first_offsets()[static_cast<std::size_t>(row)];
    const std::int32_t end = pages.lengths()[static_cast<std::size_t>(row)];
    for (std::int32_t i = first; i < end; ++i) {
        const auto page = static_cast<std::size_t>(i / pages.page_size());
        const Cell cell = pages.pages(row)[page] * pages.page_size() + i % pages.page_size() - pass.history().first;
        tokens.push_back(
            {static_cast<std::int32_t>(keys(cell, 0, 1)), static_cast<std::int32_t>(of_values(cell, 0, 0))});
    }
    return tokens;
}
std::vector<Stored> unmoved(const List& values) {
    std::vector<Stored> tokens;
    for (const std::int32_t value : values) tokens.push_back({value, value});
    return tokens;
}

/// Random operations on sequences that share prefixes. After each, all sequences form pages, and keys and values are
/// read through the page tables. A sequence that is refused has too little room.
class History {
public:
    History(unsigned seed, std::int32_t page, Cell cells)
        : random_{seed}, page_{page}, cache_{numbers::small, {.sequences = users, .cells = cells, .batch = 64}} {}

    void step() {
        const Sequence s{below(users)};
        const int operation = below(10);
        if (operation < 5) append(s, 1 + below(operation == 0 ? 40 : 5));
        if (operation == 5 || operation == 6) fork(s, Sequence{below(users)});
        if (operation == 7) cut(s, below(own(s) + 1), own(s)); // perhaps into a page that it shares
        if (operation == 8) cut(s, 0, own(s));
        if (operation == 9) close_gap(s);
        for (Sequence each{0}; each.value < users; ++each.value) check(each);
        REQUIRE(audit(cache_) == "");
    }

    int formed() const { return formed_; }
    int refused() const { return refused_; }

private:
    static constexpr int users = 6;

    int below(int n) { return std::uniform_int_distribution<int>{0, n - 1}(random_); }
    int own(Sequence s) const { return static_cast<int>(tokens_[static_cast<std::size_t>(s.value)].size()); }
    std::vector<Stored>& of(Sequence s) { return tokens_[static_cast<std::size_t>(s.value)]; }

    void append(Sequence s, int n) {
        n = std::min({n, 200 - own(s), static_cast<int>(cache_.free_cells())});
        const numbers::Numbers more = next_tokens(cache_, s, n, number_);
        numbers::feed(cache_, more);
        for (const numbers::Token& t : more) {
            const auto value = static_cast<std::int32_t>(t.x);
            of(s).push_back({value, value});
        }
    }
    void fork(Sequence from, Sequence to) {
        if (from == to) return;
        const int length = below(own(from) + 1);
        REQUIRE(cache_.copy_prefix(from, to, Position{length}));
        of(to).assign(of(from).begin(), of(from).begin() + length);
    }
    void cut(Sequence s, int from, int to) {
        const Result<void> cut = cache_.remove(s, Position{from}, to == own(s) ? to_end : Position{to});
        if (!cut) { // no room for keys that it shares
            CHECK(cut.error() == Reason::full);
            return;
        }
        for (auto moved = of(s).begin() + to; moved != of(s).end(); ++moved) moved->key -= to - from;
        of(s).erase(of(s).begin() + from, of(s).begin() + to);
    }
    void close_gap(Sequence s) {
        const int from = below(own(s) + 1);
        cut(s, from, from + below(own(s) - from + 1));
    }

    /// Free pages.
    std::int32_t free_pages() const {
        std::vector<std::int32_t> used(static_cast<std::size_t>(cache_.cells() / page_) + 1);
        for (Sequence s{0}; s.value < users; ++s.value)
            cache_.visit_cells(s, [&](Position, Cell cell, std::int32_t n) {
                for (std::int32_t i = 0; i < n; ++i) ++used[static_cast<std::size_t>((cell + i) / page_)];
            });
        return static_cast<std::int32_t>(std::count(used.begin(), used.end() - 1, 0));
    }

    void check(Sequence s) {
        const std::string before = cache_.cells() < 64 * 60 ? numbers::portrait(cache_) : std::string{};
        const std::int32_t free = free_pages();
        const Result<void> formed = cache_.form_pages(s, page_);
        if (!formed) {
            ++refused_;
            REQUIRE(formed.error() == Reason::full);
            REQUIRE(formed.error().sequence == s);
            REQUIRE(numbers::portrait(cache_) == before);
            REQUIRE(free < (own(s) + page_ - 1) / page_);
            return;
        }
        ++formed_;
        if (cache_.free_cells() == 0 || (own(s) % page_ == 0 && free_pages() == 0))
            return; // no page for the next token
        const numbers::Numbers next = next_tokens(cache_, s, 1, number_);
        auto pass = numbers::begin(cache_, next); // which is dropped
        REQUIRE(pass);
        numbers::put(*pass, cache_.shape(), next);
        const auto pages = pass->pages(page_);
        if (!pages && own(s) % page_ == 0 && page_ < 64) return; // the free pages are in blocks that others have begun
        REQUIRE(pages);
        std::vector<Stored> expected = of(s);
        const auto value = static_cast<std::int32_t>(next[0].x);
        expected.push_back({value, value});
        REQUIRE(read(*pass, *pages, 0, 0) == expected);
    }

    std::mt19937 random_;
    std::int32_t page_;
    Pool cache_;
    std::vector<Stored> tokens_[users];
    int number_ = 0;
    int formed_ = 0;
    int refused_ = 0;
};

} // namespace

TEST_CASE("64 users who fork a prompt of any length all get pages") {
    for (const int length : {1, 15, 16, 17, 63, 64, 65, 100, 128}) {
        CAPTURE(length);
        Pool cache{numbers::small, {.sequences = 65, .cells = 65 * 128, .batch = 256}};
        int number = 0;
        const Sequence prompt{64};
        numbers::feed(cache, next_tokens(cache, prompt, length, number));
        for (int s = 0; s < 64; ++s) {
            REQUIRE(cache.copy_prefix(prompt, Sequence{s}, Position{length}));
            REQUIRE(cache.form_pages(Sequence{s}, 16));
        }
        const Cell copied = length % 16 * 64;
        CHECK(cache.statistics().free == cache.cells() - length - copied);
        for (int step = 0; step < 40; ++step) {
            numbers::Numbers tokens;
            for (int s = 0; s < 64; ++s) tokens = tokens + next_tokens(cache, Sequence{s}, 1, number);
            auto pass = numbers::begin(cache, tokens);
            REQUIRE(pass);
            REQUIRE(pass->pages(16));
            numbers::put(*pass, cache.shape(), tokens);
            pass->commit();
        }
        CHECK(audit(cache) == "");
    }
}

TEST_CASE("after random operations, page tables lead to the keys and values of each sequence") {
    const char* const seconds = std::getenv("CELLAR_PROPERTY_SECONDS");
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::seconds{seconds == nullptr ? 0 : std::atoi(seconds)};
    const auto run = [](unsigned seed, std::int32_t page, Cell cells) {
        CAPTURE(seed);
        CAPTURE(page);
        CAPTURE(cells);
        History history{seed, page, cells};
        for (int step = 0; step < 100; ++step) {
            CAPTURE(step);
            history.step();
        }
        CHECK(history.formed() > 0);
        if (cells == 64 * 60) CHECK(history.refused() == 0); // each has room for all its pages twice
        return history.refused();
    };
    int refused = 0;
    for (unsigned seed = 1; seed <= 2 || std::chrono::steady_clock::now() < end; ++seed)
        for (const std::int32_t page : {16, 64})
            for (const Cell cells : {64 * 60, 64 * 8 + 5, 64 * 4}) refused += run(seed, page, cells);
    CHECK(refused > 0);
}

TEST_CASE("a sequence forms pages in the cells that it leaves, with one free block") {
    Pool cache{numbers::small, {.sequences = 2, .cells = 64 * 6, .batch = 64 * 6}};
    int number = 0;
    const Sequence alice{0};
    numbers::feed(cache, next_tokens(cache, alice, 64 * 5, number));
    REQUIRE(cache.remove(alice, Position{10}, Position{13})); // every later token is three cells from its page
    REQUIRE(cache.promise(alice, 5));
    REQUIRE(cache.form_pages(alice, 64));
    CHECK(cache.promised(alice) == 5); // its cells are as many as before
    const numbers::Numbers next = next_tokens(cache, alice, 1, number);
    auto pass = numbers::begin(cache, next);
    REQUIRE(pass);
    numbers::put(*pass, cache.shape(), next);
    const auto pages = pass->pages(64);
    REQUIRE(pages);
    std::vector<Stored> expected;
    for (std::int32_t i = 0; i < 64 * 5; ++i)
        if (i < 10 || i >= 13) expected.push_back({i < 10 ? i : i - 3, i});
    const auto value = static_cast<std::int32_t>(next[0].x);
    expected.push_back({value, value});
    CHECK(read(*pass, *pages, 0, 0) == expected);
    pass->drop();
    CHECK(audit(cache) == "");
}

TEST_CASE("without room for the copies, form_pages refuses and changes nothing") {
    Pool cache{numbers::small, {.sequences = 3, .cells = 128, .batch = 128}};
    int number = 0;
    numbers::feed(cache, next_tokens(cache, Sequence{0}, 70, number)); // begins both blocks
    REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{1}, Position{70}));
    const std::string before = numbers::portrait(cache);
    CHECK(cache.free_cells() == 58); // none of them a page of 64
    const Refusal refused = cache.form_pages(Sequence{1}, 64).error();
    CHECK(refused == Reason::full);
    CHECK(refused.sequence == Sequence{1});
    CHECK(numbers::portrait(cache) == before);
    REQUIRE(cache.remove(Sequence{0}, Position{0}, to_end));
    CHECK(cache.form_pages(Sequence{1}, 64)); // they are its own now
}

TEST_CASE("a sequence with a gap, or with several tokens at a position, has no pages to form") {
    Pool cache{numbers::small, {.sequences = 2, .cells = 256, .batch = 16, .positions = Positions::any}};
    numbers::feed(cache, {{0, 0, 1}, {0, 2, 2}, {1, 0, 3}, {1, 0, 4}});
    for (const Sequence s : {Sequence{0}, Sequence{1}})
        CHECK(cache.form_pages(s, 4).error() == Refusal{.reason = Reason::no_pages, .sequence = s});
}

TEST_CASE("a hybrid forms pages in its members with cells of tokens") {
    using Full = Cache<StandardV<float>>;
    using Recurrent = RecurrentMemory<States<Count>>;
    const CacheLimits limits{.sequences = 3, .cells = 256, .batch = 64};
    Hybrid<Repeat<Full, Recurrent>, Full, Recurrent> memory{
        2, Full{numbers::small, limits},
        Recurrent{StateShape{1, {{1}}}, StateLimits{.sequences = 3, .batch = 64, .snapshots = 4}}};
    PrefixTree tree{memory, {.page = 16}};
    const Sequence alice{0};
    auto pass = tree.begin(BatchBuilder{alice, Position{0}, 20}).value();
    pass.visit(0, [](auto& one, int layer) {
        if constexpr (requires { one.mark_put(layer); }) one.mark_put(layer);
    });
    pass.visit(1, [](auto& one, int layer) {
        if constexpr (requires { one.micro_batches(); })
            for (const MicroBatch& micro_batch : one.micro_batches()) {
                static_cast<void>(one.template get<Count>(layer, micro_batch));
                one.put(layer, micro_batch);
            }
    });
    pass.commit();
    const List tokens(20, 7);
    REQUIRE(tree.insert(alice, tokens));
    REQUIRE(tree.attach(Sequence{1}, tokens).value().length == 20);
    CHECK(memory.member<Full>().statistics().shared == 20); // of the tree and Alice; the others share 16
    CHECK(memory.member<Full>().cells_freed_by(Sequence{1}) == 4);
    CHECK(tree.evictable() == 0);
}

TEST_CASE("prompts that a tree has, of any length and from several users, are attached as pages") {
    Pool cache{numbers::small, {.sequences = 16, .cells = 64 * 1024, .batch = 512}};
    PrefixTree tree{cache, {.page = 16}};
    std::mt19937 random{7};
    const auto below = [&](int n) { return std::uniform_int_distribution<int>{0, n - 1}(random); };
    std::vector<List> lists{{}};
    for (int turn = 0; turn < 200; ++turn) {
        CAPTURE(turn);
        const Sequence s{turn % 16};
        REQUIRE(cache.remove(s, Position{0}, to_end));
        const List& earlier = lists[static_cast<std::size_t>(below(static_cast<int>(lists.size())))];
        List list(earlier.begin(), earlier.begin() + below(static_cast<int>(earlier.size()) + 1));
        for (int more = 1 + below(60); more > 0; --more) list.push_back(below(3));
        if (list.size() > 250) list.resize(250);
        const int had = tree.attach(s, std::span{list}.first(list.size() - 1)).value().length;
        numbers::Numbers tokens;
        for (std::size_t i = static_cast<std::size_t>(had); i < list.size(); ++i)
            tokens.push_back({s.value, static_cast<int>(i), static_cast<float>(list[i])});
        auto pass = tree.begin(BatchBuilder{s, Position{had}, static_cast<std::int32_t>(tokens.size())});
        REQUIRE(pass);
        numbers::put(*pass, cache.shape(), tokens);
        const auto pages = pass->pages(16);
        REQUIRE(pages);
        REQUIRE(read(*pass, *pages, 0, 0) == unmoved(list));
        pass->commit();
        REQUIRE(tree.insert(s, list));
        REQUIRE(audit(cache) == "");
        lists.push_back(list);
    }
    CHECK(tree.statistics().tokens_attached > 1000);
}

} // namespace test_form_pages
