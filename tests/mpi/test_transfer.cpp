// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What arrives: the same rows in every layout, element type, capacity, placement and backend.
#include "backend/worker.hpp"
#include "cache/numbers.hpp"
#include "formats.hpp"
#include "hybrid/toy.hpp"
#include "transfers.hpp"
#include "violations.hpp"
#include <cellar/backend/eigen.hpp>
#include <cellar/mpi/send_ahead.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mpi.h>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Bytes of the longest message that this process has sent.
static int longest_message = 0;

// In front of MPI's own, which has a second name for this purpose.
extern "C" int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                         MPI_Request* request) {
    longest_message = std::max(longest_message, count);
    return PMPI_Isend(data, count, type, to, tag, comm, request);
}

namespace test_transfer {

namespace {

using namespace cellar;
using mpi::Communicator;
using numbers::prompt;
using numbers::values;
using numbers::Values;
using transfers::between;

const CacheShape shape{.layers = 3, .kv_heads = 2, .head_dim = 4, .value_dim = 2};
const CacheLimits limits{.sequences = 3, .capacity = 40, .batch = 16};

template <class M = numbers::Cache<>>
M filled() {
    M cache{shape, limits};
    numbers::feed(cache, prompt(1, 0, {9, 9}));
    numbers::feed(cache, prompt(0, 0, {1, 2, 3, 4, 5, 6}));
    numbers::feed(cache, prompt(1, 2, {9}));
    numbers::feed(cache, prompt(0, 6, {7, 8}));
    return cache;
}

/// Sends sequence 0 of a filled cache into a sequence of another one that has tokens already.
template <class From, class To>
void check(To to, const CacheLimits& to_limits) {
    between(
        [&](const Communicator& comm, int rank) {
            From cache = filled<From>();
            const auto before = cache.statistics().free;
            REQUIRE(mpi::send(comm, rank, cache, Sequence{0}).wait());
            CHECK(cache.statistics().free == before);
        },
        [&](const Communicator& comm, int rank) {
            const int s = to_limits.sequences - 1;
            numbers::feed(to, prompt(s, 0, {5, 5, 5}));
            const auto received = mpi::receive(comm, rank, to, Sequence{s}).wait();
            REQUIRE_MESSAGE(received, received.error().message);
            for (int layer = 0; layer < 3; ++layer)
                CHECK(numbers::held(to, s, layer) == [&] {
                    auto same = filled<>();
                    return numbers::held(same, 0, layer);
                }());
            CHECK(to.next(Sequence{s}) == Position{8});
            CHECK(to.statistics().snapshots == 0);
            CHECK(audit(to).empty());
        });
}

/// The same format under another name.
struct OtherBlocks : cellar_test::BlocksOf32 {
    static constexpr std::string_view name = "test_other_blocks";
};

} // namespace

TEST_CASE("rows arrive in every layout, element type, capacity, placement and backend") {
    const CacheLimits other{.sequences = 2, .capacity = 11, .batch = 4, .placement = Placement::scattered};
    const CacheLimits growing{.sequences = 1, .capacity = 64, .initial_cells = 4, .batch = 4};
    check<numbers::Cache<>>(numbers::Cache<>{shape, limits}, limits);
    check<Cache<PermutedV<half>>>(Cache<StandardV<bf16, float>>{shape, other}, other);
    check<Cache<StandardV<bf16>>>(Cache<Blocked<half>>{shape, growing}, growing);
    check<Cache<Blocked<float>>>(Cache<PermutedV<half>, FullCausal, DisabledShift, EigenBackend>{shape, other}, other);
    check<Cache<StandardV<half>, FullCausal, DisabledShift, EigenBackend>>(Cache<StandardV<half>>{shape, growing},
                                                                           growing);
}

TEST_CASE("a sequence that arrives is altered from the same position on as the one that was sent") {
    between(
        [&](const Communicator& comm, int rank) {
            auto cache = filled<>();
            REQUIRE(cache.remove(Sequence{0}, Position{3}, Position{5}));
            REQUIRE(mpi::send(comm, rank, cache, Sequence{0}).wait());
            REQUIRE(mpi::send(comm, rank, cache, Sequence{1}).wait());
        },
        [&](const Communicator& comm, int rank) {
            numbers::Cache<> to{shape, limits};
            REQUIRE(mpi::receive(comm, rank, to, Sequence{2}).wait());
            CHECK(to.altered_from(Sequence{2}) == Position{3});
            REQUIRE(mpi::receive(comm, rank, to, Sequence{2}).wait());
            CHECK(to.altered_from(Sequence{2}) == to_end);
        });
}

TEST_CASE("units and scales of any storage format arrive as they are, and another format is refused") {
    using cellar_test::BlocksOf32;
    using cellar_test::ScaledHeads;
    const CacheShape blocks{.layers = 2, .kv_heads = 2, .head_dim = 64};
    const auto fill = [](auto& cache) {
        std::vector<float> rows(5 * 2 * 64);
        for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i % 97) - 40;
        auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, 5}).value();
        for (const int layer : {0, 1}) pass.put(layer, rows, rows);
        pass.commit();
    };
    const auto rows_of = [](auto& cache) {
        const auto snapshot = cache.snapshot(Sequence{0}).value();
        detail::StoredSnapshot stored;
        cache.save(snapshot, "", stored);
        std::vector<std::vector<std::byte>> rows;
        for (const detail::StoredArray& array : stored.arrays) {
            rows.emplace_back(5 * array.row_bytes());
            array.rows->read(0, 5, rows.back().data());
        }
        return rows;
    };
    using Encoded = Cache<StandardV<ScaledHeads, BlocksOf32>, FullCausal, UnrotatedShift>;
    between(
        [&](const Communicator& comm, int rank) {
            Encoded cache{blocks, limits};
            fill(cache);
            CHECK(mpi::send(comm, rank, cache, Sequence{0}).wait());
            CHECK(mpi::send(comm, rank, cache, Sequence{0}).wait().error() == mpi::MpiReason::unsuitable);
        },
        [&](const Communicator& comm, int rank) {
            Cache<Blocked<ScaledHeads, 4, BlocksOf32>, FullCausal, UnrotatedShift> cache{blocks, limits};
            REQUIRE(mpi::receive(comm, rank, cache, Sequence{0}).wait());
            Encoded same{blocks, limits};
            fill(same);
            CHECK(rows_of(cache) == rows_of(same));
            Cache<StandardV<ScaledHeads, OtherBlocks>, FullCausal, UnrotatedShift> other{blocks, limits};
            const auto refused = mpi::receive(comm, rank, other, Sequence{0}).wait();
            REQUIRE_FALSE(refused);
            CHECK(
                refused.error().message
                == "receive: its layers.0.values has elements of type 'test_blocks_of_32', expected test_other_blocks");
        });
}

TEST_CASE("sending a sequence ends no schedule") {
    using Windowed = numbers::Cache<SlidingWindow<2>>;
    between(
        [&](const Communicator& comm, int rank) {
            Windowed cache{shape, limits};
            REQUIRE(cache.schedule(Sequence{0}, Position{5}));
            numbers::feed(cache, prompt(0, 0, {1, 2, 3, 4, 5}));
            REQUIRE(mpi::send(comm, rank, cache, Sequence{0}).wait());
            REQUIRE(mpi::send_ahead(comm, rank, cache, Sequence{0}, Position{5}).wait());
            numbers::feed(cache, prompt(0, 5, {6, 7, 8, 9}));
            CHECK(cache.can_resume(Sequence{0}, Position{5}));
        },
        [&](const Communicator& comm, int rank) {
            Windowed cache{shape, limits};
            for (int i = 0; i < 2; ++i) CHECK(mpi::receive(comm, rank, cache, Sequence{0}).wait());
        });
}

TEST_CASE("rows pass through memory of a backend that the host cannot reach") {
    using Device = Cache<StandardV<half>, FullCausal, DisabledShift, cellar_test::WorkerBackend>;
    const auto read = [](Device& cache, Sequence s) {
        auto snapshot = cache.snapshot(s).value();
        cache.offload(snapshot);
        Cache<StandardV<half>> host{shape, limits};
        return std::pair{snapshot.tokens(), snapshot.bytes()};
    };
    between(
        [&](const Communicator& comm, int rank) {
            Device cache{shape, limits};
            {
                const std::vector<int> positions{0, 1, 2};
                const std::vector<int> sequences{0, 0, 0};
                auto pass = cache.begin({positions, sequences}).value();
                // The rows lie where the backend's buffers do.
                auto keys = cache.backend().allocate<half>(3 * 8);
                auto rows = cache.backend().allocate<half>(3 * 4);
                cache.fence();
                for (int i = 0; i < 24; ++i) keys.data()[i] = half{static_cast<float>(i)};
                for (int i = 0; i < 12; ++i) rows.data()[i] = half{static_cast<float>(100 + i)};
                for (int layer = 0; layer < 3; ++layer)
                    pass.put(layer, contiguous_view(keys.data(), 3, 2, 4), contiguous_view(rows.data(), 3, 2, 2));
                pass.commit();
                cache.fence();
            }
            REQUIRE(mpi::send(comm, rank, cache, Sequence{0}).wait());
            CHECK(read(cache, Sequence{0}).first == 3);
            // And back again, to a cache of floats on the host.
            Cache<StandardV<float>> back{shape, limits};
            REQUIRE(mpi::receive(comm, rank, back, Sequence{2}).wait());
            auto pass = back.reserve(1);
            std::vector<float> found;
            back.visit_cells(Sequence{2}, [&](Position, Cell cell, int n) {
                for (int c = cell; c < cell + n; ++c)
                    for (int h = 0; h < 2; ++h)
                        for (int d = 0; d < 4; ++d) found.push_back(pass.keys(2)(c, h, d));
            });
            REQUIRE(found.size() == 24);
            for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i] == static_cast<float>(i));
        },
        [&](const Communicator& comm, int rank) {
            Device cache{shape, limits};
            REQUIRE(mpi::receive(comm, rank, cache, Sequence{1}).wait());
            CHECK(cache.tokens(Sequence{1}) == 3);
            REQUIRE(mpi::send(comm, rank, cache, Sequence{1}).wait());
        });
}

TEST_CASE("a snapshot arrives offloaded, whether it was in place or offloaded") {
    for (const bool is_offloaded : {false, true})
        between(
            [&](const Communicator& comm, int rank) {
                auto cache = filled();
                auto snapshot = cache.snapshot(Sequence{0}, Position{2}, Position{7}).value();
                if (is_offloaded) cache.offload(snapshot);
                REQUIRE(mpi::send(comm, rank, cache, snapshot).wait());
                CHECK(snapshot.is_offloaded() == is_offloaded);
            },
            [&](const Communicator& comm, int rank) {
                auto cache = filled();
                auto snapshot = mpi::receive(comm, rank, cache).wait().value();
                CHECK(snapshot.is_offloaded());
                CHECK(snapshot.from() == Position{2});
                CHECK(snapshot.to() == Position{7});
                REQUIRE(cache.rewind(Sequence{0}, Position{2}));
                REQUIRE(cache.restore(Sequence{0}, snapshot));
                CHECK(values(cache, 0) == Values{1, 2, 3, 4, 5, 6, 7});
            });
}

TEST_CASE("a transfer of many blocks arrives, and nothing that is written meanwhile does") {
    const CacheShape wide{.layers = 2, .kv_heads = 8, .head_dim = 64, .value_dim = 64};
    const CacheLimits large{.sequences = 2, .capacity = 4096, .batch = 512};
    const auto fed = [&](auto& cache, int s, int tokens) {
        for (int first = 0; first < tokens; first += 512) {
            numbers::Values rows;
            for (int i = first; i < first + 512; ++i) rows.push_back(static_cast<float>(i % 1000));
            numbers::feed(cache, prompt(s, first, rows));
        }
    };
    between(
        [&](const Communicator& comm, int rank) {
            Cache<StandardV<half>> cache{wide, large};
            fed(cache, 0, 4096);
            auto sending = mpi::send(comm, rank, cache, Sequence{0});
            for (int i = 0; i < 4; ++i) static_cast<void>(sending.progress());
            REQUIRE(cache.remove(Sequence{0}, Position{0}, to_end));
            fed(cache, 1, 512); // in other cells: the transfer owns those of sequence 0
            for (int i = 0; i < 4; ++i) static_cast<void>(sending.progress());
            cache.defragment();
            REQUIRE(sending.wait());
            CHECK(cache.statistics().free == cache.cells() - 512);
        },
        [&](const Communicator& comm, int rank) {
            Cache<Blocked<half>> cache{wide, large};
            fed(cache, 1, 512);
            auto receiving = mpi::receive(comm, rank, cache, Sequence{0});
            while (cache.statistics().free == cache.cells() - 512) static_cast<void>(receiving.progress());
            CHECK(cache.tokens(Sequence{0}) == 0); // until everything is there
            REQUIRE(cache.remove(Sequence{1}, Position{0}, to_end));
            cache.defragment();
            numbers::feed(cache, prompt(1, 0, {1, 2, 3}));
            REQUIRE(receiving.wait());
            CHECK(values(cache, 1) == Values{1, 2, 3});
            numbers::Values expected;
            for (int i = 0; i < 4096; ++i) expected.push_back(static_cast<float>(i % 1000));
            std::sort(expected.begin(), expected.end());
            for (int layer = 0; layer < 2; ++layer)
                CHECK(numbers::values_of(numbers::held(cache, 0, layer)) == expected);
        });
}

namespace {

Values distinct(std::size_t elements) {
    Values rows(elements);
    for (std::size_t i = 0; i < elements; ++i) rows[i] = static_cast<float>(i % 99991);
    return rows;
}

/// Sends tokens of one layer, all of whose elements differ, in blocks of so many bytes. `longest`: of the messages.
void in_blocks(const CacheShape& one_layer, std::int32_t tokens, std::int64_t block, int longest) {
    using Floats = Cache<StandardV<float>>;
    const CacheLimits enough{.sequences = 1, .capacity = tokens, .batch = tokens};
    const LayerShape layer = one_layer[0];
    const auto rows = [&](int row) { return distinct(static_cast<std::size_t>(tokens * row)); };
    const Values keys = rows(layer.kv_heads * layer.key_dim);
    const Values all_values = rows(layer.kv_heads * layer.value_dim);
    between(
        [&](const Communicator& comm, int rank) {
            Floats cache{one_layer, enough};
            auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, tokens}).value();
            pass.put(0, keys, all_values);
            pass.commit();
            longest_message = 0;
            const auto sent = mpi::send(comm, rank, cache, Sequence{0}, {.block = block}).wait();
            REQUIRE_MESSAGE(sent, sent.error().message);
            CHECK(longest_message == longest);
        },
        [&](const Communicator& comm, int rank) {
            Floats cache{one_layer, enough};
            const auto received = mpi::receive(comm, rank, cache, Sequence{0}).wait();
            REQUIRE_MESSAGE(received, received.error().message);
            const auto pass = cache.reserve(1);
            const auto same = [&](const auto& view, const Values& expected, int dim) {
                bool all = true;
                cache.visit_cells(Sequence{0}, [&](Position p, Cell cell, std::int32_t count) {
                    auto next = expected.begin() + std::ptrdiff_t{p.value} * layer.kv_heads * dim;
                    for (Cell c = cell; c < cell + count; ++c)
                        for (int head = 0; head < layer.kv_heads; ++head)
                            for (int d = 0; d < dim; ++d) all = all && view(c, head, d) == *next++;
                });
                return all;
            };
            CHECK(cache.tokens(Sequence{0}) == tokens);
            CHECK(same(pass.keys(0), keys, layer.key_dim));
            CHECK(same(pass.values(0), all_values, layer.value_dim));
        });
}

} // namespace

TEST_CASE("rows arrive in blocks of any size, and where a row is longer than a block") {
    constexpr int head = 64;
    constexpr int mebibyte = 1 << 20;
    const CacheShape narrow{.layers = 1, .kv_heads = 8, .head_dim = 64, .value_dim = 32}; // keys of 2 KiB
    in_blocks(narrow, 2000, mebibyte, mebibyte + head);
    in_blocks(narrow, 2000, mebibyte + 1023, mebibyte + head); // whole rows only
    in_blocks(narrow, 2000, 3 * mebibyte, 3 * mebibyte + head);
    in_blocks(narrow, 2000, 8 * mebibyte, 2000 * 2048 + head); // more than there is
    in_blocks({.layers = 1, .kv_heads = 2, .head_dim = 3 << 16, .value_dim = 1 << 16}, 3, mebibyte,
              3 * mebibyte / 2 + head);
}

TEST_CASE("a sequence without tokens takes the place of one that has some") {
    between(
        [&](const Communicator& comm, int rank) {
            auto cache = filled();
            REQUIRE(mpi::send(comm, rank, cache, Sequence{2}).wait());
        },
        [&](const Communicator& comm, int rank) {
            auto cache = filled();
            REQUIRE(mpi::receive(comm, rank, cache, Sequence{0}).wait());
            CHECK(cache.tokens(Sequence{0}) == 0);
            CHECK(values(cache, 1) == Values{9, 9, 9});
        });
}

TEST_CASE("windows move with their sequence") {
    using Sliding = numbers::Cache<SlidingWindow<4>>;
    const auto fed = [](auto& cache, int first, int count) {
        for (int p = first; p < first + count; ++p) numbers::feed(cache, prompt(0, p, {static_cast<float>(p)}));
    };
    between(
        [&](const Communicator& comm, int rank) {
            Sliding cache{shape, {.sequences = 2, .capacity = 64, .batch = 4}};
            fed(cache, 0, 30);
            REQUIRE(mpi::send(comm, rank, cache, Sequence{0}).wait());
        },
        [&](const Communicator& comm, int rank) {
            Sliding cache{shape, {.sequences = 1, .capacity = 64, .batch = 8}};
            REQUIRE(mpi::receive(comm, rank, cache, Sequence{0}).wait());
            CHECK(cache.next(Sequence{0}) == Position{30});
            auto pass = numbers::begin(cache, prompt(0, 30, {30}));
            REQUIRE(pass);
            numbers::put(*pass, cache.shape(), prompt(0, 30, {30}));
            CHECK(numbers::sees(cache, *pass, 0) == Values{27, 28, 29, 30});
        });
}

TEST_CASE("all members of a hybrid move, its recurrent states included") {
    const auto make = [](int capacity) {
        return toy::Memory{
            toy::layers,
            toy::Sliding{{.layers = 4, .kv_heads = 1, .head_dim = 1}, {.sequences = 2, .capacity = 100, .batch = 8}},
            toy::Full{{.layers = 2, .kv_heads = 1, .head_dim = 1}, {.sequences = 2, .capacity = capacity, .batch = 8}},
            toy::Recurrent{{1, {{1}}}, {.sequences = 2, .batch = 8, .snapshots = 1}}};
    };
    const auto fed = [](toy::Memory memory) {
        REQUIRE(toy::feed(memory, toy::text(0, 0, 8)));
        REQUIRE(toy::feed(memory, toy::text(0, 8, 3, 9)));
        return memory;
    };
    between(
        [&](const Communicator& comm, int rank) {
            auto memory = fed(make(20));
            const auto sent = mpi::send(comm, rank, memory, Sequence{0}).wait();
            REQUIRE_MESSAGE(sent, sent.error().message);
        },
        [&](const Communicator& comm, int rank) {
            auto memory = make(30);
            auto same = fed(make(20));
            REQUIRE(toy::feed(memory, toy::text(1, 0, 2, 40)));
            const auto received = mpi::receive(comm, rank, memory, Sequence{1}).wait();
            REQUIRE_MESSAGE(received, received.error().message);
            CHECK(memory.next(Sequence{1}) == Position{11});
            CHECK(numbers::values(memory.member<toy::Full>(), 1) == numbers::values(same.member<toy::Full>(), 0));
            auto pass = memory.begin(toy::batch_of(toy::text(1, 11, 1, 12))).value();
            auto expected = same.begin(toy::batch_of(toy::text(0, 11, 1, 12))).value();
            const auto hash = [](auto& p) {
                float found = 0;
                p.visit(4, [&](auto& own, int layer) {
                    if constexpr (requires { own.micro_batches(); })
                        found = own.template get<toy::Hash>(layer, own.micro_batches()[0])(0, 0);
                });
                return found;
            };
            CHECK(hash(pass) == hash(expected));
            CHECK(hash(pass) != 0);
        });
}

TEST_CASE("the inputs of an encoder move") {
    const CacheLimits few{.sequences = 2, .capacity = 8, .batch = 8};
    const auto write = [](auto& memory, Sequence s, Position p, const Values& rows) {
        auto pass = memory.write(s, p, static_cast<int>(rows.size())).value();
        numbers::Numbers tokens;
        for (const float x : rows) tokens.push_back({s.value, p.value, x});
        numbers::put(pass, memory.shape(), tokens);
        pass.commit();
    };
    between(
        [&](const Communicator& comm, int rank) {
            EncoderMemory<StandardV<float>> memory{shape, few};
            write(memory, Sequence{0}, Position{3}, {1, 2, 3});
            write(memory, Sequence{1}, Position{0}, {8});
            write(memory, Sequence{0}, Position{5}, {4, 5});
            auto snapshot = memory.snapshot(Sequence{0}, Position{0}, Position{9}).value();
            REQUIRE(mpi::send(comm, rank, memory, snapshot).wait());
        },
        [&](const Communicator& comm, int rank) {
            EncoderMemory<PermutedV<half>> memory{shape, few};
            REQUIRE(mpi::receive(comm, rank, memory, Sequence{1}).wait());
            CHECK(values(memory, 1) == Values{1, 2, 3, 4, 5});
        });
}

TEST_CASE("transfers with other tags, and in both directions, go on at a time") {
    const Communicator comm{MPI_COMM_WORLD};
    if (comm.rank() < 2) {
        const int other = 1 - comm.rank();
        auto cache = filled();
        numbers::Cache<> first{shape, limits};
        numbers::Cache<> second{shape, limits};
        auto out = mpi::send(comm, other, cache, Sequence{0});
        auto too = mpi::send(comm, other, cache, Sequence{1}, {.tag = 9999});
        auto in = mpi::receive(comm, other, first, Sequence{0});
        auto and_in = mpi::receive(comm, other, second, Sequence{1}, {.tag = 9999});
        CHECK(violation_of([&] { static_cast<void>(mpi::send(comm, other, cache, Sequence{1}, {.tag = 9999})); })
              == "send: another transfer to rank " + std::to_string(other)
                     + " has tag 9999, expected one at a time with each tag");
        while (!(int{out.progress()} & int{too.progress()} & int{in.progress()} & int{and_in.progress()})) {}
        CHECK(out.wait());
        CHECK(too.wait());
        CHECK(in.wait());
        CHECK(and_in.wait());
        CHECK(values(first, 0) == Values{1, 2, 3, 4, 5, 6, 7, 8});
        CHECK(values(second, 1) == Values{9, 9, 9});
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

TEST_CASE("a transfer whose place another one takes is cancelled by its sender, and its tag is free") {
    between(
        [&](const Communicator& comm, int rank) {
            auto cache = filled();
            auto sending = mpi::send(comm, rank, cache, Sequence{0});
            auto other = mpi::send(comm, rank, cache, Sequence{1}, {.tag = 1});
            CHECK(cache.statistics().snapshots == 2);
            sending = std::move(other);
            CHECK(cache.statistics().snapshots == 1);
            CHECK(violation_of([&] { static_cast<void>(other.progress()); })
                  == "the transfer was moved from, expected one that was not");
            CHECK(sending.wait());
            CHECK(mpi::send(comm, rank, cache, Sequence{1}).wait());
        },
        [&](const Communicator& comm, int rank) {
            auto cache = filled();
            const auto cancelled = mpi::receive(comm, rank, cache, Sequence{2}).wait();
            REQUIRE_FALSE(cancelled);
            CHECK(cancelled.error() == mpi::MpiReason::cancelled);
            CHECK(mpi::receive(comm, rank, cache, Sequence{2}, {.tag = 1}).wait());
            CHECK(values(cache, 2) == Values{9, 9, 9});
            CHECK(mpi::receive(comm, rank, cache, Sequence{0}).wait());
            CHECK(values(cache, 0) == Values{9, 9, 9});
        });
}

TEST_CASE("a transfer whose place another one takes is cancelled by its receiver, and its cells are free") {
    between(
        [&](const Communicator& comm, int rank) {
            auto cache = filled();
            auto sending = mpi::send(comm, rank, cache, Sequence{0});
            auto other = mpi::send(comm, rank, cache, Sequence{1}, {.tag = 1});
            const auto cancelled = sending.wait();
            REQUIRE_FALSE(cancelled);
            CHECK(cancelled.error() == mpi::MpiReason::cancelled);
            CHECK(cancelled.error().rank == rank);
            CHECK(other.wait());
        },
        [&](const Communicator& comm, int rank) {
            auto cache = filled();
            const std::int32_t free = cache.statistics().free;
            auto receiving = mpi::receive(comm, rank, cache, Sequence{2});
            auto other = mpi::receive(comm, rank, cache, Sequence{2}, {.tag = 1});
            while (cache.statistics().free == free) static_cast<void>(receiving.progress());
            receiving = std::move(other);
            CHECK(cache.statistics().free == free);
            CHECK(violation_of([&] { static_cast<void>(other.progress()); })
                  == "the transfer was moved from, expected one that was not");
            CHECK(receiving.wait());
            CHECK(values(cache, 2) == Values{9, 9, 9});
        });
}

} // namespace test_transfer
