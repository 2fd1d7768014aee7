// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Transfers that fail: both processes get an error that says why, and both memories are as they were.
#include "cache/numbers.hpp"
#include "hybrid/failing_allocations.hpp"
#include "hybrid/toy.hpp"
#include "transfers.hpp"
#include "violations.hpp"
#include <cellar/format/int8.hpp>
#include <cellar/mpi/detail/message.hpp>
#include <cellar/mpi/detail/transfers.hpp>
#include <cellar/mpi/detail/wire.hpp>
#include <cellar/mpi/send_ahead.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <mpi.h>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace test_failures {

namespace {

using namespace cellar;
using namespace std::chrono_literals;
using detail::MessageHead;
using detail::MessageKind;
using mpi::Communicator;
using mpi::MpiReason;
using numbers::portrait;
using numbers::prompt;
using transfers::between;

using Numbers = numbers::Cache<>;

const CacheShape shape{.layers = 2, .kv_heads = 1, .head_dim = 2, .value_dim = 1};

Numbers filled(std::int32_t capacity = 8) {
    Numbers cache{shape, {.sequences = 3, .capacity = capacity, .batch = 8}};
    numbers::feed(cache, prompt(1, 0, {9, 9}));
    numbers::feed(cache, prompt(0, 0, {1, 2, 3, 4, 5, 6}));
    return cache;
}

/// Sends sequence 0 of a filled cache, and receives it into sequence 0 of `to`. Both fail for this reason, and change
/// nothing.
template <class To, class Expected>
void refused(To to, Expected expected, const std::string& words, mpi::ReceiveOptions options = {}) {
    between(
        [&](const Communicator& comm, int rank) {
            Numbers cache = filled();
            const std::string before = portrait(cache);
            const auto sent = mpi::send(comm, rank, cache, Sequence{0}, {.model = "a model"}).wait();
            REQUIRE_FALSE(sent);
            CHECK(sent.error() == expected);
            CHECK(sent.error().rank == rank);
            CHECK(sent.error().message.find(words) != std::string::npos);
            CHECK(portrait(cache) == before);
        },
        [&](const Communicator& comm, int rank) {
            const std::string before = portrait(to);
            const auto received = mpi::receive(comm, rank, to, Sequence{0}, options).wait();
            REQUIRE_FALSE(received);
            CHECK(received.error() == expected);
            CHECK(received.error().rank == comm.rank());
            CHECK(received.error().message.find(words) != std::string::npos);
            CHECK(portrait(to) == before);
            CHECK(audit(to).empty());
        });
}

/// Waits for that rank, which does the same.
void meet(int rank) {
    MPI_Sendrecv(nullptr, 0, MPI_BYTE, rank, 0, nullptr, 0, MPI_BYTE, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/// One end of a transfer by hand.
class Hand {
public:
    Hand(const Communicator& comm, int rank, bool is_sender = true)
        : comm_{comm},
          rank_{rank},
          to_{is_sender ? detail::sender_tag(0) : detail::receiver_tag(0)},
          from_{is_sender ? detail::receiver_tag(0) : detail::sender_tag(0)} {}

    void post(MessageHead head, const std::vector<std::byte>& body, std::size_t cut = 0, int altered = -1) {
        detail::Message message{static_cast<std::int64_t>(body.size())};
        std::copy(body.begin(), body.end(), message.body());
        head.number = head.number == 0 ? 1 : head.number;
        head.bytes = body.size();
        message.finish(head);
        if (altered >= 0) message.data()[altered] ^= std::byte{4};
        MPI_Send(message.data(), static_cast<int>(static_cast<std::size_t>(message.size()) - cut), MPI_BYTE, rank_, to_,
                 comm_.handle());
    }
    void announce(const std::vector<std::byte>& body) { post({.kind = MessageKind::announcement}, body); }

    /// Receives a message.
    MessageHead answer() {
        std::vector<std::byte> bytes(4096);
        MPI_Status status;
        MPI_Recv(bytes.data(), 4096, MPI_BYTE, rank_, from_, comm_.handle(), &status);
        MessageHead head;
        std::memcpy(&head, bytes.data(), sizeof(head));
        return head;
    }

private:
    const Communicator& comm_;
    int rank_;
    int to_;
    int from_;
};

using Change = std::function<void(detail::StoredSnapshot&)>;

/// Of sequence 0.
template <class M>
std::vector<std::byte> announcement_of(M memory, const Change& change) {
    const auto snapshot = memory.snapshot(Sequence{0}).value();
    detail::StoredSnapshot stored;
    memory.save(snapshot, "", stored);
    if (change) change(stored);
    detail::WireWriter out;
    detail::Announcement::write(out, "", stored);
    return {out.all().begin(), out.all().end()};
}
std::vector<std::byte> announcement(const Change& change = {}) {
    return announcement_of(filled(), change);
}

/// What a receiver says to a sender by hand. Its memory must not change.
void by_hand(const std::function<void(Hand&)>& send, MpiReason expected, const std::string& words) {
    between(
        [&](const Communicator& comm, int rank) {
            Hand hand{comm, rank};
            send(hand);
            hand.post({.kind = MessageKind::end}, {});
        },
        [&](const Communicator& comm, int rank) {
            Numbers cache = filled(16);
            const std::string before = describe(cache) + std::to_string(cache.statistics().free);
            const auto received = mpi::receive(comm, rank, cache, Sequence{2}).wait();
            REQUIRE_FALSE(received);
            CHECK(received.error() == expected);
            CHECK_MESSAGE(received.error().message.find(words) != std::string::npos, received.error().message);
            CHECK(describe(cache) + std::to_string(cache.statistics().free) == before);
            CHECK(audit(cache).empty());
        });
}

std::vector<std::byte> rows(std::size_t floats) {
    return std::vector<std::byte>(4 * floats);
}

} // namespace

TEST_CASE("a memory that cannot hold what is sent is unsuitable, on both processes") {
    refused(Numbers{CacheShape{.layers = 3, .kv_heads = 1, .head_dim = 2, .value_dim = 1},
                    {.sequences = 1, .capacity = 8, .batch = 8}},
            MpiReason::unsuitable, "it has 2 layers, expected 3");
    refused(Numbers{CacheShape{.layers = 2, .kv_heads = 1, .head_dim = 4, .value_dim = 1},
                    {.sequences = 1, .capacity = 8, .batch = 8}},
            MpiReason::unsuitable, "layers.0.keys is [6, 1, 2], expected [6, 1, 4]");
    refused(Numbers{shape, {.sequences = 1, .capacity = 8, .batch = 8}}, MpiReason::unsuitable,
            "its model is \"a model\", expected \"another\"", {.model = "another"});
}

TEST_CASE("a memory without room refuses on both processes") {
    refused(Numbers{shape, {.sequences = 1, .capacity = 5, .batch = 8}}, Reason::full, "full");
}

TEST_CASE("a sequence that lacks what precedes a snapshot refuses it on both processes") {
    between(
        [&](const Communicator& comm, int rank) {
            Numbers cache = filled();
            const auto snapshot = cache.snapshot(Sequence{0}, Position{3}, Position{6}).value();
            const auto sent = mpi::send(comm, rank, cache, snapshot).wait();
            REQUIRE_FALSE(sent);
            CHECK(sent.error() == Reason::cannot_resume);
        },
        [&](const Communicator& comm, int rank) {
            Numbers cache = filled(16);
            const std::string before = portrait(cache);
            const std::int32_t free = cache.statistics().free;
            auto receiving = mpi::receive(comm, rank, cache, Sequence{1});
            const auto received = receiving.wait();
            REQUIRE_FALSE(received);
            CHECK(cache.statistics().free == free); // at once
            CHECK(received.error() == Reason::cannot_resume);
            CHECK(received.error().refusal.sequence == Sequence{1});
            CHECK(portrait(cache) == before);
        });
}

TEST_CASE("a sender that refuses tells the receiver") {
    between(
        [&](const Communicator& comm, int rank) {
            auto memory = toy::memory(); // without room for snapshots of states
            REQUIRE(toy::feed(memory, toy::text(0, 0, 3)));
            const auto sent = mpi::send(comm, rank, memory, Sequence{0}).wait();
            REQUIRE_FALSE(sent);
            CHECK(sent.error() == Reason::too_many_snapshots);
            CHECK(sent.error().refusal.member == 2);
            CHECK(memory.next(Sequence{0}) == Position{3});
        },
        [&](const Communicator& comm, int rank) {
            auto memory = toy::memory();
            const auto received = mpi::receive(comm, rank, memory, Sequence{0}).wait();
            REQUIRE_FALSE(received);
            CHECK(received.error() == Reason::too_many_snapshots);
            CHECK(received.error().refusal.member == 2);
            CHECK(received.error().rank == rank);
        });
}

TEST_CASE("a process that gives up tells the other one, and the next transfer succeeds") {
    const CacheShape wide{.layers = 1, .kv_heads = 8, .head_dim = 128, .value_dim = 128};
    const CacheLimits large{.sequences = 2, .capacity = 4096, .batch = 4096};
    for (const bool sender_gives_up : {true, false})
        between(
            [&](const Communicator& comm, int rank) {
                Cache<> cache{wide, large};
                numbers::feed(cache, prompt(0, 0, numbers::Values(4096, 3)));
                {
                    auto sending = mpi::send(comm, rank, cache, Sequence{0});
                    for (int i = 0; sender_gives_up && i < 10; ++i) {
                        static_cast<void>(sending.progress());
                        std::this_thread::sleep_for(1ms);
                    }
                    if (!sender_gives_up) {
                        const auto sent = sending.wait();
                        REQUIRE_FALSE(sent);
                        CHECK(sent.error() == MpiReason::cancelled);
                        CHECK(sent.error().rank == rank);
                    }
                }
                CHECK(cache.statistics().free == 4096);
                CHECK(cache.statistics().snapshots == 0);
                const auto again = mpi::send(comm, rank, cache, Sequence{0}).wait();
                REQUIRE_MESSAGE(again, again.error().message);
            },
            [&](const Communicator& comm, int rank) {
                Cache<> cache{wide, large};
                {
                    auto receiving = mpi::receive(comm, rank, cache, Sequence{0});
                    while (!sender_gives_up && cache.statistics().free == cache.cells())
                        static_cast<void>(receiving.progress());
                    for (int i = 0; !sender_gives_up && i < 10; ++i) // at most 10 of 32 blocks
                        static_cast<void>(receiving.progress());
                    if (sender_gives_up) {
                        const auto received = receiving.wait();
                        REQUIRE_FALSE(received);
                        CHECK(received.error() == MpiReason::cancelled);
                    }
                }
                CHECK(cache.statistics().free == cache.cells());
                const auto again = mpi::receive(comm, rank, cache, Sequence{0}).wait();
                REQUIRE_MESSAGE(again, again.error().message);
                CHECK(cache.tokens(Sequence{0}) == 4096);
            });
}

TEST_CASE("what was sent of a transfer that failed is received, although no other transfer follows") {
    const auto until_idle = [](const Communicator& comm) {
        detail::Transfers& transfers = comm.transfers();
        for (const double begun = MPI_Wtime(); !transfers.is_idle() && MPI_Wtime() - begun < 20;) transfers.progress();
        CHECK(transfers.is_idle()); // MPI uses no message any more
    };
    between(
        [&](const Communicator& comm, int rank) {
            Cache<> cache{{.layers = 1, .kv_heads = 8, .head_dim = 128, .value_dim = 128},
                          {.sequences = 1, .capacity = 4096, .batch = 4096}};
            numbers::feed(cache, prompt(0, 0, numbers::Values(4096, 3)));
            const auto sent = mpi::send(comm, rank, cache, Sequence{0}).wait();
            REQUIRE_FALSE(sent);
            until_idle(comm);
            meet(rank);
        },
        [&](const Communicator& comm, int rank) {
            Cache<> cache{{.layers = 1, .kv_heads = 8, .head_dim = 128, .value_dim = 128},
                          {.sequences = 1, .capacity = 4096, .batch = 4096}};
            {
                auto receiving = mpi::receive(comm, rank, cache, Sequence{0});
                while (cache.statistics().free == cache.cells()) static_cast<void>(receiving.progress());
                for (int i = 0; i < 10; ++i) static_cast<void>(receiving.progress());
            }
            { const auto finds_nothing = mpi::receive(comm, rank, cache, Sequence{0}); } // makes no difference
            until_idle(comm);
            meet(rank);
        });
}

TEST_CASE("a process that does nothing within the time limit is named, and the next transfer succeeds") {
    between(
        [&](const Communicator& comm, int rank) {
            Numbers cache = filled();
            meet(rank); // the receiver has given up
            for (int i = 0; i < 3; ++i) {
                const auto sent = mpi::send(comm, rank, cache, Sequence{0}, {.time_limit = 50ms}).wait();
                REQUIRE_FALSE(sent);
                CHECK(sent.error() == MpiReason::timed_out);
                CHECK(sent.error().rank == rank);
            }
            CHECK(cache.statistics().snapshots == 0);
            meet(rank);
            const auto sent = mpi::send(comm, rank, cache, Sequence{0}).wait();
            REQUIRE_MESSAGE(sent, sent.error().message);
        },
        [&](const Communicator& comm, int rank) {
            Numbers cache = filled();
            const std::string before = portrait(cache);
            const auto none = mpi::receive(comm, rank, cache, Sequence{0}, {.time_limit = 50ms}).wait();
            REQUIRE_FALSE(none);
            CHECK(none.error() == MpiReason::timed_out);
            CHECK(none.error().rank == rank);
            CHECK(portrait(cache) == before);
            meet(rank);
            meet(rank); // three transfers are announced that the sender has given up
            const auto received = mpi::receive(comm, rank, cache, Sequence{2}).wait();
            REQUIRE_MESSAGE(received, received.error().message);
            CHECK(cache.tokens(Sequence{2}) == 6);
        });
}

TEST_CASE("after an altered answer, the sender may be late or try alone, and the next transfer succeeds") {
    between(
        [&](const Communicator& comm, int rank) {
            Numbers cache = filled();
            const auto altered = mpi::send(comm, rank, cache, Sequence{0}).wait();
            REQUIRE_FALSE(altered);
            CHECK(altered.error() == MpiReason::altered);
            const auto alone = mpi::send(comm, rank, cache, Sequence{0}, {.time_limit = 50ms}).wait();
            REQUIRE_FALSE(alone);
            CHECK(alone.error() == MpiReason::timed_out);
            meet(rank);
            const auto sent = mpi::send(comm, rank, cache, Sequence{0}).wait();
            REQUIRE_MESSAGE(sent, sent.error().message);
        },
        [&](const Communicator& comm, int rank) {
            Hand hand{comm, rank, false};
            const MessageHead announced = hand.answer();
            CHECK(announced.kind == MessageKind::announcement);
            hand.post({.kind = MessageKind::acceptance, .number = announced.number}, {}, 0, 50);
            meet(rank);
            Numbers cache = filled();
            const auto received = mpi::receive(comm, rank, cache, Sequence{2}).wait();
            REQUIRE_MESSAGE(received, received.error().message);
            CHECK(cache.tokens(Sequence{2}) == 6);
        });
}

TEST_CASE("a receiver goes on to the next transfer if the sender has not seen that it accepted one") {
    for (const bool says_so : {true, false}) // or only announces another one
        between(
            [&](const Communicator& comm, int rank) {
                Hand hand{comm, rank};
                hand.announce(announcement());
                CHECK(hand.answer().kind == MessageKind::acceptance);
                if (says_so) hand.post({.kind = MessageKind::lapse}, {});
                hand.post({.kind = MessageKind::announcement, .number = 2}, announcement());
                const MessageHead answer = hand.answer();
                CHECK(answer.kind == MessageKind::acceptance);
                CHECK(answer.number == 2);
                for (std::uint64_t array = 1; array < 5; ++array)
                    hand.post({.kind = MessageKind::block, .number = 2, .array = array, .rows = 6},
                              rows(array % 2 == 1 ? 12 : 6));
                CHECK(hand.answer().kind == MessageKind::completion);
            },
            [&](const Communicator& comm, int rank) {
                Numbers cache = filled(16);
                const auto received = mpi::receive(comm, rank, cache, Sequence{2}).wait();
                REQUIRE_MESSAGE(received, received.error().message);
                CHECK(cache.tokens(Sequence{2}) == 6);
                CHECK(cache.statistics().snapshots == 0);
                CHECK(audit(cache).empty());
            });
}

TEST_CASE("a time limit may be as long as any, and a snapshot is received once") {
    constexpr auto no_limit = std::chrono::milliseconds::max();
    between(
        [&](const Communicator& comm, int rank) {
            Numbers cache = filled();
            const auto sent = mpi::send(comm, rank, cache, Sequence{0}, {.time_limit = no_limit}).wait();
            REQUIRE_MESSAGE(sent, sent.error().message);
        },
        [&](const Communicator& comm, int rank) {
            Numbers cache = filled();
            auto receiving = mpi::receive(comm, rank, cache, {.time_limit = no_limit});
            const auto received = receiving.wait();
            REQUIRE_MESSAGE(received, received.error().message);
            CHECK(violation_of([&] { static_cast<void>(receiving.wait()); }).find("taken already")
                  != std::string::npos);
        });
}

TEST_CASE("scales that are not those of the announced format are refused") {
    using Bytes = Cache<StandardV<int8_per_head>>;
    using Half = Cache<StandardV<half>>;
    const CacheLimits limits{.sequences = 1, .capacity = 8, .batch = 8};
    const auto check = [&](const Change& change, const std::string& words) {
        between(
            [&](const Communicator& comm, int rank) {
                Bytes cache{shape, limits};
                auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, 1}).value();
                for (const int layer : {0, 1}) pass.put(layer, numbers::Values(2, 1), numbers::Values(1, 1));
                pass.commit();
                Hand hand{comm, rank};
                hand.announce(announcement_of(std::move(cache), change));
                hand.post({.kind = MessageKind::end}, {});
            },
            [&](const Communicator& comm, int rank) {
                Half cache{shape, limits};
                const auto received =
                    mpi::receive(comm, rank, cache, Sequence{0}, {.convert_from = formats<int8_per_head>}).wait();
                REQUIRE_FALSE(received);
                CHECK(received.error() == MpiReason::unsuitable);
                CHECK_MESSAGE(received.error().message.find(words) != std::string::npos, received.error().message);
                CHECK(cache.statistics().free == cache.cells());
            });
    };
    const auto scales = [](detail::StoredSnapshot& stored) -> detail::StoredArray& { return stored.arrays[2]; };
    check([&](auto& stored) { scales(stored).format = detail::StoredFormat::f16(); },
          "its layers.0.key_scales has elements of type F16, expected F32");
    check([&](auto& stored) { scales(stored).name = "layers.0.other"; }, "it has no layers.0.key_scales");
    check([&](auto& stored) { scales(stored).shape[2] = 2; },
          "its layers.0.key_scales is [1, 1, 2], expected [1, 1, 1]");
}

TEST_CASE("altered and cut messages are refused") {
    by_hand([](Hand& hand) { hand.post({.kind = MessageKind::announcement}, announcement(), 0, 80); },
            MpiReason::altered, "checksum");
    by_hand([](Hand& hand) { hand.post({.kind = MessageKind::announcement}, announcement(), 0, 20); },
            MpiReason::altered, "checksum");
    by_hand([](Hand& hand) { hand.post({.kind = MessageKind::announcement}, announcement(), 1); }, MpiReason::altered,
            "length");
    by_hand([](Hand& hand) { hand.post({.kind = MessageKind::announcement}, {}, 1); }, MpiReason::altered, "length");
    by_hand([](Hand& hand) { hand.post({.kind = MessageKind::announcement}, announcement(), 0, 0); },
            MpiReason::malformed, "version or byte order");
    const auto accepted = [](Hand& hand) {
        hand.announce(announcement());
        CHECK(hand.answer().kind == MessageKind::acceptance);
    };
    by_hand(
        [&](Hand& hand) {
            accepted(hand);
            hand.post({.kind = MessageKind::block, .array = 1, .rows = 6}, rows(12), 0, 64 + 47);
            CHECK(hand.answer().kind == MessageKind::failure);
        },
        MpiReason::altered, "checksum");
    by_hand(
        [&](Hand& hand) {
            accepted(hand);
            hand.post({.kind = MessageKind::block, .array = 1, .rows = 6}, rows(12), 8);
            CHECK(hand.answer().kind == MessageKind::failure);
        },
        MpiReason::altered, "length");
}

TEST_CASE("messages that contradict themselves are refused") {
    const auto block = [](MessageHead head, std::size_t floats) {
        return [=](Hand& hand) {
            hand.announce(announcement());
            CHECK(hand.answer().kind == MessageKind::acceptance);
            MessageHead own = head;
            own.kind = MessageKind::block;
            hand.post(own, rows(floats));
            CHECK(hand.answer().kind == MessageKind::failure);
        };
    };
    by_hand(block({.array = 5, .rows = 6}, 12), MpiReason::malformed, "no array");
    by_hand(block({.array = 0, .rows = 6}, 6), MpiReason::malformed, "other rows"); // the positions
    by_hand(block({.array = 1, .first = 1, .rows = 5}, 10), MpiReason::malformed, "other rows");
    by_hand(block({.array = 1, .rows = 7}, 14), MpiReason::malformed, "other rows");
    by_hand(block({.array = 1, .rows = 5}, 12), MpiReason::malformed, "other rows");
    by_hand(block({.array = 1, .rows = 5}, 11), MpiReason::malformed, "other rows");
    by_hand(block({.array = 1, .rows = 0}, 0), MpiReason::malformed, "other rows");
    by_hand(
        [](Hand& hand) {
            hand.announce(announcement());
            hand.answer();
            hand.announce(announcement());
        },
        MpiReason::malformed, "out of order");
    by_hand([](Hand& hand) { hand.announce({}); }, MpiReason::malformed, "length");
    by_hand(
        [](Hand& hand) {
            auto bytes = announcement();
            bytes.push_back({});
            hand.announce(bytes);
        },
        MpiReason::malformed, "length");
    for (std::size_t n = 1; n < announcement().size(); n += 37)
        by_hand(
            [n](Hand& hand) {
                auto bytes = announcement();
                bytes.resize(n);
                hand.announce(bytes);
            },
            MpiReason::malformed, "");
}

TEST_CASE("announcements that no memory can hold are refused") {
    using detail::StoredFormat;
    const auto announced = [](const Change& change) {
        return [=](Hand& hand) { hand.announce(announcement(change)); };
    };
    by_hand(announced([](auto& s) { s.arrays[1].format = StoredFormat::i32(), s.arrays[1].shape = {0}; }),
            MpiReason::unsuitable, "layers.0.keys");
    by_hand(announced([](auto& s) { s.arrays[1].shape[2] = 3; }), MpiReason::unsuitable, "layers.0.keys");
    by_hand(announced([](auto& s) {
                s.arrays[1].shape = {std::uint64_t{1} << 60, 8, 8};
            }),
            MpiReason::malformed, "too large");
    by_hand(announced([](auto& s) { s.arrays[1].name = s.arrays[2].name; }), MpiReason::malformed, "twice");
    by_hand(announced([](auto& s) { s.numbers[1].first = s.numbers[0].first; }), MpiReason::malformed, "twice");
    by_hand(announced([](auto& s) {
                s.arrays.push_back(s.arrays[1]);
                s.arrays.back().name = "more";
            }),
            MpiReason::unsuitable, "more");
    by_hand(announced([](auto& s) { s.arrays.pop_back(); }), MpiReason::unsuitable, "layers.1.values");
    by_hand(announced([](auto& s) { s.numbers[3].second = 3; }), MpiReason::unsuitable, "not in order");
}

TEST_CASE("a state that is announced as integers is refused") {
    const auto make = [] { return toy::Recurrent{{1, {{1}}}, {.sequences = 1, .batch = 8, .snapshots = 1}}; };
    between(
        [&](const Communicator& comm, int rank) {
            auto memory = make();
            REQUIRE(toy::feed(memory, toy::text(0, 0, 3), 1));
            Hand hand{comm, rank};
            hand.announce(announcement_of(std::move(memory), [](auto& s) {
                s.arrays[0].format = detail::StoredFormat::i32(); // its extents are those of such a list
            }));
            CHECK(hand.answer().kind == MessageKind::failure);
            hand.post({.kind = MessageKind::end}, {});
        },
        [&](const Communicator& comm, int rank) {
            auto memory = make();
            const auto received = mpi::receive(comm, rank, memory, Sequence{0}).wait();
            REQUIRE_FALSE(received);
            CHECK(received.error() == MpiReason::unsuitable);
            CHECK(received.error().message
                  == "receive: its layers.0.states.0 has elements of type I32, expected F32, F16 or BF16");
            CHECK(memory.next(Sequence{0}) == Position{0});
            CHECK(memory.statistics().used == 0);
        });
}

TEST_CASE("mistakes are violations") {
    const Communicator comm{MPI_COMM_WORLD};
    Numbers cache = filled();
    const int other = comm.rank() == 0 ? 1 : 0;
    const auto sent_with = [&](mpi::SendOptions options) {
        return violation_of([&] { static_cast<void>(mpi::send(comm, other, cache, Sequence{0}, options)); });
    };
    CHECK(sent_with({.tag = -1}).find("expected 0 to 9999") != std::string::npos);
    CHECK(sent_with({.tag = 10000}).find("expected 0 to 9999") != std::string::npos);
    CHECK(sent_with({.time_limit = 0ms}).find("expected 1 or more") != std::string::npos);
    CHECK(sent_with({.block = 1000}).find("expected 2^20") != std::string::npos);
    CHECK(sent_with({.block = (1 << 30) + 1}) == "send: blocks of 1073741825 bytes, expected 2^20 to 2^30");
    CHECK(violation_of([&] { static_cast<void>(mpi::send(comm, comm.rank(), cache, Sequence{0})); }).find("other than")
          != std::string::npos);
    CHECK(violation_of([&] { static_cast<void>(mpi::send(comm, other, cache, Sequence{3})); }).find("expected 0 to 2")
          != std::string::npos);
    CHECK(
        violation_of([&] { static_cast<void>(mpi::receive(comm, other, cache, Sequence{3})); }).find("expected 0 to 2")
        != std::string::npos);
    CHECK(violation_of([&] { static_cast<void>(mpi::receive(comm, other, cache, {.tag = -1})); }).find("0 to 9999")
          != std::string::npos);
    CHECK(violation_of([&] { static_cast<void>(mpi::receive(comm, other, cache, {.time_limit = 0ms})); })
          == "receive: a time limit of 0 ms, expected 1 or more");
    CHECK(violation_of([&] { static_cast<void>(mpi::send_ahead(comm, other, cache, Sequence{0}, Position{5})); })
          == "send_ahead: up to position 5, expected at least the 6 tokens that sequence 0 has");
    auto receiving = mpi::receive(comm, other, cache, Sequence{2}, {.tag = 7});
    CHECK(violation_of([&] { static_cast<void>(mpi::receive(comm, other, cache, {.tag = 7})); }).find("one at a time")
          != std::string::npos);
    const auto moved = std::move(receiving);
    CHECK(violation_of([&] { receiving.progress(); }).find("moved from") != std::string::npos);
    MPI_Barrier(MPI_COMM_WORLD);
}

TEST_CASE("after a transfer could not begin for want of memory, its tag is free") {
    between(
        [&](const Communicator& comm, int rank) {
            Numbers cache = filled();
            const auto snapshot = cache.snapshot(Sequence{0}).value();
            for (const int successes : {0, 1}) { // with more, it begins, and the receiver gets the error
                const FailingAllocations failing{successes};
                CHECK_THROWS_AS((void)mpi::send(comm, rank, cache, snapshot), std::bad_alloc);
            }
            REQUIRE(mpi::send(comm, rank, cache, snapshot).wait());
        },
        [&](const Communicator& comm, int rank) {
            Numbers cache{shape, {.sequences = 3, .capacity = 8, .batch = 8}};
            std::optional<decltype(mpi::receive(comm, rank, cache, Sequence{0}))> receiving;
            const auto begin = [&] { receiving.emplace(mpi::receive(comm, rank, cache, Sequence{0})); };
            CHECK(failures_of(begin, [] {}) > 1);
            REQUIRE(receiving->wait());
            CHECK(cache.tokens(Sequence{0}) == 6);
        });
}

TEST_CASE("a sender that is short of memory throws, or both processes get no_memory") {
    between(
        [&](const Communicator& comm, int rank) {
            Numbers cache = filled();
            const auto snapshot = cache.snapshot(Sequence{0}).value();
            for (int successes = 2;; ++successes) {
                std::optional<mpi::Sending> sending;
                try {
                    const FailingAllocations failing{successes};
                    sending.emplace(mpi::send(comm, rank, cache, snapshot));
                } catch (const std::bad_alloc&) {
                    continue; // the tag is free
                }
                const auto sent = sending->wait();
                if (sent) return;
                CHECK(sent.error() == MpiReason::no_memory);
            }
        },
        [&](const Communicator& comm, int rank) {
            Numbers cache{shape, {.sequences = 3, .capacity = 8, .batch = 8}};
            while (true) {
                const auto received = mpi::receive(comm, rank, cache, Sequence{0}).wait();
                if (received) break;
                REQUIRE(received.error() == MpiReason::no_memory);
                CHECK(cache.tokens(Sequence{0}) == 0);
            }
            CHECK(cache.tokens(Sequence{0}) == 6);
        });
}

TEST_CASE("transfers that end while nothing can be allocated do no harm") {
    between(
        [&](const Communicator& comm, int rank) {
            Numbers cache = filled();
            for (int i = 0; i < 3; ++i) {
                auto sending = std::make_optional(mpi::send(comm, rank, cache, Sequence{0}));
                for (int k = 0; k < i; ++k) sending->progress();
                const FailingAllocations failing{0};
                sending.reset();
            }
        },
        [&](const Communicator& comm, int rank) {
            Numbers cache{shape, {.sequences = 3, .capacity = 8, .batch = 8}};
            auto receiving = std::make_optional(mpi::receive(comm, rank, cache, Sequence{0}));
            receiving->progress();
            {
                const FailingAllocations failing{0};
                receiving.reset();
            }
            CHECK(cache.tokens(Sequence{0}) == 0);
            CHECK(audit(cache).empty());
        });
}

TEST_CASE("a receiver without any memory fails, and takes nothing") {
    between(
        [&](const Communicator& comm, int rank) {
            Numbers cache = filled();
            const auto sent = mpi::send(comm, rank, cache, Sequence{0}, {.time_limit = 300ms}).wait();
            REQUIRE_FALSE(sent);
            CHECK(sent.error() == MpiReason::timed_out); // the receiver had no memory to answer
        },
        [&](const Communicator& comm, int rank) {
            Numbers cache{shape, {.sequences = 3, .capacity = 8, .batch = 8}};
            auto receiving = mpi::receive(comm, rank, cache, Sequence{0});
            {
                const FailingAllocations failing{0};
                while (!receiving.progress()) {}
            }
            const auto received = receiving.wait();
            REQUIRE_FALSE(received);
            CHECK(received.error() == MpiReason::no_memory);
            CHECK(cache.tokens(Sequence{0}) == 0);
            CHECK(audit(cache).empty());
        });
}

TEST_CASE("a transfer that could not be completed for want of memory can be completed later") {
    between(
        [&](const Communicator& comm, int rank) {
            Numbers cache = filled();
            auto sending = mpi::send_ahead(comm, rank, cache, Sequence{0}, Position{6});
            CHECK(failures_of([&] { sending.complete(); }, [&] { CHECK(cache.statistics().snapshots == 0); }) > 1);
            REQUIRE(cache.remove(Sequence{0}, Position{0}, to_end)); // the transfer owns a snapshot
            const auto sent = sending.wait();
            REQUIRE_MESSAGE(sent, sent.error().message);
        },
        [&](const Communicator& comm, int rank) {
            Numbers cache{shape, {.sequences = 3, .capacity = 8, .batch = 8}};
            const auto received = mpi::receive(comm, rank, cache, Sequence{2}).wait();
            REQUIRE_MESSAGE(received, received.error().message);
            CHECK(numbers::values_of(numbers::held(cache, 2)) == numbers::Values{1, 2, 3, 4, 5, 6});
        });
}

} // namespace test_failures
