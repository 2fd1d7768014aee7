// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Random operations on all ranks, with memory that is short now and then on one of them. Compared after each with the
// naive model, or with a memory of the rank's own that did the operations that succeeded. The ranks draw the same
// numbers.
#include "../hybrid/failing_allocations.hpp"
#include "../hybrid/toy.hpp"
#include "../naive/naive_model.hpp"
#include "ranks.hpp"
#include <cellar/cellar.hpp>
#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/lockstep_memory.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <mpi.h>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace test_lockstep_property {

using namespace cellar;
using mpi::Communicator;
using mpi::LockstepMemory;

namespace {

constexpr int sequences = 3;

class Draw {
public:
    explicit Draw(unsigned seed) : engine_{seed} {}
    int below(int n) { return static_cast<int>(engine_() % static_cast<unsigned>(n)); }

private:
    std::mt19937 engine_;
};

/// What came of an operation: on all ranks the same, or the case fails.
enum class Outcome { done, refused, failed };

/// Lets allocations fail on one rank, in one of `every` operations.
class Trouble {
public:
    Trouble(const Communicator& comm, Draw& draw, int every) : comm_{comm}, draw_{draw}, every_{every} {}

    template <class Operation>
    Outcome run(Operation operation) {
        const bool any = draw_.below(every_) == 0;
        const bool here = draw_.below(comm_.size()) == comm_.rank();
        const int successes = draw_.below(3);
        Outcome outcome = Outcome::failed;
        try {
            std::optional<FailingAllocations> failing;
            if (any && here) failing.emplace(successes);
            outcome = operation() ? Outcome::done : Outcome::refused;
        } catch (const std::bad_alloc&) {}
        REQUIRE(ranks::same_on_all(static_cast<std::int64_t>(outcome)));
        failed_ += outcome == Outcome::failed ? 1 : 0;
        return outcome;
    }
    int failed() const { return failed_; }

private:
    const Communicator& comm_;
    Draw& draw_;
    int every_;
    int failed_ = 0;
};

template <class M>
void expect_alike(LockstepMemory<M>& memory) {
    const auto compared = memory.compare();
    const std::string difference = compared ? "" : compared.error().message;
    REQUIRE(difference == "");
    REQUIRE(ranks::same_on_all(memory.agreements()));
}

using Keys = Cache<StandardV<float>, SlidingWindow<6>, UnrotatedShift>;

/// A cache of this rank's heads, beside the naive model.
class CacheTrial {
public:
    CacheTrial(Communicator& comm, unsigned seed, int every)
        : draw_{seed},
          trouble_{comm, draw_, every},
          memory_{comm, cache(comm), {.compares = draw_.below(4) == 0}},
          model_{{.window = {.kind = naive::WindowKind::sliding, .size = 6, .retention = 20},
                  .sequences = sequences,
                  .capacity = 40,
                  .batch = 7,
                  .consecutive = true,
                  .can_shift = true,
                  .rotates_keys = false}} {
        REQUIRE(memory_.memory().cells() == model_.cells());
    }

    void run(int steps) {
        for (int i = 0; i < steps; ++i) {
            step();
            expect_alike(memory_);
            compare();
        }
    }
    int failed() const { return trouble_.failed(); }

private:
    static Keys cache(const Communicator& comm) {
        return {{.layers = 1, .kv_heads = 1 + comm.rank() % 2, .head_dim = 2},
                {.sequences = sequences, .capacity = 40, .initial_cells = 8, .batch = 7},
                SlidingWindow<6>{{.retention = 20}},
                UnrotatedShift{}};
    }

    int next(int s) const { return model_.next(s); }

    void step() {
        const int s = draw_.below(sequences);
        switch (draw_.below(11)) {
        default:
            return pass();
        case 10: {
            const Outcome outcome = trouble_.run([&] { return memory_.defragment(), true; });
            const auto count = memory_.memory().statistics();
            if (outcome == Outcome::done) REQUIRE(count.longest_free_run == count.free); // all free cells are one run
            return expect(outcome, false, model_);
        }
        case 5: {
            const int begin = draw_.below(next(s) + 1);
            const int end = draw_.below(3) == 0 ? INT_MAX : begin + draw_.below(4);
            naive::Model after = model_;
            const bool refused = after.remove(s, begin, end).has_value();
            const auto remove = [&] { return memory_.remove(Sequence{s}, Position{begin}, Position{end}).has_value(); };
            return expect(trouble_.run(remove), refused, std::move(after));
        }
        case 6: {
            const int to = draw_.below(sequences);
            const int length = draw_.below(next(s) + 2);
            naive::Model after = model_;
            const bool refused = after.copy_prefix(s, to, length).has_value();
            const auto copy = [&] {
                return memory_.copy_prefix(Sequence{s}, Sequence{to}, Position{length}).has_value();
            };
            return expect(trouble_.run(copy), refused, std::move(after));
        }
        case 7: {
            const int p = next(s) + 1 + draw_.below(5);
            naive::Model after = model_;
            after.schedule(s, p);
            return expect(trouble_.run([&] { return memory_.schedule(Sequence{s}, Position{p}).has_value(); }), false,
                          std::move(after));
        }
        case 8: {
            const int to = draw_.below(next(s) + 1);
            const int from = draw_.below(to + 1);
            naive::Model after = model_;
            const bool refused = after.snapshot(s, from, to).has_value();
            const auto snapshot = [&] {
                auto made = memory_.snapshot(Sequence{s}, Position{from}, Position{to});
                if (made) made_.emplace(*std::move(made));
                return made_.has_value();
            };
            const Outcome outcome = trouble_.run(snapshot);
            if (made_) snapshots_.push_back(*std::exchange(made_, std::nullopt));
            return expect(outcome, refused, std::move(after));
        }
        case 9:
            return snapshots_.empty() ? pass() : use_snapshot(s);
        }
    }

    void use_snapshot(int s) {
        const auto i = static_cast<std::size_t>(draw_.below(static_cast<int>(snapshots_.size())));
        CellSnapshot& snapshot = snapshots_[i];
        naive::Model after = model_;
        switch (draw_.below(4)) {
        default: {
            const bool refused = after.restore(s, i, snapshot.to().value).has_value();
            return expect(trouble_.run([&] { return memory_.restore(Sequence{s}, snapshot).has_value(); }), refused,
                          std::move(after));
        }
        case 1: {
            after.offload(i);
            const auto offload = [&] { return memory_.offload(snapshot), true; };
            return expect(trouble_.run(offload), false, std::move(after));
        }
        case 2: {
            const bool refused = after.reload(i).has_value();
            return expect(trouble_.run([&] { return memory_.reload(snapshot).has_value(); }), refused,
                          std::move(after));
        }
        case 3:
            model_.release(i);
            snapshots_.erase(snapshots_.begin() + static_cast<std::ptrdiff_t>(i));
        }
    }

    void pass() {
        std::vector<naive::NewToken> tokens;
        BatchBuilder batch;
        std::vector<int> first;
        for (int s = 0; s < sequences; ++s) {
            const int count = draw_.below(2) * draw_.below(5);
            const int position = next(s) + (draw_.below(9) == 0 ? 2 : 0);
            batch.add(Sequence{s}, Position{position}, count);
            for (int i = 0; i < count; ++i) tokens.push_back({s, position + i, -1, ++value_});
        }
        const bool refused = model_.refuses(tokens).has_value();
        using Pass = PassOf<Keys>;
        std::optional<Pass> pass;
        const auto begin = [&] {
            auto begun = memory_.begin(batch);
            if (begun) pass.emplace(*std::move(begun));
            return begun.has_value();
        };
        const Outcome outcome = trouble_.run(begin);
        if (outcome == Outcome::done && draw_.below(5) == 0) {
            pass.reset(); // dropped
            return expect(outcome, refused, model_);
        }
        if (outcome == Outcome::done) {
            const auto heads = static_cast<std::size_t>(memory_.memory().shape()[0].kv_heads);
            std::vector<float> rows;
            for (const naive::NewToken& t : tokens) rows.insert(rows.end(), 2 * heads, static_cast<float>(t.value));
            pass->put(0, rows, rows);
            pass->commit();
        }
        expect(outcome, refused, model_.with(tokens).committed(model_, tokens));
    }

    void expect(Outcome outcome, bool refused, naive::Model after) {
        if (outcome == Outcome::failed) return; // nothing has changed
        REQUIRE((outcome == Outcome::refused) == refused);
        if (outcome == Outcome::done) model_ = std::move(after);
    }

    void compare() {
        auto rows = memory_.memory().reserve(1);
        for (int s = 0; s < sequences; ++s) {
            std::vector<std::pair<int, int>> found;
            memory_.memory().visit_cells(Sequence{s}, [&](Position p, Cell cell, std::int32_t n) {
                for (std::int32_t i = 0; i < n; ++i)
                    found.emplace_back(p.value + i, static_cast<int>(rows.keys(0)(cell + i, 0, 0)));
            });
            std::vector<std::pair<int, int>> expected;
            for (const auto& [position, token] : model_.tokens(s)) expected.emplace_back(position, token->value);
            REQUIRE(found == expected);
        }
    }

    Draw draw_;
    Trouble trouble_;
    LockstepMemory<Keys> memory_;
    naive::Model model_;
    std::vector<CellSnapshot> snapshots_;
    std::optional<CellSnapshot> made_;
    int value_ = 0;
};

/// A hybrid in lockstep, and one of this rank's own.
class HybridTrial {
public:
    HybridTrial(Communicator& comm, unsigned seed, int every)
        : draw_{seed},
          trouble_{comm, draw_, every},
          memory_{comm, toy::memory({.full_capacity = 24, .checkpoints = 4}), {.compares = draw_.below(4) == 0}},
          own_{toy::memory({.full_capacity = 24, .checkpoints = 4})} {}

    void run(int steps) {
        for (int i = 0; i < steps; ++i) {
            step();
            expect_alike(memory_);
            REQUIRE(toy::portrait(memory_.memory()) == toy::portrait(own_));
        }
    }
    int failed() const { return trouble_.failed(); }

private:
    using Snapshot = SnapshotOf<toy::Memory>;

    // Carried out on both, unless memory is short.
    template <class Operation>
    Outcome both(Operation operation) {
        const Outcome outcome = trouble_.run([&] { return operation(memory_, snapshots_); });
        if (outcome != Outcome::failed) REQUIRE(operation(own_, own_snapshots_) == (outcome == Outcome::done));
        return outcome;
    }

    void step() {
        const Sequence s{draw_.below(sequences)};
        const Position next = own_.next(s);
        const int back = draw_.below(4);
        const Position to = own_.resumable_prefix(s, Position{std::max(0, next.value - back)});
        const auto i =
            snapshots_.empty() ? 0 : static_cast<std::size_t>(draw_.below(static_cast<int>(snapshots_.size())));
        switch (draw_.below(13)) {
        default:
            return pass();
        case 12:
            both([&](auto& m, auto&) { return m.defragment(), true; });
            return;
        case 5:
            both([&](auto& m, auto&) { return m.remove(s, to, to_end).has_value(); });
            return;
        case 6: {
            const Sequence target{draw_.below(sequences)};
            both([&](auto& m, auto&) { return m.copy_prefix(s, target, to).has_value(); });
            return;
        }
        case 7:
            both([&](auto& m, auto&) { return m.schedule(s, next + 1 + back).has_value(); });
            return;
        case 8:
            if (own_snapshots_.size() > 5) return release(i);
            snapshots_.reserve(8); // not an allocation of the memory
            own_snapshots_.reserve(8);
            both([&](auto& m, auto& snapshots) {
                auto made = m.snapshot(s, Position{0}, to);
                if (made) snapshots.push_back(*std::move(made));
                return made.has_value();
            });
            return;
        case 9:
            if (snapshots_.empty()) return pass();
            both([&](auto& m, auto& snapshots) { return m.restore(s, snapshots[i]).has_value(); });
            return;
        case 10:
            if (snapshots_.empty()) return pass();
            both([&](auto& m, auto& snapshots) { return m.offload(snapshots[i]), true; });
            return;
        case 11:
            if (snapshots_.empty()) return pass();
            both([&](auto& m, auto& snapshots) { return m.reload(snapshots[i]).has_value(); });
            return;
        }
    }

    void release(std::size_t i) {
        snapshots_.erase(snapshots_.begin() + static_cast<std::ptrdiff_t>(i));
        own_snapshots_.erase(own_snapshots_.begin() + static_cast<std::ptrdiff_t>(i));
    }

    void pass() {
        toy::Text text;
        for (int s = 0; s < sequences; ++s) {
            const int count = draw_.below(2) * draw_.below(3);
            text = text + toy::text(s, own_.next(Sequence{s}).value, count, value_ += 3);
        }
        if (text.size() > 8) text.resize(8);
        const BatchBuilder batch = toy::batch_of(text);
        const bool commits = draw_.below(5) != 0;
        both([&](auto& m, auto&) {
            auto pass = m.begin(batch);
            if (!pass) return false;
            FailingAllocations::left() = FailingAllocations::unlimited; // the pass is the rank's own
            toy::fill(*pass, text);
            if (commits) pass->commit();
            return true;
        });
    }

    Draw draw_;
    Trouble trouble_;
    LockstepMemory<toy::Memory> memory_;
    toy::Memory own_;
    std::vector<Snapshot> snapshots_;
    std::vector<Snapshot> own_snapshots_;
    int value_ = 0;
};

template <class Trial>
int run_trials(int trials, int steps) {
    Communicator comm{MPI_COMM_WORLD};
    int failed = 0;
    for (int i = 0; i < trials; ++i) {
        CAPTURE(i);
        Trial trial{comm, static_cast<unsigned>(20261123 + i), i % 3 == 0 ? 1 << 20 : 3 * (i % 3)};
        trial.run(steps);
        failed += trial.failed();
    }
    return failed;
}

} // namespace

TEST_CASE("caches in lockstep agree with the naive model, whichever rank is short of memory") {
    CHECK(run_trials<CacheTrial>(40, 60) > 30);
}

TEST_CASE("hybrids in lockstep agree with one on its own, whichever rank is short of memory") {
    CHECK(run_trials<HybridTrial>(16, 50) > 10);
}

} // namespace test_lockstep_property
