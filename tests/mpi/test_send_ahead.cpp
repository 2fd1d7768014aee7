// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Layers that leave while a prompt is computed.
#include "cache/numbers.hpp"
#include "hybrid/toy.hpp"
#include "transfers.hpp"
#include "violations.hpp"
#include <cellar/mpi/send_ahead.hpp>

#include <doctest/doctest.h>

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace test_send_ahead {

namespace {

using namespace cellar;
using mpi::Communicator;
using numbers::prompt;
using numbers::Values;
using transfers::between;

const CacheShape shape{.layers = 3, .kv_heads = 2, .head_dim = 4, .value_dim = 2};

template <class Window>
using Numbers = numbers::Cache<Window>;

Values ascending(int first, int end) {
    Values values;
    for (int i = first; i < end; ++i) values.push_back(static_cast<float>(i));
    return values;
}

/// Tokens that share a position of sequence 0.
numbers::Numbers image(int position, const Values& values) {
    numbers::Numbers tokens;
    for (const float x : values) tokens.push_back({0, position, x});
    return tokens;
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
            REQUIRE(cache.remove(Sequence{0}, Position{0}, to_end));
            const auto sent = sending.wait();
            REQUIRE_MESSAGE(sent, sent.error().message);
            CHECK(cache.statistics().snapshots == 0);
        },
        [&](const Communicator& comm, int rank) {
            Numbers<Window> cache{shape, limits};
            const auto received = mpi::receive(comm, rank, cache, Sequence{1}).wait();
            REQUIRE_MESSAGE(received, received.error().message);
            CHECK(cache.next(Sequence{1}) == Position{24});
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

TEST_CASE("windows arrive that have more tokens than positions, or fewer") {
    const auto migrates = [](CacheLimits limits, std::int32_t retention, const numbers::Numbers& tokens, Position to,
                             const Values& expected) {
        limits.batch = 16;
        const auto make = [&] {
            return Numbers<SlidingWindow<4>>{shape, limits, SlidingWindow<4>{{.retention = retention}}};
        };
        between(
            [&](const Communicator& comm, int rank) {
                auto cache = make();
                numbers::feed(cache, tokens);
                const auto sent = mpi::send_ahead(comm, rank, cache, Sequence{0}, to).wait();
                REQUIRE_MESSAGE(sent, sent.error().message);
            },
            [&](const Communicator& comm, int rank) {
                auto cache = make();
                const auto received = mpi::receive(comm, rank, cache, Sequence{0}).wait();
                REQUIRE_MESSAGE(received, received.error().message);
                CHECK(numbers::values_of(numbers::held(cache, 0)) == expected);
                CHECK(audit(cache).empty());
            });
    };
    // Ten tokens share the last position, and the window has left the first ones.
    migrates({.capacity = 64}, 4, prompt(0, 0, ascending(0, 6)) + image(6, ascending(6, 16)), Position{7},
             ascending(3, 16));
    // Four positions have no token, and the window keeps everything.
    migrates({.capacity = 64, .positions = Positions::any}, 64, prompt(0, 0, {0}) + prompt(0, 5, ascending(5, 9)),
             Position{9}, {0, 5, 6, 7, 8});
}

/// Computes twelve tokens of sequence 0 in two passes.
void compute_twelve(toy::Memory& memory, mpi::SendingAhead<toy::Memory>& sending) {
    for (const int first : {0, 8}) {
        const toy::Text tokens = toy::text(0, first, first == 0 ? 8 : 4, 1 + first);
        auto pass = memory.begin(toy::batch_of(tokens)).value();
        for (int layer = 0; layer < toy::layers; ++layer) {
            pass.visit(layer, toy::Work{tokens});
            sending.layer(pass, layer);
        }
        pass.commit();
    }
}

TEST_CASE("the members of a hybrid arrive, recurrent states last") {
    const auto make = [] {
        return toy::Memory{
            toy::layers,
            toy::Sliding{{.layers = 4, .kv_heads = 1, .head_dim = 1}, {.sequences = 2, .capacity = 100, .batch = 8}},
            toy::Full{{.layers = 2, .kv_heads = 1, .head_dim = 1}, {.sequences = 2, .capacity = 20, .batch = 8}},
            toy::Recurrent{{1, {{1}}}, {.sequences = 2, .batch = 8, .snapshots = 1}}};
    };
    between(
        [&](const Communicator& comm, int rank) {
            auto memory = make();
            auto sending = mpi::send_ahead(comm, rank, memory, Sequence{0}, Position{12});
            compute_twelve(memory, sending);
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
                return own.view<toy::Hash>(0, own.state(Sequence{0}))(0);
            };
            CHECK(state(memory) == state(same));
            CHECK(numbers::values(memory.member<toy::Full>(), 0) == numbers::values(same.member<toy::Full>(), 0));
            CHECK(numbers::values(memory.member<toy::Sliding>(), 0) == numbers::values(same.member<toy::Sliding>(), 0));
        });
}

// A cache with its residual, alone and as a member.
using Coarse = Cache<StandardV<half>>;
using Exact = Cache<StandardV<float>, SlidingWindow<4>>;
using Pair = Hybrid<WithResidual, Coarse, Exact>;
using Around = Hybrid<Repeat<NoMemory, Pair>, Pair>;

Pair make_pair() {
    const CacheShape one{.layers = 2, .kv_heads = 1, .head_dim = 1};
    const CacheLimits limits{.sequences = 1, .capacity = 16, .batch = 8};
    return Pair{2, Coarse{one, limits}, Exact{one, limits}};
}

template <class Make>
void with_residual(Make make, Pair& (*pair)(std::invoke_result_t<Make>&)) {
    const Values rows = ascending(1, 9);
    between(
        [&](const Communicator& comm, int rank) {
            auto memory = make();
            auto sending = mpi::send_ahead(comm, rank, memory, Sequence{0}, Position{8});
            auto pass = memory.begin(Sequence{0}, 8).value();
            for (int layer = 0; layer < memory.layers(); ++layer) {
                const auto put = [&]<class Own>() {
                    pass.visit(layer, [&](auto& own, int index) {
                        if constexpr (requires { own.mark_put(index); }) own.template of<Own>().put(index, rows, rows);
                    });
                };
                const auto missing = [&] { return violation_of([&] { sending.layer(pass, layer); }); };
                if (memory.place(layer).member >= 0) {
                    CHECK(missing().find("member 0 was not put") != std::string::npos);
                    put.template operator()<Coarse>();
                    CHECK(missing().find("member 1 was not put") != std::string::npos);
                    put.template operator()<Exact>();
                }
                sending.layer(pass, layer);
            }
            pass.commit();
            const auto sent = sending.wait();
            REQUIRE_MESSAGE(sent, sent.error().message);
        },
        [&](const Communicator& comm, int rank) {
            auto memory = make();
            const auto received = mpi::receive(comm, rank, memory, Sequence{0}).wait();
            REQUIRE_MESSAGE(received, received.error().message);
            Pair& both = pair(memory);
            CHECK(both.next(Sequence{0}) == Position{8});
            for (int layer = 0; layer < 2; ++layer) {
                CHECK(numbers::values_of(numbers::held(both.member<Coarse>(), 0, layer)) == rows);
                CHECK(numbers::values_of(numbers::held(both.member<Exact>(), 0, layer)) == ascending(5, 9));
            }
        });
}

TEST_CASE("both caches of a layer with a residual are sent, also where they are a member") {
    with_residual(make_pair, [](Pair& pair) -> Pair& { return pair; });
    with_residual([] { return Around{4, make_pair()}; }, [](Around& around) -> Pair& { return around.member<Pair>(); });
}

// Inputs of two images, the first at a position that has two. No layer of the pattern belongs to the encoder member,
// or the second of each period does.
using Self = Cache<>;
using Cross = EncoderMemory<>;
template <class... Layers>
using Images = Hybrid<Repeat<Layers...>, Self, Cross>;

template <class Memory>
Memory make_images(int self, int cross) {
    return Memory{4, Self{{.layers = self, .kv_heads = 1, .head_dim = 1}, {.sequences = 2, .capacity = 32, .batch = 8}},
                  Cross{{.layers = cross, .kv_heads = 1, .head_dim = 1}, {.sequences = 2, .capacity = 16, .batch = 8}}};
}

template <class Memory>
void write_image(Memory& memory, Position at, const Values& rows) {
    auto& cross = memory.template member<Cross>();
    auto written = cross.write(Sequence{0}, at, static_cast<std::int32_t>(rows.size())).value();
    for (int layer = 0; layer < cross.layers(); ++layer) written.put(layer, rows, rows);
    written.commit();
}

template <class Sending, class Memory>
void decode(Sending& sending, Memory& memory, int first) {
    const toy::Text tokens = toy::text(0, first, 4, 1 + first);
    auto pass = memory.begin(toy::batch_of(tokens)).value();
    for (int layer = 0; layer < memory.layers(); ++layer) {
        pass.visit(layer, [&](auto& own, int index) {
            if constexpr (requires { own.put(index, Values{}, Values{}); }) toy::Work{tokens}(own, index);
        });
        sending.layer(pass, layer);
    }
    pass.commit();
}

template <class Memory>
void with_images(int self, int cross) {
    between(
        [&](const Communicator& comm, int rank) {
            auto memory = make_images<Memory>(self, cross);
            write_image(memory, Position{2}, {1, 2, 3});
            write_image(memory, Position{2}, {4});
            write_image(memory, Position{5}, {5, 6});
            write_image(memory, Position{8}, {7}); // behind what is announced
            auto sending = mpi::send_ahead(comm, rank, memory, Sequence{0}, Position{8});
            decode(sending, memory, 0);
            decode(sending, memory, 4);
            sending.complete();
            REQUIRE(memory.remove(Sequence{0}, Position{0}, to_end));
            const auto sent = sending.wait();
            REQUIRE_MESSAGE(sent, sent.error().message);
        },
        [&](const Communicator& comm, int rank) {
            auto memory = make_images<Memory>(self, cross);
            const auto received = mpi::receive(comm, rank, memory, Sequence{1}).wait();
            REQUIRE_MESSAGE(received, received.error().message);
            CHECK(memory.next(Sequence{1}) == Position{8});
            // position:word@cell, in all layers
            CHECK(toy::contents(memory.template member<Self>(), 1)
                  == " 0:1@0 1:2@1 2:3@2 3:4@3 4:5@4 5:6@5 6:7@6 7:8@7");
            CHECK(toy::contents(memory.template member<Cross>(), 1) == " 2:1@0 2:2@1 2:3@2 2:4@3 5:5@4 5:6@5");
        });
}

TEST_CASE("the inputs of an encoder memory arrive with the prompt that sees them") {
    with_images<Images<Self>>(4, 4);
    with_images<Images<Self, Cross>>(2, 2);
}

TEST_CASE("inputs that are written after the announcement cancel the transfer") {
    using Memory = Images<Self>;
    between(
        [&](const Communicator& comm, int rank) {
            auto memory = make_images<Memory>(4, 4);
            auto sending = mpi::send_ahead(comm, rank, memory, Sequence{0}, Position{4});
            write_image(memory, Position{2}, {1, 2, 3});
            decode(sending, memory, 0);
            const auto sent = sending.wait();
            REQUIRE_FALSE(sent);
            CHECK(sent.error() == mpi::MpiReason::cancelled);
            CHECK(memory.template member<Cross>().tokens(Sequence{0}) == 3);
        },
        [&](const Communicator& comm, int rank) {
            auto memory = make_images<Memory>(4, 4);
            const auto received = mpi::receive(comm, rank, memory, Sequence{1}).wait();
            REQUIRE_FALSE(received);
            CHECK(received.error() == mpi::MpiReason::cancelled);
            CHECK(memory.template member<Self>().statistics().tokens == 0);
            CHECK(memory.template member<Cross>().statistics().tokens == 0);
        });
}

TEST_CASE("a memory that refuses the snapshot of a prompt refuses on both processes, and both stay as they were") {
    between(
        [&](const Communicator& comm, int rank) {
            auto memory = toy::memory(); // without room for snapshots of states
            auto sending = mpi::send_ahead(comm, rank, memory, Sequence{0}, Position{12});
            compute_twelve(memory, sending);
            const std::string before = toy::portrait(memory);
            sending.complete();
            CHECK(sending.progress()); // it is over
            const auto sent = sending.wait();
            REQUIRE_FALSE(sent);
            CHECK(sent.error() == Reason::too_many_snapshots);
            CHECK(sent.error().refusal.member == 2);
            CHECK(sent.error().rank == comm.rank());
            CHECK(toy::portrait(memory) == before);
        },
        [&](const Communicator& comm, int rank) {
            auto memory = toy::memory();
            REQUIRE(toy::feed(memory, toy::text(1, 0, 3)));
            const std::string before = toy::portrait(memory);
            const auto received = mpi::receive(comm, rank, memory, Sequence{1}).wait();
            REQUIRE_FALSE(received);
            CHECK(received.error() == Reason::too_many_snapshots);
            CHECK(received.error().refusal.member == 2);
            CHECK(received.error().rank == rank);
            CHECK(toy::portrait(memory) == before);
        });
}

template <class M>
concept SendsAhead = requires(const Communicator& comm, M& memory) {
    mpi::send_ahead(comm, 1, memory, Sequence{0}, Position{1});
};
static_assert(SendsAhead<Images<Self, Cross>> && !SendsAhead<Cross>);

TEST_CASE("a prompt that is given up leaves both memories as they were") {
    const CacheLimits limits{.sequences = 1, .capacity = 64, .batch = 8};
    between(
        [&](const Communicator& comm, int rank) {
            Numbers<FullCausal> cache{shape, limits};
            auto sending = mpi::send_ahead(comm, rank, cache, Sequence{0}, Position{16});
            CHECK(violation_of([&] { sending.complete(); }).find("that were announced") != std::string::npos);
            bool is_over = false; // with rows that are not there
            for (const double begun = MPI_Wtime(); MPI_Wtime() - begun < 0.3;) is_over = is_over || sending.progress();
            CHECK_FALSE(is_over);
            const auto moved = std::move(sending);
            CHECK(violation_of([&] { static_cast<void>(sending.progress()); })
                  == "the transfer was moved from, expected one that was not");
        },
        [&](const Communicator& comm, int rank) {
            Numbers<FullCausal> cache{shape, limits};
            const auto received = mpi::receive(comm, rank, cache, Sequence{0}).wait();
            REQUIRE_FALSE(received);
            CHECK(received.error() == mpi::MpiReason::cancelled);
            CHECK(cache.statistics().free == cache.cells());
        });
}

} // namespace test_send_ahead
