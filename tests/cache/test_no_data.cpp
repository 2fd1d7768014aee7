// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// A cache without keys and values beside an ordinary one that does the same. A program's own arrays, to which its plans
// are applied, hold what the ordinary one holds.
#include "../hybrid/failing_allocations.hpp"
#include "../violations.hpp"
#include "mirror.hpp"
#include "numbers.hpp"
#include <cellar/cache/audit.hpp>
#include <cellar/memory/two_phase.hpp>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace test_no_data {

using namespace cellar;
using cellar_test::random_between;
using numbers::Adding;
using numbers::Numbers;
using numbers::prompt;

namespace {

template <class Window, class Shift>
using Books = Cache<StandardV<float>, Window, Shift, NoData>;

const CacheShape shape{.layers = 2, .kv_heads = 1, .head_dim = 2};
const CacheLimits small{.sequences = 2, .cells = 16, .batch = 8, .placement = Placement::scattered};

/// The keys and values of a program: of each layer, a number for each cell.
class Arrays {
public:
    explicit Arrays(Cell cells) {
        for (Layer& layer : layers_) layer = {std::vector<float>(at(cells)), std::vector<float>(at(cells))};
    }

    float key(int layer, Cell cell) const { return layers_[at(layer)].keys[at(cell)]; }
    float value(int layer, Cell cell) const { return layers_[at(layer)].values[at(cell)]; }

    void put(int layer, Cell cell, float x) {
        layers_[at(layer)].keys[at(cell)] = x;
        layers_[at(layer)].values[at(cell)] = x;
    }

    void carry_out(const std::vector<Plan>& plans) {
        for (const Plan& plan : plans)
            for (Layer& layer : layers_) {
                for (const Move& move : plan.moves) {
                    copy(layer.keys, move);
                    copy(layer.values, move);
                }
                for (const KeyRotation& rotation : plan.rotations)
                    for (Cell cell = rotation.first; cell < rotation.first + rotation.count; ++cell)
                        layer.keys[at(cell)] += static_cast<float>(rotation.delta);
            }
    }

private:
    struct Layer {
        std::vector<float> keys;
        std::vector<float> values;
    };

    static std::size_t at(int i) { return static_cast<std::size_t>(i); }
    static void copy(std::vector<float>& rows, const Move& move) {
        const std::vector<float> before = rows;
        for (int i = 0; i < move.count; ++i) rows[at(move.to + i)] = before[at(move.from + i)];
    }

    Layer layers_[2];
};

/// An ordinary cache, one without keys and values, and the arrays of its program.
template <class Window, class Shift>
struct Twins {
    Cache<StandardV<float>, Window, Shift> whole;
    Books<Window, Shift> books;
    Arrays arrays;
    bool is_behind = false; ///< plans were not taken yet

    Twins(const CacheLimits& limits, const Window& window)
        : whole{shape, limits, window}, books{shape, limits, window}, arrays{books.cells()} {}

    void take() {
        arrays.carry_out(books.take_plans());
        is_behind = false;
    }

    template <class A, class B>
    static bool agree(const Result<A>& a, const Result<B>& b) {
        REQUIRE(a.has_value() == b.has_value());
        if (a.has_value()) return true;
        CHECK(a.error().reason == b.error().reason);
        CHECK(a.error().sequence == b.error().sequence);
        return false;
    }

    /// The layers of a pass, in both: what the tokens see is the same, and has the same contents.
    template <class Pass, class BooksPass>
    void run(Pass& pass, BooksPass& bookkeeping, const Numbers& tokens) {
        take();
        REQUIRE(std::vector<Cell>(pass.cells().begin(), pass.cells().end())
                == std::vector<Cell>(bookkeeping.cells().begin(), bookkeeping.cells().end()));
        CHECK(pass.history() == bookkeeping.history());
        for (int layer = 0; layer < shape.layers; ++layer) {
            std::vector<float> rows;
            for (std::size_t i = 0; i < tokens.size(); ++i) {
                const float x = tokens[i].x + static_cast<float>(1000 * layer);
                rows.insert(rows.end(), 2, x);
                arrays.put(layer, bookkeeping.cells()[i], x);
            }
            pass.put(layer, rows, rows);
        }
        const auto mask = pass.template mask<bool>();
        const auto same_mask = bookkeeping.template mask<bool>();
        const auto lists = pass.lists();
        const auto same_lists = bookkeeping.lists();
        bool same = lists.rows() == same_lists.rows();
        for (int row = 0; same && row < lists.rows(); ++row)
            same = std::vector<int>(lists.cells(row).begin(), lists.cells(row).end())
                   == std::vector<int>(same_lists.cells(row).begin(), same_lists.cells(row).end());
        for (int token = 0; token < pass.tokens(); ++token) {
            const auto runs = pass.visible(token);
            const auto same_runs = bookkeeping.visible(token);
            same = same
                   && std::vector<CellRange>(runs.begin(), runs.end())
                          == std::vector<CellRange>(same_runs.begin(), same_runs.end());
            for (int c = 0; c < pass.history().count; ++c) same = same && mask(token, c) == same_mask(token, c);
            for (const CellRange& run : runs)
                for (Cell cell = run.first; cell < run.first + run.count; ++cell) same = same && holds(pass, cell);
        }
        CHECK(same);
    }

    template <class Pass>
    bool holds(const Pass& pass, Cell cell) const {
        bool same = true;
        const Cell c = cell - pass.history().first;
        for (int layer = 0; layer < shape.layers; ++layer)
            same = same && pass.keys(layer)(c, 0, 1) == arrays.key(layer, cell)
                   && pass.values(layer)(c, 0, 1) == arrays.value(layer, cell);
        return same;
    }

    using Places = std::vector<std::tuple<int, int, int>>; ///< position, cell, count
    template <class M>
    static Places places(const M& memory) {
        Places found;
        const auto add = [&](Position p, Cell cell, std::int32_t n) { found.emplace_back(p.value, cell, n); };
        for (int s = 0; s < memory.sequences(); ++s) {
            found.emplace_back(-1, memory.next(Sequence{s}).value, memory.tokens(Sequence{s}));
            memory.visit_cells(Sequence{s}, add);
        }
        memory.visit_kept_cells(add);
        return found;
    }

    /// The bookkeeping of both, and the contents of the cells that anything owns.
    void compare() {
        CHECK(audit(books) == "");
        const Places all = places(books);
        CHECK(all == places(whole));
        CacheStatistics statistics = whole.statistics();
        CHECK(books.statistics().bytes == 0);
        statistics.bytes = 0;
        CHECK(books.statistics() == statistics);
        if (is_behind) return;
        const auto pass = whole.reserve(1);
        bool same = true;
        for (const auto& [position, first, count] : all)
            for (Cell cell = first; position >= 0 && cell < first + count; ++cell) same = same && holds(pass, cell);
        CHECK(same);
    }
};

/// Random operations on twins.
template <class Window, class Shift>
class Trial {
public:
    Trial(unsigned seed, Placement placement, const Window& window = Window{})
        : random_{seed},
          twins_{{.sequences = 4,
                  .cells = placement == Placement::blocks ? 136 : 40,
                  .batch = 10,
                  .padding = 4,
                  .placement = placement},
                 window} {}

    void step() {
        switch (between(0, 12)) {
        case 0:
            return copy();
        case 1:
        case 2:
            return remove();
        case 3:
            return done([](auto& cache, auto&) {
                cache.defragment();
                return Result<void>{};
            });
        case 4:
            return snapshot();
        case 5:
            return restore();
        case 6:
            return split();
        case 7:
            return merge();
        case 8:
            return schedule();
        case 9:
            return release();
        default:
            return pass();
        }
    }

private:
    int between(int min, int max) { return random_between(random_, min, max); }
    Sequence any_sequence() { return Sequence{between(0, 3)}; }
    int next(Sequence s) const { return twins_.books.next(s).value; }

    /// f(cache, its snapshots) for both.
    template <class F>
    void done(F f) {
        const Result<void> whole = f(twins_.whole, whole_snapshots_);
        const Result<void> books = f(twins_.books, books_snapshots_);
        static_cast<void>(twins_.agree(whole, books));
        REQUIRE(whole_snapshots_.size() == books_snapshots_.size());
        twins_.is_behind = true;
        if (between(0, 1) == 0) twins_.take(); // else with those of later operations
        twins_.compare();
    }

    void pass() {
        Numbers tokens;
        const int first = between(0, 3);
        for (int s = first; s <= std::min(3, first + between(0, 1)); ++s)
            for (int p = next(Sequence{s}), end = p + between(1, 5); p < end; ++p)
                tokens.push_back({s, p, static_cast<float>(++number_)});
        auto whole = numbers::begin(twins_.whole, tokens);
        auto books = numbers::begin(twins_.books, tokens);
        if (!twins_.agree(whole, books)) return;
        twins_.run(*whole, *books, tokens);
        if (between(0, 3) == 0) {
            whole->drop();
            books->drop();
        } else {
            whole->commit();
            books->commit();
        }
        twins_.compare();
    }

    void copy() {
        const Sequence from = any_sequence();
        const Sequence to = any_sequence();
        const int length = between(0, next(from));
        done([&](auto& cache, auto&) { return cache.copy_prefix(from, to, Position{length}); });
    }
    void remove() {
        const Sequence s = any_sequence();
        const Position begin{between(0, next(s))};
        const Position end = between(0, 3) == 0 ? to_end : Position{begin.value + between(0, 4)};
        done([&](auto& cache, auto&) { return cache.remove(s, begin, end); });
    }
    void snapshot() {
        if (whole_snapshots_.size() > 4) return release();
        const Sequence s = any_sequence();
        const Position from{between(0, next(s))};
        const Position to{between(from.value, next(s))};
        done([&](auto& cache, auto& snapshots) -> Result<void> {
            auto made = cache.snapshot(s, from, to);
            if (!made) return made.error();
            snapshots.push_back(*std::move(made));
            return {};
        });
    }
    void release() {
        if (whole_snapshots_.empty()) return;
        const int i = any_snapshot();
        done([&](auto&, auto& snapshots) {
            snapshots.erase(snapshots.begin() + i);
            return Result<void>{};
        });
    }
    void restore() {
        if (whole_snapshots_.empty()) return;
        const Sequence s = any_sequence();
        const auto i = static_cast<std::size_t>(any_snapshot());
        const Position to{between(whole_snapshots_[i].from().value, whole_snapshots_[i].to().value)};
        done([&](auto& cache, auto& snapshots) { return cache.restore(s, snapshots[i], to); });
    }
    void split() {
        if (whole_snapshots_.empty()) return;
        const auto i = static_cast<std::size_t>(any_snapshot());
        const Position at{between(whole_snapshots_[i].from().value, whole_snapshots_[i].to().value)};
        done([&](auto& cache, auto& snapshots) -> Result<void> {
            auto tail = cache.split(snapshots[i], at);
            if (!tail) return tail.error();
            snapshots.push_back(*std::move(tail));
            return {};
        });
    }
    void merge() {
        for (std::size_t i = 0; i < whole_snapshots_.size(); ++i)
            for (std::size_t j = 0; j < whole_snapshots_.size(); ++j) {
                if (i == j || whole_snapshots_[i].to() != whole_snapshots_[j].from()) continue;
                return done([&](auto& cache, auto& snapshots) {
                    const Result<void> merged = cache.merge(snapshots[i], std::move(snapshots[j]));
                    if (merged) snapshots.erase(snapshots.begin() + static_cast<std::ptrdiff_t>(j));
                    return merged;
                });
            }
    }
    void schedule() {
        const Sequence s = any_sequence();
        const Position p{next(s) + between(1, 6)};
        done([&](auto& cache, auto&) { return cache.schedule(s, p); });
    }

    int any_snapshot() { return between(0, static_cast<int>(whole_snapshots_.size()) - 1); }

    std::mt19937 random_;
    Twins<Window, Shift> twins_;
    std::vector<CellSnapshot> whole_snapshots_;
    std::vector<CellSnapshot> books_snapshots_;
    int number_ = 0;
};

template <class Window, class Shift>
void do_trials(Placement placement, const Window& window = Window{}) {
    for (unsigned seed = 0; seed < 20; ++seed) {
        CAPTURE(seed);
        Trial<Window, Shift> trial{seed, placement, window};
        for (int step = 0; step < 250; ++step) {
            CAPTURE(step);
            trial.step();
        }
    }
}

template <class M>
void commit(M& memory, const Numbers& tokens) {
    auto pass = numbers::begin(memory, tokens);
    REQUIRE(pass.has_value());
    pass->commit();
}

} // namespace

TEST_CASE("without keys and values, a program's arrays have what a cache has, if it carries out the plans") {
    do_trials<FullCausal, Adding>(Placement::scattered);
    do_trials<FullCausal, Adding>(Placement::blocks);
    do_trials<FullCausal, Adding>(Placement::contiguous);
    do_trials<SlidingWindow<6>, Adding>(Placement::scattered);
    do_trials<FullCausal, UnrotatedShift>(Placement::contiguous);
    do_trials<SlidingWindow<6>, DisabledShift>(Placement::scattered);
}

TEST_CASE("a removal is one plan, in which shared cells are copied before their keys are rotated") {
    Books<FullCausal, Adding> cache{shape, small};
    commit(cache, prompt(0, 0, {1, 2, 3, 4}));
    CHECK(cache.take_plans().empty());
    REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{1}, Position{4}));
    CHECK(cache.take_plans().empty());
    REQUIRE(cache.remove(Sequence{0}, Position{0}, Position{1}));
    REQUIRE(cache.remove(Sequence{1}, Position{0}, Position{2}));
    const std::vector<Plan> plans = cache.take_plans();
    REQUIRE(plans.size() == 2);
    REQUIRE(plans[0].moves.size() == 1);
    CHECK(plans[0].moves[0] == Move{1, 4, 3});
    REQUIRE(plans[0].rotations.size() == 1);
    CHECK(plans[0].rotations[0] == KeyRotation{4, 3, -1});
    CHECK(plans[1].moves.empty());
    REQUIRE(plans[1].rotations.size() == 1);
    CHECK(plans[1].rotations[0] == KeyRotation{2, 2, -2});
    CHECK(cache.take_plans().empty());
    CHECK(cache.bytes() == 0);
}

TEST_CASE("what needs no work of a program gives it no plan") {
    Books<FullCausal, Adding> cache{shape, small};
    commit(cache, prompt(0, 0, {1, 2, 3, 4}));
    cache.defragment();
    REQUIRE(cache.remove(Sequence{0}, Position{3}, to_end));
    REQUIRE(cache.remove(Sequence{0}, Position{1}, Position{1}));
    REQUIRE(cache.remove(Sequence{1}, Position{0}, Position{1}));
    CHECK(cache.remove(Sequence{0}, Position{0}, Position{1}, RotateBy{0}));
    CHECK(cache.take_plans().empty());
}

TEST_CASE("operations that find no memory for their plan change nothing, and lose none") {
    Books<FullCausal, Adding> cache{shape, small};
    commit(cache, prompt(0, 0, {1, 2, 3, 4, 5, 6}));
    REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{1}, Position{6}));
    const auto check = [&, before = Twins<FullCausal, Adding>::places(cache)] {
        CHECK(Twins<FullCausal, Adding>::places(cache) == before);
        CHECK(audit(cache) == "");
    };
    CHECK(failures_of([&] { static_cast<void>(cache.remove(Sequence{0}, Position{0}, Position{2})); }, check) > 0);
    REQUIRE(cache.remove(Sequence{1}, Position{0}, to_end));
    const auto check_again = [&, before = Twins<FullCausal, Adding>::places(cache)] {
        CHECK(Twins<FullCausal, Adding>::places(cache) == before);
    };
    CHECK(failures_of([&] { cache.defragment(); }, check_again) > 0);
    const std::vector<Plan> plans = cache.take_plans();
    REQUIRE(plans.size() == 2);
    CHECK(!plans[0].rotations.empty());
    CHECK(plans[1].rotations.empty());
    CHECK(!plans[1].moves.empty());
}

TEST_CASE("a pass whose kernels found keys where they no longer are is not committed") {
    Books<FullCausal, Adding> cache{shape, small};
    commit(cache, prompt(0, 0, {1, 2, 3, 4}));
    REQUIRE(cache.remove(Sequence{0}, Position{0}, Position{1}));
    auto pass = numbers::begin(cache, prompt(0, 3, {5})).value();
    CHECK(violation_of([&] { pass.commit(); })
          == "commit: 1 plans were not taken, expected take_plans before the kernels of the pass");
    CHECK(cache.take_plans().size() == 1);
    pass.commit();
    CHECK(cache.next(Sequence{0}) == Position{4});

    REQUIRE(cache.remove(Sequence{0}, Position{0}, Position{1}));
    numbers::begin(cache, prompt(0, 3, {5})).value().drop();
    cache.reserve(4).commit();
    CHECK(cache.take_plans().size() == 1);
}

TEST_CASE("a tree of prefixes evicts instead of offloading") {
    using Trees = Twins<FullCausal, Adding>;
    Trees twins{{.sequences = 2, .cells = 48, .batch = 48}, {}};
    PrefixTree tree{twins.whole};
    PrefixTree bookkeeping{twins.books};
    std::mt19937 random{1};
    for (int request = 0; request < 300; ++request) {
        CAPTURE(request);
        const Sequence s{random_between(random, 0, 1)};
        REQUIRE(twins.whole.remove(s, Position{0}, to_end));
        REQUIRE(twins.books.remove(s, Position{0}, to_end));
        std::vector<std::int32_t> tokens;
        for (int n = random_between(random, 1, 12); n > 0; --n) tokens.push_back(random_between(random, 1, 3));
        const PrefixMatch match = bookkeeping.attach(s, tokens).value();
        CHECK(match == tree.attach(s, tokens).value());
        Numbers rest;
        for (auto p = static_cast<std::size_t>(match.length); p < tokens.size(); ++p)
            rest.push_back({s.value, static_cast<int>(p), static_cast<float>(100 * tokens[p])});
        if (!rest.empty()) {
            const BatchBuilder batch{s, Position{match.length}, static_cast<std::int32_t>(rest.size())};
            auto whole = tree.begin(batch);
            auto books = bookkeeping.begin(batch);
            REQUIRE(twins.agree(whole, books));
            twins.run(*whole, *books, rest);
            whole->commit();
            books->commit();
        }
        CHECK(tree.insert(s, tokens).has_value() == bookkeeping.insert(s, tokens).has_value());
        CHECK(tree.statistics().evictions == bookkeeping.statistics().evictions);
        CHECK(tree.statistics().in_place_bytes == bookkeeping.statistics().in_place_bytes);
        if (random_between(random, 0, 2) == 0) { // keys that the tree shares are copied
            const bool removed = twins.agree(twins.whole.remove(s, Position{0}, Position{1}),
                                             twins.books.remove(s, Position{0}, Position{1}));
            if (removed) twins.take();
        }
        twins.compare();
    }
    CHECK(bookkeeping.statistics().evictions > 10);
    CHECK(bookkeeping.statistics().offloads == 0);
    CHECK(violation_of([&] {
              PrefixTree{twins.books, {.offloaded_bytes = 1}};
          })
          == "limits: 1 bytes for what is offloaded, expected 0, because the snapshots of this memory cannot be "
             "offloaded");
}

TEST_CASE("a hybrid has members without keys and values, and no offloading") {
    using Full = Books<FullCausal, Adding>;
    using Sliding = Books<SlidingWindow<4>, Adding>;
    using Both = Hybrid<Repeat<Sliding, Full>, Sliding, Full>;
    static_assert(TwoPhaseSnapshots<Full> && TwoPhaseSnapshots<Both> && PrefixTreeMemory<Both>);
    static_assert(!Both::holds_data && !Full::holds_data && numbers::Cache<>::holds_data);
    const CacheLimits limits{.sequences = 2, .cells = 24, .batch = 8};
    Both memory{4, Sliding{shape, limits}, Full{shape, limits}};
    commit(memory, prompt(0, 0, {1, 2, 3, 4, 5, 6}));
    REQUIRE(memory.copy_prefix(Sequence{0}, Sequence{1}, Position{6}));
    const auto kept = memory.snapshot(Sequence{0}, Position{0}).value();
    REQUIRE(memory.remove(Sequence{0}, Position{4}, Position{5}));
    CHECK(memory.member<Full>().take_plans().size() == 1);
    CHECK(memory.member<Sliding>().take_plans().size() == 1);
    REQUIRE(memory.restore(Sequence{0}, kept));
    CHECK(memory.next(Sequence{0}) == Position{6});
    CHECK(memory.bytes() == 0);

    PrefixTree tree{memory};
    for (int i = 0; i < 20; ++i) {
        REQUIRE(memory.remove(Sequence{0}, Position{0}, to_end));
        auto pass = tree.begin(BatchBuilder{Sequence{0}, Position{0}, 6});
        REQUIRE(pass.has_value());
        pass->commit();
        REQUIRE(tree.insert(Sequence{0}, std::vector<std::int32_t>{i, 1, 2, 3, 4, 5}));
    }
    CHECK(tree.statistics().evictions > 0);
}

TEST_CASE("an encoder's inputs can be a program's own") {
    EncoderMemory<StandardV<float>, NoData> memory{shape, small};
    memory.write(Sequence{0}, Position{0}, 4).value().commit();
    memory.write(Sequence{1}, Position{0}, 3).value().commit();
    REQUIRE(memory.remove(Sequence{0}, Position{0}, to_end));
    memory.defragment();
    auto pass = memory.begin(BatchBuilder{Sequence{1}, Position{0}}).value();
    CHECK(violation_of([&] { pass.commit(); }).starts_with("commit: 1 plans were not taken"));
    const std::vector<Plan> plans = memory.take_plans();
    REQUIRE(plans.size() == 1);
    REQUIRE(plans[0].moves.size() == 1);
    CHECK(plans[0].moves[0] == Move{4, 0, 3});
    REQUIRE(pass.visible(0).size() == 1);
    CHECK(pass.visible(0)[0] == CellRange{0, 3});
    pass.commit();
}

TEST_CASE("a snapshot of a cache without keys and values is not offloaded by an operation of two phases either") {
    Books<FullCausal, Adding> cache{shape, small};
    commit(cache, prompt(0, 0, {1, 2}));
    auto snapshot = cache.snapshot(Sequence{0}).value();
    CHECK(violation_of([&] {
              static_cast<void>(cache.prepare(op::Offload<CellSnapshot>{snapshot, OffloadTo::host}));
          })
          == "offload: the cache has no keys and values, expected a backend with memory");
    CHECK(cache.statistics().snapshots == 1);
}

} // namespace test_no_data
