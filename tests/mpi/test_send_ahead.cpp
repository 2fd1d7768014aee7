// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Layers that leave while a prompt is computed.
#include "cache/numbers.hpp"
#include "hybrid/toy.hpp"
#include "transfers.hpp"
#include "violations.hpp"
#include <cellar/mpi/send_ahead.hpp>

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

namespace {

using namespace cellar;
using mpi::Communicator;
using numbers::prompt;
using numbers::Values;
using transfers::between;

const CacheShape shape{3, 2, 4, 2};

template <class Window>
using Numbers = numbers::Cache<Window>;

Values ascending(int first, int end) {
    Values values;
    for (int i = first; i < end; ++i) values.push_back(static_cast<float>(i));
    return values;
}

/// Sends positions up to 24 in chunks of 8, the first of which is there before.
template <class Window>
void in_chunks(const Values& expected) {
    const CacheLimits limits{.sequences = 2, .capacity = 64, .batch = 8};
    between(
        [&](const Communicator& comm, int rank) {
            Numbers<Window> cache{shape, limits};
            numbers::feed(cache, prompt(0, 0, ascending(0, 8)));
            auto sending = mpi::send_ahead(comm, rank, cache, Sequence{0}, Position{24});
            for (const int first : {8, 16}) {
                const numbers::Numbers tokens = prompt(0, first, ascending(first, first + 8));
                auto pass = numbers::begin(cache, tokens).value();
                for (int layer = 0; layer < 3; ++layer) {
                    Values keys;
                    Values values;
                    for (const auto& t : tokens) {
                        keys.insert(keys.end(), 8, t.x);
                        values.insert(values.end(), 4, t.x);
                    }
                    CHECK(violation_of([&] { sending.layer(pass, layer); }).find("was not put") != std::string::npos);
                    pass.put(layer, keys, values);
                    sending.layer(pass, layer);
                }
                pass.commit();
                numbers::feed(cache, prompt(1, 3 * (first / 8 - 1), {1, 2, 3})); // another sequence
            }
            sending.complete();
            REQUIRE(cache.remove({0}, {0}, to_end));
            const auto sent = sending.wait();
            REQUIRE_MESSAGE(sent, sent.error().message);
            CHECK(cache.statistics().snapshots == 0);
        },
        [&](const Communicator& comm, int rank) {
            Numbers<Window> cache{shape, limits};
            const auto received = mpi::receive(comm, rank, cache, Sequence{1}).wait();
            REQUIRE_MESSAGE(received, received.error().message);
            CHECK(cache.next({1}) == Position{24});
            for (int layer = 0; layer < 3; ++layer)
                CHECK(numbers::values_of(numbers::held(cache, 1, layer)) == expected);
            CHECK(audit(cache).empty());
        });
}

} // namespace

TEST_CASE("the layers of a prompt in chunks arrive") {
    in_chunks<FullCausal>(ascending(0, 24));
    in_chunks<SlidingWindow<4>>(ascending(19, 24)); // a window keeps one position more where it has several sequences
}

TEST_CASE("the members of a hybrid arrive, recurrent states last") {
    const auto make = [] {
        return toy::Memory{toy::layers, toy::Sliding{{4, 1, 1}, {.sequences = 2, .capacity = 100, .batch = 8}},
                           toy::Full{{2, 1, 1}, {.sequences = 2, .capacity = 20, .batch = 8}},
                           toy::Recurrent{{1, {{1}}}, {.sequences = 2, .batch = 8, .snapshots = 1}}};
    };
    between(
        [&](const Communicator& comm, int rank) {
            auto memory = make();
            auto sending = mpi::send_ahead(comm, rank, memory, Sequence{0}, Position{12});
            for (const int first : {0, 8}) {
                const toy::Text tokens = toy::text(0, first, first == 0 ? 8 : 4, 1 + first);
                auto pass = memory.begin(toy::batch_of(tokens)).value();
                for (int layer = 0; layer < toy::layers; ++layer) {
                    pass.visit(layer, toy::Work{tokens});
                    sending.layer(pass, layer);
                }
                pass.commit();
            }
            const auto sent = sending.wait();
            REQUIRE_MESSAGE(sent, sent.error().message);
        },
        [&](const Communicator& comm, int rank) {
            auto memory = make();
            auto same = make();
            REQUIRE(toy::feed(same, toy::text(0, 0, 8, 1)));
            REQUIRE(toy::feed(same, toy::text(0, 8, 4, 9)));
            const auto received = mpi::receive(comm, rank, memory, Sequence{0}).wait();
            REQUIRE_MESSAGE(received, received.error().message);
            CHECK(toy::feed(memory, toy::text(0, 12, 1, 5)));
            CHECK(toy::feed(same, toy::text(0, 12, 1, 5)));
            const auto state = [](const toy::Memory& m) {
                const auto& own = m.member<toy::Recurrent>();
                return own.view<toy::Hash>(0, own.state({0}))(0);
            };
            CHECK(state(memory) == state(same));
            CHECK(numbers::values(memory.member<toy::Full>(), 0) == numbers::values(same.member<toy::Full>(), 0));
            CHECK(numbers::values(memory.member<toy::Sliding>(), 0) == numbers::values(same.member<toy::Sliding>(), 0));
        });
}

TEST_CASE("a prompt that is given up leaves both memories as they were") {
    const CacheLimits limits{.sequences = 1, .capacity = 64, .batch = 8};
    between(
        [&](const Communicator& comm, int rank) {
            Numbers<FullCausal> cache{shape, limits};
            auto sending = mpi::send_ahead(comm, rank, cache, Sequence{0}, Position{16});
            CHECK(violation_of([&] { sending.complete(); }).find("that were announced") != std::string::npos);
            for (int i = 0; i < 100; ++i) CHECK_FALSE(sending.progress());
        },
        [&](const Communicator& comm, int rank) {
            Numbers<FullCausal> cache{shape, limits};
            const auto received = mpi::receive(comm, rank, cache, Sequence{0}).wait();
            REQUIRE_FALSE(received);
            CHECK(received.error() == mpi::MpiReason::cancelled);
            CHECK(cache.statistics().free == cache.cells());
        });
}
