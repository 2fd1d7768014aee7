// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Random operations on a cache of each rank, with transfers between them that are in flight for some steps, compared
// with lists of what each sequence must hold. All ranks draw the same numbers, and keep the lists of all.
#include "cache/numbers.hpp"
#include <cellar/backend/eigen.hpp>
#include <cellar/cache/audit.hpp>
#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/receive.hpp>
#include <cellar/mpi/send.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <mpi.h>
#include <optional>
#include <random>
#include <utility>
#include <vector>

namespace test_transfer_property {

namespace {

using namespace cellar;
using mpi::Communicator;
using numbers::Values;

constexpr int sequences = 3;
const CacheShape shape{.layers = 2, .kv_heads = 2, .head_dim = 4, .value_dim = 2};

struct Random {
    std::mt19937 engine;
    int operator()(int min, int max) { return std::uniform_int_distribution<int>{min, max}(engine); }
};

/// The tokens of a sequence in order. All elements of a token's rows must be equal.
template <class Memory>
Values in_order(Memory& cache, int s) {
    const auto all_cells = cache.reserve(1);
    Values found;
    for (int layer = 0; layer < shape.layers; ++layer) {
        const auto keys = all_cells.keys(layer);
        const auto values = all_cells.values(layer);
        std::size_t i = 0;
        cache.visit_cells(Sequence{s}, [&](Position, Cell cell, std::int32_t count) {
            for (int c = cell; c < cell + count; ++c, ++i) {
                const auto x = static_cast<float>(keys(c, 0, 0));
                if (layer == 0) found.push_back(x);
                REQUIRE(found[i] == x);
                for (int h = 0; h < 2; ++h) {
                    for (int d = 0; d < 4; ++d) REQUIRE(static_cast<float>(keys(c, h, d)) == x);
                    for (int d = 0; d < 2; ++d) REQUIRE(static_cast<float>(values(c, h, d)) == x);
                }
            }
        });
    }
    return found;
}

/// A transfer as all ranks know it.
struct InFlight {
    int from;
    int to;
    int source;
    int target;
    int tag;
    Values tokens; ///< of the source when it began
    bool is_over = false;
    bool arrived = false;
};

template <class Memory>
class Trial {
    using Receiving =
        decltype(mpi::receive(std::declval<const Communicator&>(), 0, std::declval<Memory&>(), Sequence{}));

public:
    Trial(const Communicator& comm, Memory cache, unsigned seed)
        : comm_{comm},
          cache_{std::move(cache)},
          random_{std::mt19937{seed}},
          held_(static_cast<std::size_t>(comm.size()), std::vector<Values>(sequences)) {}

    void run(int steps) {
        for (int step = 0; step < steps; ++step) {
            CAPTURE(step);
            const int what = random_(0, 9);
            if (what < 4) {
                append();
            } else if (what == 4) {
                remove();
            } else if (what == 5) {
                copy();
            } else if (what < 8 && in_flight_.size() < 3) {
                begin_transfer();
            } else if (what == 8) {
                make_progress();
            } else if (!in_flight_.empty()) {
                end_transfer();
            }
            check();
        }
        while (!in_flight_.empty()) end_transfer();
        check();
        CHECK(cache_.statistics().snapshots == 0);
    }

    int arrived() const { return arrived_; }
    int refused() const { return refused_; }

private:
    bool is_own(int rank) const { return rank == comm_.rank(); }
    Values& held(int rank, int s) { return held_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(s)]; }

    // What one rank knows, all do.
    bool told(int rank, bool done) {
        int answer = done ? 1 : 0;
        MPI_Bcast(&answer, 1, MPI_INT, rank, MPI_COMM_WORLD);
        return answer != 0;
    }

    void append() {
        const int rank = random_(0, comm_.size() - 1);
        const int s = random_(0, sequences - 1);
        Values tokens;
        for (int n = random_(1, 12); n > 0; --n) tokens.push_back(static_cast<float>(random_(1, 200)));
        Values& list = held(rank, s);
        bool done = false;
        if (is_own(rank)) {
            const auto batch = numbers::prompt(s, static_cast<int>(list.size()), tokens);
            auto pass = numbers::begin(cache_, batch);
            done = pass.has_value();
            if (done) {
                numbers::put(*pass, shape, batch);
                pass->commit();
            } else {
                REQUIRE(pass.error() == Reason::full);
            }
        }
        if (told(rank, done)) list.insert(list.end(), tokens.begin(), tokens.end());
    }

    void remove() {
        const int rank = random_(0, comm_.size() - 1);
        const int s = random_(0, sequences - 1);
        Values& list = held(rank, s);
        const int from = random_(0, static_cast<int>(list.size()));
        if (is_own(rank)) REQUIRE(cache_.remove(Sequence{s}, Position{from}, to_end));
        list.resize(static_cast<std::size_t>(from));
    }

    void copy() {
        const int rank = random_(0, comm_.size() - 1);
        const int from = random_(0, sequences - 1);
        const int to = random_(0, sequences - 1);
        if (is_own(rank)) REQUIRE(cache_.copy_prefix(Sequence{from}, Sequence{to}, Position{1000}));
        held(rank, to) = held(rank, from);
    }

    void begin_transfer() {
        InFlight transfer;
        transfer.from = random_(0, comm_.size() - 1);
        transfer.to = (transfer.from + random_(1, comm_.size() - 1)) % comm_.size();
        transfer.source = random_(0, sequences - 1);
        transfer.target = random_(0, sequences - 1);
        transfer.tag = tags_++;
        transfer.tokens = held(transfer.from, transfer.source);
        const auto same_target = [&](const InFlight& other) {
            return other.to == transfer.to && other.target == transfer.target;
        };
        if (std::any_of(in_flight_.begin(), in_flight_.end(), same_target)) return; // the last one would win
        in_flight_.push_back(transfer);
        sending_.emplace_back();
        receiving_.emplace_back();
        if (is_own(transfer.from))
            sending_.back().emplace(
                mpi::send(comm_, transfer.to, cache_, Sequence{transfer.source}, {.tag = transfer.tag}));
        if (is_own(transfer.to))
            receiving_.back().emplace(
                mpi::receive(comm_, transfer.from, cache_, Sequence{transfer.target}, {.tag = transfer.tag}));
    }

    // A sequence has what was received as soon as everything is there, before anybody waits for it.
    void make_progress() {
        for (auto& sending : sending_)
            if (sending) static_cast<void>(sending->progress());
        for (std::size_t i = 0; i < in_flight_.size(); ++i) {
            if (in_flight_[i].is_over) continue;
            const bool is_over = told(in_flight_[i].to, receiving_[i] && receiving_[i]->progress());
            if (is_over) end_receiving(i);
        }
    }

    void end_receiving(std::size_t i) {
        InFlight& transfer = in_flight_[i];
        transfer.is_over = true;
        if (receiving_[i]) {
            const auto received = receiving_[i]->wait();
            REQUIRE((received || received.error() == Reason::full));
            transfer.arrived = received.has_value();
        }
        transfer.arrived = told(transfer.to, transfer.arrived);
        if (transfer.arrived) held(transfer.to, transfer.target) = transfer.tokens;
        ++(transfer.arrived ? arrived_ : refused_);
    }

    void end_transfer() {
        const auto at = random_(0, static_cast<int>(in_flight_.size()) - 1);
        const auto i = static_cast<std::size_t>(at);
        const int from = in_flight_[i].from;
        bool sent = false;
        if (sending_[i]) {
            const auto result = sending_[i]->wait();
            REQUIRE((result || result.error() == Reason::full));
            sent = result.has_value();
        }
        if (!in_flight_[i].is_over) end_receiving(i);
        REQUIRE(told(from, sent) == in_flight_[i].arrived);
        in_flight_.erase(in_flight_.begin() + at);
        sending_.erase(sending_.begin() + at);
        receiving_.erase(receiving_.begin() + at);
    }

    void check() {
        for (int s = 0; s < sequences; ++s) {
            CAPTURE(s);
            REQUIRE(in_order(cache_, s) == held(comm_.rank(), s));
        }
        REQUIRE(audit(cache_).empty());
    }

    const Communicator& comm_;
    Memory cache_;
    Random random_;
    std::vector<std::vector<Values>> held_; ///< of each rank and sequence
    std::vector<InFlight> in_flight_;
    std::vector<std::optional<mpi::Sending>> sending_;
    std::vector<std::optional<Receiving>> receiving_;
    int tags_ = 0;
    int arrived_ = 0;
    int refused_ = 0;
};

/// The ranks have different caches.
template <class Memory>
void run(const Communicator& comm, const CacheLimits& limits) {
    int arrived = 0;
    int refused = 0;
    for (unsigned seed = 0; seed < 25; ++seed) {
        CAPTURE(seed);
        Trial<Memory> trial{comm, Memory{shape, limits}, seed};
        trial.run(60);
        arrived += trial.arrived();
        refused += trial.refused();
    }
    CHECK(arrived > 50);
    CHECK(refused > 5);
}

} // namespace

TEST_CASE("random operations and transfers between ranks agree with lists of tokens") {
    const Communicator comm{MPI_COMM_WORLD};
    const CacheLimits small{.sequences = sequences, .cells = 60, .batch = 16};
    CacheLimits scattered = small;
    scattered.placement = Placement::scattered;
    CacheLimits growing = small;
    growing.initial_cells = 8;
    switch (comm.rank()) {
    case 0:
        return run<Cache<StandardV<float>>>(comm, growing);
    case 1:
        return run<Cache<Blocked<half>>>(comm, small);
    default:
        return run<Cache<PermutedV<bf16>, FullCausal, DisabledShift, EigenBackend>>(comm, scattered);
    }
}

} // namespace test_transfer_property
