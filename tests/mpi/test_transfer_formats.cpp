// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Transfers between memories of different storage formats: converted when asked to, and exact in bits beside heads that
// are decoded and encoded one by one.
#include "backend/worker.hpp"
#include "format/converted.hpp"
#include "transfers.hpp"
#include <cellar/cache/audit.hpp>
#include <cellar/cellar.hpp>
#include <cellar/format/blocks.hpp>
#include <cellar/format/fp4.hpp>
#include <cellar/format/fp8.hpp>
#include <cellar/format/int8.hpp>
#include <cellar/format/rotated.hpp>
#include <cellar/mpi/send_ahead.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace test_transfer_formats {

namespace {

using namespace cellar;
using cellar_test::Contents;
using cellar_test::converted;
using cellar_test::fill;
using mpi::Communicator;
using mpi::ReceiveOptions;
using mpi::SendOptions;
using transfers::between;

using RotatedValues = Rotated<Hadamard<64>, q4_0>;
using RotatedInt8 = Rotated<Hadamard<32>, int8_per_head>;

const CacheShape& shape = cellar_test::converted_shape;
constexpr auto known = formats<half, q8_0, q4_0, int8_per_head, RotatedValues, fp8_e4m3, RotatedInt8, nvfp4>;

Contents random_contents(int tokens) {
    std::mt19937 random{static_cast<unsigned>(tokens)};
    return cellar_test::random_contents(tokens, random);
}

template <class Memory>
Memory make(int tokens) {
    return Memory{shape, {.sequences = 2, .cells = std::max(tokens, 1), .batch = std::max(tokens, 1)}};
}

using Rows = std::vector<std::vector<std::byte>>;

/// What is stored of a snapshot, plane by plane.
template <class Memory>
Rows rows_of(Memory& cache, const SnapshotOf<Memory>& snapshot) {
    detail::StoredSnapshot stored;
    cache.save(snapshot, "", stored);
    Rows rows;
    for (const detail::StoredArray& array : stored.arrays) {
        rows.emplace_back(array.shape[0] * array.row_bytes());
        array.rows->read(0, array.shape[0], rows.back().data());
    }
    return rows;
}

/// Caches of one layout, whatever it is.
struct Side : cellar_test::Formats {
    std::function<Rows(const Contents&)> stored = {};
    /// Sends contents to a rank.
    std::function<mpi::MpiResult<void>(const Communicator&, int, const Contents&, bool ahead, SendOptions)> send = {};
    /// What a cache has that receives, into a sequence or as a snapshot.
    std::function<Rows(const Communicator&, int, int tokens, bool as_sequence, ReceiveOptions)> receive = {};
    /// The message if it refuses, after a check that nothing has changed.
    std::function<std::string(const Communicator&, int, ReceiveOptions)> refusal = {};
};

template <class Layout>
mpi::MpiResult<void> send_ahead_of(const Communicator& comm, int rank, const Contents& contents,
                                   const SendOptions& options) {
    auto cache = make<Cache<Layout>>(contents.tokens());
    auto sending = mpi::send_ahead(comm, rank, cache, Sequence{0}, Position{contents.tokens()}, options);
    fill(cache, contents, [&](auto& pass, int layer) { sending.layer(pass, layer); });
    return sending.wait();
}

template <class Layout>
Side side() {
    using Memory = Cache<Layout>;
    Side made{cellar_test::formats_of<Layout>()};
    made.stored = [](const Contents& contents) {
        auto cache = make<Memory>(contents.tokens());
        fill(cache, contents);
        return rows_of(cache, cache.snapshot(Sequence{0}).value());
    };
    made.send = [](const Communicator& comm, int rank, const Contents& contents, bool ahead, SendOptions options) {
        if (ahead) return send_ahead_of<Layout>(comm, rank, contents, options);
        auto cache = make<Memory>(contents.tokens());
        fill(cache, contents);
        return mpi::send(comm, rank, cache, Sequence{0}, options).wait();
    };
    made.receive = [](const Communicator& comm, int rank, int tokens, bool as_sequence, ReceiveOptions options) {
        auto cache = make<Memory>(tokens);
        if (as_sequence) {
            const auto received = mpi::receive(comm, rank, cache, Sequence{1}, options).wait();
            REQUIRE_MESSAGE(received, received.error().message);
            CHECK(audit(cache) == "");
            return rows_of(cache, cache.snapshot(Sequence{1}).value());
        }
        auto received = mpi::receive(comm, rank, cache, options).wait();
        REQUIRE_MESSAGE(received, received.error().message);
        const auto snapshot = *std::move(received);
        return rows_of(cache, snapshot);
    };
    made.refusal = [](const Communicator& comm, int rank, ReceiveOptions options) {
        auto cache = make<Memory>(8);
        fill(cache, random_contents(3));
        const Rows before = rows_of(cache, cache.snapshot(Sequence{0}).value());
        const auto received = mpi::receive(comm, rank, cache, Sequence{0}, options).wait();
        REQUIRE_FALSE(received);
        CHECK(received.error() == mpi::MpiReason::unsuitable);
        const bool is_equal = rows_of(cache, cache.snapshot(Sequence{0}).value()) == before;
        CHECK(is_equal);
        CHECK(cache.statistics().free == cache.cells() - 3);
        CHECK(audit(cache) == "");
        return received.error().message;
    };
    return made;
}

const std::vector<Side>& sides() {
    static const std::vector<Side> made{
        side<StandardV<half>>(),
        side<StandardV<q8_0, q4_0>>(),
        side<Blocked<int8_per_head, 16, RotatedValues>>(),
        side<StandardV<fp8_e4m3, RotatedInt8>>(),
        side<Blocked<nvfp4, 64, half>>(),
    };
    return made;
}

/// Calls check(from, to, contents, n) for all pairs of formats, the n-th of which have different numbers of tokens.
template <class Check>
void for_each_pair(Check check) {
    int n = 0;
    for (const Side& from : sides())
        for (const Side& to : sides()) {
            CAPTURE(from.key);
            CAPTURE(from.value);
            CAPTURE(to.key);
            CAPTURE(to.value);
            check(from, to, random_contents(std::array{5, 40, 1, 0}[static_cast<std::size_t>(n % 4)]), n);
            ++n;
        }
}

} // namespace

TEST_CASE("a transfer in any format arrives in any other as its heads are, decoded and encoded one by one") {
    for_each_pair([](const Side& from, const Side& to, const Contents& contents, int n) {
        between(
            [&](const Communicator& comm, int rank) {
                const auto sent = from.send(comm, rank, contents, n % 3 == 2, {});
                REQUIRE_MESSAGE(sent, sent.error().message);
            },
            [&](const Communicator& comm, int rank) {
                const bool is_equal = to.receive(comm, rank, contents.tokens(), n % 2 == 0, {.convert_from = known})
                                      == to.stored(converted(contents, from, to));
                CHECK(is_equal);
            });
    });
}

TEST_CASE("what is sent in a format is what a memory has that stores it") {
    for_each_pair([](const Side& from, const Side& to, const Contents& contents, int n) {
        between(
            [&](const Communicator& comm, int rank) {
                const auto sent = from.send(comm, rank, contents, n % 3 == 2, {.send_as = to.as});
                REQUIRE_MESSAGE(sent, sent.error().message);
            },
            [&](const Communicator& comm, int rank) {
                const bool is_equal = to.receive(comm, rank, contents.tokens(), n % 2 == 0, {})
                                      == to.stored(converted(contents, from, to));
                CHECK(is_equal);
            });
    });
}

TEST_CASE("transfers of several blocks are converted, where scales come after all units, too") {
    const Contents contents = random_contents(5000); // a block of 1 MiB has 4096 rows of keys of bytes
    for (const int from : {0, 2})
        between(
            [&](const Communicator& comm, int rank) {
                const auto sent = sides()[static_cast<std::size_t>(from)].send(comm, rank, contents, false, {});
                REQUIRE_MESSAGE(sent, sent.error().message);
            },
            [&](const Communicator& comm, int rank) {
                const Side& source = sides()[static_cast<std::size_t>(from)];
                const Side& to = sides()[3];
                const bool is_equal = to.receive(comm, rank, 5000, true, {.convert_from = known})
                                      == to.stored(converted(contents, source, to));
                CHECK(is_equal);
            });
}

TEST_CASE("a transfer in another format is refused without the option on both ranks, and nothing has changed") {
    const Contents contents = random_contents(4);
    const auto refusal = [&](int from, int to, ReceiveOptions options) {
        std::string message;
        between(
            [&](const Communicator& comm, int rank) {
                const auto sent = sides()[static_cast<std::size_t>(from)].send(comm, rank, contents, false, {});
                REQUIRE_FALSE(sent);
                CHECK(sent.error() == mpi::MpiReason::unsuitable);
                message = sent.error().message;
            },
            [&](const Communicator& comm, int rank) {
                message = sides()[static_cast<std::size_t>(to)].refusal(comm, rank, options);
            });
        return message;
    };
    const auto says = [](const std::string& message, const std::string& what) {
        int rank = 0;
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        return rank > 1 || message.find("receive: its " + what) != std::string::npos;
    };
    CHECK(says(refusal(0, 1, {}), "layers.0.keys has elements of type F16, expected q8_0"));
    CHECK(says(refusal(1, 0, {}), "layers.0.keys has elements of type 'q8_0', expected F32, F16 or BF16"));
    CHECK(says(refusal(1, 0, {.convert_from = formats<q8_0, nvfp4>}),
               "layers.0.values has elements of type 'q4_0', expected F32, F16 or BF16"));
    CHECK(says(refusal(2, 1, {.convert_from = formats<int8_per_head, q4_0>}),
               "layers.0.values has elements of type 'hadamard64.q4_0', expected q4_0"));
}

TEST_CASE("a format that the heads do not suit is refused on both ranks, with their numbers") {
    const CacheShape narrow{.layers = 1, .kv_heads = 1, .head_dim = 64, .value_dim = 40};
    const CacheLimits limits{.sequences = 1, .capacity = 8, .batch = 8};
    const std::string why = "its layers.0.values have heads of 40 values, which the format q8_0 does not take";
    between(
        [&](const Communicator& comm, int rank) {
            Cache<StandardV<half>> cache{narrow, limits};
            auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, 2}).value();
            pass.put(0, std::vector<float>(128, 1.0F), std::vector<float>(80, 2.0F));
            pass.commit();
            const auto sent = mpi::send(comm, rank, cache, Sequence{0}, {.send_as = stored_as<q8_0>}).wait();
            REQUIRE_FALSE(sent);
            CHECK(sent.error() == mpi::MpiReason::unsuitable);
            CHECK(sent.error().message == "send: " + why);
            CHECK(mpi::send(comm, rank, cache, Sequence{0}, {.send_as = stored_as<q8_0, fp8_e5m2>}).wait());
        },
        [&](const Communicator& comm, int rank) {
            Cache<StandardV<half>> cache{narrow, limits};
            const auto refused = mpi::receive(comm, rank, cache, Sequence{0}).wait();
            REQUIRE_FALSE(refused);
            CHECK(refused.error() == mpi::MpiReason::unsuitable);
            CHECK(refused.error().message.find(why) != std::string::npos);
            CHECK(mpi::receive(comm, rank, cache, Sequence{0}, {.convert_from = formats<q8_0, fp8_e5m2>}).wait());
            CHECK(cache.tokens(Sequence{0}) == 2);
        });
}

TEST_CASE("heads are converted on their way to memory that the host cannot reach") {
    using Device = Cache<StandardV<half>, FullCausal, DisabledShift, cellar_test::WorkerBackend>;
    const Contents contents = random_contents(5);
    between(
        [&](const Communicator& comm, int rank) {
            for (const int from : {1, 2})
                CHECK(sides()[static_cast<std::size_t>(from)].send(comm, rank, contents, false, {}));
        },
        [&](const Communicator& comm, int rank) {
            for (const int from : {1, 2}) {
                auto cache = make<Device>(5);
                const auto received = mpi::receive(comm, rank, cache, Sequence{0}, {.convert_from = known}).wait();
                REQUIRE_MESSAGE(received, received.error().message);
                const Side& source = sides()[static_cast<std::size_t>(from)];
                const bool is_equal = rows_of(cache, cache.snapshot(Sequence{0}).value())
                                      == sides()[0].stored(converted(contents, source, sides()[0]));
                CHECK(is_equal);
            }
        });
}

TEST_CASE("the members of a hybrid are converted, each from its own format") {
    using Half = Cache<StandardV<half>>;
    using Few = Cache<StandardV<q8_0, int8_per_head>>;
    const CacheShape small{.layers = 1, .kv_heads = 1, .head_dim = 64};
    const CacheLimits limits{.sequences = 2, .cells = 24, .batch = 8};
    const auto hybrid = [&]<class Second>(Second second) {
        return Hybrid<RunTimePattern, Half, Second>{std::vector<int>{0, 1}, Half{small, limits}, std::move(second)};
    };
    between(
        [&](const Communicator& comm, int rank) {
            auto exact = hybrid(Cache<StandardV<bf16>>{small, limits});
            auto pass = exact.begin(Sequence{0}, 5).value();
            const std::vector<float> rows(5 * 64, 1.0F);
            for (const int layer : {0, 1})
                pass.visit(layer, [&](auto& own, int i) {
                    if constexpr (requires { own.put(i, rows, rows); }) own.put(i, rows, rows);
                });
            pass.commit();
            CHECK(mpi::send(comm, rank, exact, Sequence{0}).wait().error() == mpi::MpiReason::unsuitable);
            const auto sent = mpi::send(comm, rank, exact, Sequence{0}).wait();
            REQUIRE_MESSAGE(sent, sent.error().message);
        },
        [&](const Communicator& comm, int rank) {
            auto mixed = hybrid(Few{small, limits});
            const auto refused = mpi::receive(comm, rank, mixed, Sequence{1}).wait();
            REQUIRE_FALSE(refused);
            CHECK(refused.error().message
                  == "receive: member 1: its members.1.layers.0.keys has elements of type BF16, expected q8_0");
            CHECK(mixed.next(Sequence{1}) == Position{0});
            const auto received = mpi::receive(comm, rank, mixed, Sequence{1}, {.convert_from = formats<bf16>}).wait();
            REQUIRE_MESSAGE(received, received.error().message);
            CHECK(mixed.next(Sequence{1}) == Position{5});
        });
}

} // namespace test_transfer_formats
