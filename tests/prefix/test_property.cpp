// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Random operations on prefix trees of every kind of memory, compared after each with a naive tree.
#include "../property/series.hpp"
#include "../property/trace.hpp"
#include "naive_tree.hpp"

#include <climits>
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace test_property {

using namespace prefix_test;

namespace {

constexpr int least_series = 60;

enum class Operation { serve, attach, compute, insert, leave, evict, pin, unpin };

/// One operation as plain data. Its tokens begin like those of an earlier operation.
struct Step {
    Operation operation = Operation::serve;
    int sequence = 0;
    int earlier = 0; ///< which of the earlier lists
    int same = 0;    ///< how many of its tokens
    List tokens{};   ///< which follow them
    std::uint64_t salt = 0;
};

std::ostream& operator<<(std::ostream& out, const Step& step) {
    constexpr const char* names[] = {"serve", "attach", "compute", "insert", "leave", "evict", "pin", "unpin"};
    out << names[static_cast<int>(step.operation)] << ", s" << step.sequence << ", salt " << step.salt << ", the first "
        << step.same << " of " << step.earlier << " and";
    for (const std::int32_t token : step.tokens) out << ' ' << token;
    return out;
}

constexpr int sequences = 3;

rc::Gen<int> number(int from, int to) {
    return rc::gen::inRange(from, to + 1);
}

rc::Gen<Step> steps() {
    return rc::gen::exec([] {
        Step step;
        step.operation = *rc::gen::weightedElement<Operation>({{12, Operation::serve},
                                                               {4, Operation::attach},
                                                               {3, Operation::compute},
                                                               {4, Operation::insert},
                                                               {3, Operation::leave},
                                                               {1, Operation::evict},
                                                               {1, Operation::pin},
                                                               {1, Operation::unpin}});
        step.sequence = *number(0, sequences - 1);
        step.earlier = *number(0, 1000);
        step.same = *number(0, 12);
        step.tokens = *rc::gen::container<List>(static_cast<std::size_t>(*number(0, 9)), number(0, 2));
        step.salt = static_cast<std::uint64_t>(*rc::gen::element(0, 0, 0, 1));
        return step;
    });
}

/// Runs the same steps on a tree and on the naive one.
template <class M>
class Trial {
public:
    Trial(M memory, const naive::Kind& kind, property::Trace& trace)
        : memory_{std::move(memory)},
          tree_{memory_, {.offloaded_bytes = kind.offloaded_bytes, .offload_to = kind.offload_to}},
          kind_{kind},
          naive_{kind, sequences},
          trace_{trace} {}

    void run(const std::vector<Step>& steps) {
        for (const Step& step : steps) {
            trace_.add("  ", step, '\n');
            take(step);
            compare(step.salt);
        }
    }

private:
    void take(const Step& step) {
        const int s = step.sequence;
        const List list = first(std::min(step.same, size(earlier(step))), earlier(step)) + step.tokens;
        lists_.push_back(list);
        switch (step.operation) {
        case Operation::serve:
            leave(s);
            attach(s, list, step.salt);
            if (compute(s, list)) insert(s, size(list), step.salt);
            return;
        case Operation::attach:
            leave(s);
            return attach(s, list, step.salt);
        case Operation::compute:
            compute(s, naive_.tokens(s) + step.tokens);
            return;
        case Operation::insert:
            return insert(s, std::max(0, size(naive_.tokens(s)) - step.same / 3), step.salt);
        case Operation::leave:
            return leave(s);
        case Operation::evict:
            trace_.expect(tree_.evict() == naive_.evict(), "evict gave another answer");
            return;
        case Operation::pin:
            pins_.emplace_back(tree_.pin(list, step.salt), naive_.pin(list, step.salt));
            trace_.expect((pins_.back().first.length() > 0) == (pins_.back().second != nullptr), "a pin is missing");
            return;
        case Operation::unpin:
            if (pins_.empty()) return;
            const auto at = static_cast<std::size_t>(step.earlier) % pins_.size();
            if (pins_[at].second != nullptr) --pins_[at].second->pins;
            std::swap(pins_[at], pins_.back());
            pins_.pop_back();
        }
    }

    static int size(const List& list) { return static_cast<int>(list.size()); }
    const List& earlier(const Step& step) const {
        return lists_[static_cast<std::size_t>(step.earlier) % lists_.size()];
    }

    void attach(int s, const List& list, std::uint64_t salt) {
        const PrefixMatch told = tree_.match(list, salt);
        const PrefixMatch match = tree_.attach(cellar::Sequence{s}, list, salt).value();
        const PrefixMatch expected_match = naive_.match(list, salt);
        const PrefixMatch expected = naive_.attach(s, list, salt);
        trace_.expect(match == expected, "attached ", match.length, " of ", match.verified, ", expected ",
                      expected.length, " of ", expected.verified);
        trace_.expect(told == expected_match, "match told ", told.length, " of ", told.verified);
    }

    bool compute(int s, const List& list) {
        const bool done = prefix_test::compute(tree_, s, list);
        trace_.expect(done == naive_.compute(s, list), "begin was ", done ? "not " : "", "refused");
        return done;
    }

    void insert(int s, int n, std::uint64_t salt) {
        const auto inserted = tree_.insert(cellar::Sequence{s}, first(n, naive_.tokens(s)), salt);
        const std::optional<Reason> refused = naive_.insert(s, n, salt);
        trace_.expect(inserted.has_value() == !refused, "insert was ", inserted ? "not " : "", "refused");
        if (refused) trace_.expect(inserted.error() == *refused, "refused with ", to_string(inserted.error()));
    }

    void leave(int s) {
        trace_.expect(memory_.remove(cellar::Sequence{s}, cellar::Position{0}, cellar::to_end).has_value(),
                      "remove was refused");
        naive_.leave(s);
    }

    void compare(std::uint64_t salt) {
        const std::string wrong = audit(tree_);
        trace_.expect(wrong.empty(), "audit: ", wrong);
        compare_counts();
        for (int s = 0; s < sequences; ++s) {
            const std::string lacking = lacks(memory_, s, naive_.tokens(s));
            trace_.expect(lacking.empty(), "sequence ", s, ": ", lacking);
        }
        for (const List& list : lists_) {
            const PrefixMatch match = tree_.match(list, salt);
            trace_.expect(match == naive_.match(list, salt), "match of ", size(list), " tokens: ", match.length, " of ",
                          match.verified);
        }
    }

    void compare_counts() {
        const cellar::PrefixStatistics statistics = tree_.statistics();
        const auto [tokens, nodes] = naive_.tokens_and_nodes();
        trace_.expect(statistics.snapshots == naive_.snapshots(), statistics.snapshots, " snapshots, expected ",
                      naive_.snapshots());
        trace_.expect(statistics.tokens == tokens, statistics.tokens, " tokens, expected ", tokens);
        trace_.expect(statistics.nodes == nodes, statistics.nodes, " nodes, expected ", nodes);
        trace_.expect(statistics.evictions == naive_.evictions(), statistics.evictions, " evictions, expected ",
                      naive_.evictions());
        trace_.expect(statistics.offloads == naive_.offloads(), statistics.offloads, " offloaded, expected ",
                      naive_.offloads());
        trace_.expect(statistics.reloads == naive_.reloads(), statistics.reloads, " came back, expected ",
                      naive_.reloads());
        trace_.expect(statistics.offloaded == naive_.snapshots(true), statistics.offloaded, " are offloaded, expected ",
                      naive_.snapshots(true));
        trace_.expect(statistics.offloaded_bytes == naive_.bytes(true), statistics.offloaded_bytes,
                      " bytes offloaded, expected ", naive_.bytes(true));
        trace_.expect(statistics.in_place_bytes == naive_.bytes(false), statistics.in_place_bytes,
                      " bytes in place, expected ", naive_.bytes(false));
        trace_.expect(statistics.offloaded_bytes <= kind_.offloaded_bytes, "more bytes are offloaded than the limit");
        if constexpr (requires { memory_.free_cells(); }) compare_evictable();
        if constexpr (requires { memory_.template member<toy::Full>(); }) {
            std::int64_t offloaded = 0;
            cellar::detail::for_each_member(memory_,
                                            [&](const auto& m) { offloaded += m.statistics().offloaded_bytes; });
            trace_.expect(offloaded == statistics.offloaded_bytes, "the members have offloaded ", offloaded,
                          " bytes, the tree ", statistics.offloaded_bytes);
            compare_cells(memory_.template member<toy::Sliding>(), naive::window);
            compare_cells(memory_.template member<toy::Full>(), naive::full);
        } else if constexpr (requires { memory_.cells(); }) {
            compare_cells(memory_, kind_.window ? naive::window : naive::full);
        }
    }

    // Of the member that has least.
    void compare_evictable() {
        int free = INT_MAX;
        int in_time = INT_MAX;
        for (const naive::Member m : {naive::window, naive::full}) {
            if (!(m == naive::window ? kind_.window : kind_.full)) continue;
            const int cells = m == naive::window ? kind_.window_cells : kind_.full_cells;
            free = std::min(free, cells - naive_.used_cells(m));
            in_time = std::min(in_time, cells - naive_.used_cells(m) + naive_.evictable_cells(m));
        }
        trace_.expect(memory_.free_cells() == free, memory_.free_cells(), " cells are free, expected ", free);
        trace_.expect(tree_.evictable() == in_time - free, "the tree can give up ", tree_.evictable(),
                      " cells, expected ", in_time - free);
    }

    template <class C>
    void compare_cells(const C& cache, naive::Member member) {
        const auto used = cache.cells() - cache.statistics().free;
        trace_.expect(used == naive_.used_cells(member), used, " cells used, expected ", naive_.used_cells(member));
        const std::string wrong = cellar::audit(cache);
        trace_.expect(wrong.empty(), "audit of the memory: ", wrong);
    }

    M memory_;
    cellar::PrefixTree<M> tree_;
    naive::Kind kind_;
    naive::Tree naive_;
    property::Trace& trace_;
    std::vector<List> lists_{{}};
    std::vector<std::pair<cellar::PrefixPin, naive::Entry*>> pins_;
};

/// `make` draws the settings of a memory.
template <class Make>
bool agrees(const char* name, Make make) {
    return property::holds(name, least_series, [&] {
        naive::Kind kind;
        property::Trace trace;
        auto memory = make(kind);
        kind.offloaded_bytes = *rc::gen::element(0, 0, 150, 500, 1'000, 5'000);
        kind.offload_to =
            *rc::gen::element(cellar::OffloadTo::host, cellar::OffloadTo::pinned_host, cellar::OffloadTo::backend);
        if (kind.states) kind.state_bytes = static_cast<int>(toy::Recurrent::bytes_per_sequence({1, {{1}}}));
        trace.add("retention ", kind.retention, ", cells ", kind.window_cells, " and ", kind.full_cells, ", snapshots ",
                  kind.snapshots, ", rollback ", kind.rollback, ", bytes offloaded ", kind.offloaded_bytes,
                  " to place ", static_cast<int>(kind.offload_to), '\n');
        Trial trial{std::move(memory), kind, trace};
        trial.run(
            *rc::gen::resize(60, rc::gen::container<std::vector<Step>>(rc::gen::resize(rc::kNominalSize, steps()))));
    });
}

} // namespace

TEST_CASE("a tree of a cache that forgets nothing agrees with the naive tree") {
    CHECK(agrees("prefixes of a full cache", [](naive::Kind& kind) {
        kind.full = true;
        kind.full_cells = *number(25, 90);
        return full(kind.full_cells);
    }));
}

TEST_CASE("a tree of a cache with a window agrees with the naive tree") {
    CHECK(agrees("prefixes of a window", [](naive::Kind& kind) {
        kind.window = true;
        kind.window_cells = *number(40, 90);
        kind.retention = *number(5, 12);
        return sliding(kind.window_cells, kind.retention);
    }));
}

TEST_CASE("a tree of recurrent states agrees with the naive tree") {
    CHECK(agrees("prefixes of recurrent states", [](naive::Kind& kind) {
        kind.states = true;
        kind.divides = false;
        kind.snapshots = *number(1, 12);
        kind.rollback = *rc::gen::element(0, 0, 2, 6);
        return recurrent(kind.snapshots, kind.rollback);
    }));
}

TEST_CASE("a tree of a hybrid that may be divided agrees with the naive tree") {
    CHECK(agrees("prefixes of a hybrid of caches", [](naive::Kind& kind) {
        kind.window = true;
        kind.full = true;
        kind.window_cells = *number(40, 120);
        kind.full_cells = *number(30, 120);
        kind.retention = *number(5, 30);
        return attention(kind.window_cells, kind.retention, kind.full_cells);
    }));
}

TEST_CASE("a tree of a hybrid agrees with the naive tree") {
    CHECK(agrees("prefixes of a hybrid", [](naive::Kind& kind) {
        kind.window = true;
        kind.full = true;
        kind.states = true;
        kind.divides = false;
        kind.window_cells = *number(40, 120);
        kind.full_cells = *number(30, 120);
        kind.retention = *number(5, 12);
        kind.snapshots = *number(1, 12);
        kind.rollback = *rc::gen::element(0, 0, 2, 6);
        return toy::Memory{toy::layers, sliding(kind.window_cells, kind.retention), full(kind.full_cells),
                           recurrent(kind.snapshots, kind.rollback)};
    }));
}

} // namespace test_property
