// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Transfers from and to memory of a device, with MPI libraries that take its addresses and others. A source file
// defines CELLAR_DEVICES, the backends of such memories, before it includes this, and `start_devices`. In truth they
// have memory of the host, so that every library takes its addresses.
#include "transfers.hpp"
#include <cellar/cache/audit.hpp>
#include <cellar/cellar.hpp>
#include <cellar/crc/crc32.hpp>
#include <cellar/element/convert_stored.hpp>
#include <cellar/mpi/detail/message.hpp>
#include <cellar/mpi/detail/transfers.hpp>
#include <cellar/mpi/detail/wire.hpp>
#include <cellar/mpi/send_ahead.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <mpi.h>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace cellar;
using namespace std::chrono_literals;
using detail::MessageHead;
using detail::MessageKind;
using mpi::Communicator;
using mpi::MpiReason;
using transfers::between;

/// Before the first backend is made.
void start_devices();
struct Started {
    Started() { start_devices(); }
};

/// A backend that counts the copies between its memory and the host's.
template <class Base>
class Counting : Started, public Base {
public:
    using Base::Base;

    template <class E>
    using Buffer = typename Base::template Buffer<E>;

    template <Element E>
    void copy_to_host(const Buffer<E>& buffer, std::int64_t first, std::span<E> to) {
        ++copies;
        Base::copy_to_host(buffer, first, to);
    }
    template <Element E>
    void copy_from_host(std::span<const E> from, Buffer<E>& buffer, std::int64_t first) {
        ++copies;
        Base::copy_from_host(from, buffer, first);
    }

    static inline int copies = 0;
};

template <class Device, class Layout>
using CacheOf = Cache<Layout, FullCausal, DisabledShift, Counting<Device>>;

/// Many small arrays, each of which is a block.
const CacheShape many{.layers = 9, .kv_heads = 2, .head_dim = 8, .value_dim = 6};
/// Few large ones, the last block of which is shorter.
const CacheShape large{.layers = 2, .kv_heads = 4, .head_dim = 64, .value_dim = 40};

CacheLimits limits_for(int tokens) {
    return {.sequences = 2, .cells = 3 * tokens, .batch = tokens};
}

/// Element i of the key or value of a token: exact in every type of elements.
float number(int salt, int position, int layer, bool is_value, int i) {
    return static_cast<float>((salt * 31 + position * 7 + layer * 13 + (is_value ? 5 : 0) + i * 3) % 251);
}

std::vector<float> rows_of(const CacheShape& shape, int layer, bool is_value, int first, int tokens, int salt) {
    const int row = shape[layer].kv_heads * (is_value ? shape[layer].value_dim : shape[layer].key_dim);
    std::vector<float> rows;
    for (int p = first; p < first + tokens; ++p)
        for (int i = 0; i < row; ++i) rows.push_back(number(salt, p, layer, is_value, i));
    return rows;
}

/// Puts a layer of an open pass.
template <class Memory, class Pass>
void put(Memory& cache, Pass& pass, int layer, int first, int tokens, int salt) {
    const auto rows = [&](bool is_value) {
        const std::vector<float> all = rows_of(cache.shape(), layer, is_value, first, tokens, salt);
        auto buffer = cache.backend().template allocate<float>(std::ssize(all));
        cache.fence();
        std::copy(all.begin(), all.end(), buffer.data());
        return buffer;
    };
    const auto view = [&](const auto& buffer, int dim) {
        return contiguous_view(buffer.data(), tokens, cache.shape()[layer].kv_heads, dim);
    };
    const auto keys = rows(false);
    const auto values = rows(true);
    pass.put(layer, view(keys, cache.shape()[layer].key_dim), view(values, cache.shape()[layer].value_dim));
    cache.fence();
}

template <class Memory>
void feed(Memory& cache, int s, int tokens, int salt) {
    const int first = cache.next(Sequence{s}).value;
    auto pass = cache.begin(BatchBuilder{Sequence{s}, Position{first}, tokens}).value();
    for (int layer = 0; layer < cache.layers(); ++layer) put(cache, pass, layer, first, tokens, salt);
    pass.commit();
}

/// Two sequences whose tokens alternate, so that those of sequence 0 are in several runs of cells.
template <class Memory>
Memory filled(const CacheShape& shape, int tokens, int salt) {
    Memory cache{shape, limits_for(tokens)};
    feed(cache, 0, tokens / 3, salt);
    feed(cache, 1, 5, 1000);
    feed(cache, 0, tokens - tokens / 3, salt);
    return cache;
}

/// True if the sequence has these tokens. It reads them by way of the host.
template <class Memory>
bool has(Memory& cache, int s, int tokens, int salt) {
    if (cache.next(Sequence{s}).value != tokens) return false;
    const auto snapshot = cache.snapshot(Sequence{s}).value();
    detail::StoredSnapshot stored;
    cache.save(snapshot, "", stored);
    for (int layer = 0; layer < cache.layers(); ++layer)
        for (const bool is_value : {false, true}) {
            const auto& array = stored.arrays[static_cast<std::size_t>(1 + 2 * layer + (is_value ? 1 : 0))];
            const auto expected = rows_of(cache.shape(), layer, is_value, 0, tokens, salt);
            std::vector<float> found(expected.size());
            std::vector<std::byte> bytes(static_cast<std::size_t>(tokens) * array.row_bytes());
            array.rows->read(0, static_cast<std::uint64_t>(tokens), bytes.data());
            detail::conversion_of(array.format, detail::StoredFormat::f32())(bytes.data(), found.data(), found.size());
            if (found != expected) return false;
        }
    return audit(cache).empty();
}

/// Sends sequence 0, and receives it.
template <class From, class To>
void migrate(const CacheShape& shape, int tokens, bool out, bool in) {
    between(
        [&](const Communicator& comm, int rank) {
            auto cache = filled<From>(shape, tokens, 1);
            const auto sent = mpi::send(comm, rank, cache, Sequence{0}, {.device_aware = out}).wait();
            REQUIRE_MESSAGE(sent, sent.error().message);
            CHECK(has(cache, 0, tokens, 1));
        },
        [&](const Communicator& comm, int rank) {
            To cache{shape, limits_for(tokens)};
            feed(cache, 1, 3, 3);
            feed(cache, 0, 4, 3);
            const auto received = mpi::receive(comm, rank, cache, Sequence{0}, {.device_aware = in}).wait();
            REQUIRE_MESSAGE(received, received.error().message);
            CHECK(has(cache, 0, tokens, 1));
            CHECK(has(cache, 1, 3, 3));
        });
}

template <class F>
void for_both(F f) {
    for (const bool out : {false, true})
        for (const bool in : {false, true}) f(out, in);
}

/// One end of a transfer by hand. Rows that are apart follow their head.
class Hand {
public:
    Hand(const Communicator& comm, int rank) : comm_{comm}, rank_{rank} {}

    void post(MessageHead head, const std::vector<std::byte>& body = {}, bool is_sender = true) {
        detail::Message message{static_cast<std::int64_t>(body.size())};
        std::copy(body.begin(), body.end(), message.body());
        head.number = head.number == 0 ? 1 : head.number;
        if (head.kind != MessageKind::block_apart) head.bytes = body.size();
        message.finish(head, head.kind == MessageKind::block_apart ? head.body_crc : detail::crc32_of(body));
        MPI_Send(message.data(), static_cast<int>(message.size()), MPI_BYTE, rank_,
                 is_sender ? detail::sender_tag(0) : detail::receiver_tag(0), comm_.handle());
    }
    void post_rows(const std::vector<std::byte>& rows) {
        MPI_Send(rows.data(), static_cast<int>(rows.size()), MPI_BYTE, rank_, detail::sender_tag(0), comm_.handle());
    }

    std::vector<std::byte> receive(bool is_sender = true) {
        const int tag = is_sender ? detail::receiver_tag(0) : detail::sender_tag(0);
        MPI_Status status;
        int is_there = 0;
        for (const double begun = MPI_Wtime(); is_there == 0 && MPI_Wtime() - begun < 20;)
            MPI_Iprobe(rank_, tag, comm_.handle(), &is_there, &status);
        REQUIRE(is_there != 0);
        int size = 0;
        MPI_Get_count(&status, MPI_BYTE, &size);
        std::vector<std::byte> bytes(static_cast<std::size_t>(size));
        MPI_Recv(bytes.data(), size, MPI_BYTE, rank_, tag, comm_.handle(), &status);
        return bytes;
    }
    MessageHead answer(bool is_sender = true) {
        const std::vector<std::byte> bytes = receive(is_sender);
        MessageHead head;
        REQUIRE(bytes.size() >= sizeof(head));
        std::memcpy(&head, bytes.data(), sizeof(head));
        return head;
    }

private:
    const Communicator& comm_;
    int rank_;
};

void meet(int rank) {
    MPI_Sendrecv(nullptr, 0, MPI_BYTE, rank, 0, nullptr, 0, MPI_BYTE, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

const CacheShape tiny{.layers = 1, .kv_heads = 1, .head_dim = 2, .value_dim = 1};

std::vector<std::byte> announcement() {
    auto cache = filled<Cache<>>(tiny, 6, 0);
    const auto snapshot = cache.snapshot(Sequence{0}).value();
    detail::StoredSnapshot stored;
    cache.save(snapshot, "", stored);
    detail::WireWriter out;
    detail::Announcement::write(out, "", stored);
    return {out.all().begin(), out.all().end()};
}

/// All keys, [6, 1, 2] floats.
std::vector<std::byte> keys() {
    std::vector<std::byte> rows(48);
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::byte>(i);
    return rows;
}
MessageHead head_of_keys() {
    return {.kind = MessageKind::block_apart, .array = 1, .rows = 6, .bytes = 48, .body_crc = detail::crc32_of(keys())};
}

/// What a receiver says to rows that are apart, by hand.
template <class Memory>
void by_hand(bool is_aware, const MessageHead& head, const std::vector<std::byte>& rows, MpiReason expected,
             const std::string& words) {
    between(
        [&](const Communicator& comm, int rank) {
            Hand hand{comm, rank};
            hand.post({.kind = MessageKind::announcement}, announcement());
            REQUIRE(hand.answer().kind == MessageKind::acceptance);
            hand.post(head);
            hand.post_rows(rows);
            CHECK(hand.answer().kind == MessageKind::failure);
            hand.post({.kind = MessageKind::end});
        },
        [&](const Communicator& comm, int rank) {
            Memory cache{tiny, limits_for(10)};
            feed(cache, 1, 3, 7);
            const auto received = mpi::receive(comm, rank, cache, Sequence{1}, {.device_aware = is_aware}).wait();
            REQUIRE_FALSE(received);
            CHECK(received.error() == expected);
            CHECK_MESSAGE(received.error().message.find(words) != std::string::npos, received.error().message);
            CHECK(has(cache, 1, 3, 7));
            CHECK(cache.statistics().free == cache.cells() - 3);
        });
}

} // namespace

TEST_CASE_TEMPLATE("rows go from device to device whichever process hands its memory to MPI", Device, CELLAR_DEVICES) {
    for_both([](bool out, bool in) {
        CAPTURE(out);
        CAPTURE(in);
        using Same = CacheOf<Device, StandardV<half>>;
        migrate<Same, Same>(many, 40, out, in);
        migrate<CacheOf<Device, PermutedV<float>>, CacheOf<Device, StandardV<float>>>(many, 40, out, in);
    });
    for_both([](bool out, bool in) {
        using Same = CacheOf<Device, StandardV<half>>;
        migrate<Same, Same>(large, 2200, out, in);
    });
}

TEST_CASE_TEMPLATE("rows of a device arrive on the host and in other elements, and the other way round", Device,
                   CELLAR_DEVICES) {
    for_both([](bool out, bool in) {
        CAPTURE(out);
        CAPTURE(in);
        migrate<CacheOf<Device, StandardV<half>>, Cache<StandardV<half>>>(many, 40, out, in);
        migrate<Cache<PermutedV<half>>, CacheOf<Device, StandardV<half>>>(many, 40, out, in);
        migrate<CacheOf<Device, StandardV<half>>, CacheOf<Device, StandardV<bf16, half>>>(many, 40, out, in);
        migrate<CacheOf<Device, StandardV<float>>, Cache<Blocked<bf16>>>(many, 40, out, in);
    });
}

TEST_CASE_TEMPLATE("no row passes through the host where MPI takes addresses of the device", Device, CELLAR_DEVICES) {
    using Memory = CacheOf<Device, StandardV<half>>;
    for_both([](bool out, bool in) {
        CAPTURE(out);
        CAPTURE(in);
        const auto copies_of = [](auto transfer) {
            const int before = Counting<Device>::copies;
            const auto done = transfer();
            REQUIRE_MESSAGE(done, done.error().message);
            return Counting<Device>::copies - before;
        };
        between(
            [&](const Communicator& comm, int rank) {
                auto cache = filled<Memory>(many, 40, 1);
                CHECK(copies_of([&] { return mpi::send(comm, rank, cache, Sequence{0}, {.device_aware = out}).wait(); })
                      == (out ? 0 : 18));
            },
            [&](const Communicator& comm, int rank) {
                Memory cache{many, limits_for(40)};
                CHECK(
                    copies_of([&] { return mpi::receive(comm, rank, cache, Sequence{0}, {.device_aware = in}).wait(); })
                    == (out && in ? 0 : 18));
                CHECK(has(cache, 0, 40, 1));
            });
    });
}

TEST_CASE_TEMPLATE("rows that are apart have no head, and a checksum that the host computes too", Device,
                   CELLAR_DEVICES) {
    between(
        [&](const Communicator& comm, int rank) {
            auto cache = filled<CacheOf<Device, StandardV<half>>>(many, 40, 1);
            REQUIRE(mpi::send(comm, rank, cache, Sequence{0}, {.device_aware = true}).wait());
            auto on_host = filled<Cache<StandardV<half>>>(many, 40, 1);
            REQUIRE(mpi::send(comm, rank, on_host, Sequence{0}, {.device_aware = true}).wait());
        },
        [&](const Communicator& comm, int rank) {
            Hand hand{comm, rank};
            for (const bool is_apart : {true, false}) {
                const MessageHead announced = hand.answer(false);
                CHECK(announced.kind == MessageKind::announcement);
                hand.post({.kind = MessageKind::acceptance, .number = announced.number}, {}, false);
                for (int block = 0; block < 18; ++block) {
                    const std::vector<std::byte> first = hand.receive(false);
                    MessageHead head;
                    std::memcpy(&head, first.data(), sizeof(head));
                    CHECK(head.kind == (is_apart ? MessageKind::block_apart : MessageKind::block));
                    CHECK(head.rows == 40);
                    CHECK(head.bytes == 40 * 2 * 2 * (block % 2 == 0 ? 8 : 6));
                    const auto body = is_apart ? hand.receive(false) : first;
                    const auto rows = std::span{body}.subspan(is_apart ? 0 : sizeof(head));
                    CHECK(rows.size() == head.bytes);
                    CHECK(detail::crc32_of(rows) == head.body_crc);
                }
                hand.post({.kind = MessageKind::completion, .number = announced.number}, {}, false);
            }
        });
}

TEST_CASE_TEMPLATE("layers leave a device while their prompt is computed", Device, CELLAR_DEVICES) {
    using Memory = CacheOf<Device, StandardV<half>>;
    between(
        [&](const Communicator& comm, int rank) {
            Memory cache{many, limits_for(40)};
            feed(cache, 0, 10, 1);
            auto sending = mpi::send_ahead(comm, rank, cache, Sequence{0}, Position{30}, {.device_aware = true});
            for (const int first : {10, 20}) {
                auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{first}, 10}).value();
                for (int layer = 0; layer < cache.layers(); ++layer) {
                    put(cache, pass, layer, first, 10, 1);
                    sending.layer(pass, layer);
                }
                pass.commit();
            }
            const auto sent = sending.wait();
            REQUIRE_MESSAGE(sent, sent.error().message);
        },
        [&](const Communicator& comm, int rank) {
            Memory cache{many, limits_for(40)};
            const auto received = mpi::receive(comm, rank, cache, Sequence{0}, {.device_aware = true}).wait();
            REQUIRE_MESSAGE(received, received.error().message);
            CHECK(has(cache, 0, 30, 1));
        });
}

TEST_CASE_TEMPLATE("rows that are apart are refused if they are altered, cut or others than their head says", Device,
                   CELLAR_DEVICES) {
    const auto check = [](auto change, MpiReason expected, const std::string& words) {
        MessageHead head = head_of_keys();
        std::vector<std::byte> rows = keys();
        change(head, rows);
        for (const bool is_aware : {false, true})
            by_hand<CacheOf<Device, StandardV<float>>>(is_aware, head, rows, expected, words);
        by_hand<Cache<StandardV<float>>>(false, head, rows, expected, words);
    };
    check([](auto&, auto& rows) { rows[47] ^= std::byte{4}; }, MpiReason::altered, "checksum");
    check([](auto&, auto& rows) { rows.pop_back(); }, MpiReason::altered, "length");
    check([](auto&, auto& rows) { rows.clear(); }, MpiReason::altered, "length");
    check([](auto&, auto& rows) { rows.resize(200000); }, MpiReason::altered, "length"); // more than there is room for
    check([](auto& head, auto&) { head.array = 9; }, MpiReason::malformed, "no array");
    check([](auto& head, auto&) { head.array = 0; }, MpiReason::malformed, "other rows");
    check([](auto& head, auto&) { head.rows = 5; }, MpiReason::malformed, "other rows");
    check([](auto& head, auto&) { head.first = 1; }, MpiReason::malformed, "other rows");
    check([](auto& head, auto& rows) { head.bytes = 49, rows.resize(49); }, MpiReason::malformed, "other rows");
    check([](auto& head, auto&) { head.bytes = std::uint64_t{1} << 40; }, MpiReason::altered, "length");
}

TEST_CASE_TEMPLATE("rows of a head that was dropped are dropped with it", Device, CELLAR_DEVICES) {
    // The receiver is cancelled after it has read the head, or before. The rows come when nobody receives, or when the
    // next transfer does.
    for (const int looks : {0, 1, 20})
        for (const bool rows_come_late : {false, true})
            between(
                [&](const Communicator& comm, int rank) {
                    Hand hand{comm, rank};
                    hand.post({.kind = MessageKind::announcement}, announcement());
                    REQUIRE(hand.answer().kind == MessageKind::acceptance);
                    hand.post(head_of_keys());
                    meet(rank);
                    CHECK(hand.answer().kind == MessageKind::failure);
                    meet(rank);
                    if (!rows_come_late) hand.post_rows(keys());
                    meet(rank);
                    meet(rank);
                    if (rows_come_late) hand.post_rows(keys());
                    std::this_thread::sleep_for(5ms); // the receiver looks
                    hand.post({.kind = MessageKind::end});
                    hand.post({.kind = MessageKind::announcement, .number = 2}, announcement());
                    MessageHead answer = hand.answer();
                    CHECK(answer.kind == MessageKind::acceptance);
                    CHECK(answer.number == 2);
                    hand.post({.kind = MessageKind::end, .number = 2});
                },
                [&](const Communicator& comm, int rank) {
                    CacheOf<Device, StandardV<float>> cache{tiny, limits_for(10)};
                    {
                        auto receiving = mpi::receive(comm, rank, cache, Sequence{0}, {.device_aware = true});
                        while (cache.statistics().free == cache.cells()) static_cast<void>(receiving.progress());
                        meet(rank);
                        for (int i = 0; i < looks; ++i) static_cast<void>(receiving.progress());
                    }
                    comm.transfers().progress();
                    meet(rank);
                    for (int i = 0; i < looks; ++i) comm.transfers().progress();
                    meet(rank);
                    for (int i = 0; i < looks; ++i) comm.transfers().progress();
                    auto receiving = mpi::receive(comm, rank, cache, Sequence{0}, {.device_aware = true});
                    for (int i = 0; i < looks; ++i) static_cast<void>(receiving.progress());
                    meet(rank);
                    const auto received = receiving.wait();
                    REQUIRE_FALSE(received);
                    CHECK_MESSAGE(received.error() == MpiReason::malformed, received.error().message); // no reason
                    CHECK(cache.statistics().free == cache.cells());
                });
}

TEST_CASE_TEMPLATE("transfers arrive after others that were given up on either side", Device, CELLAR_DEVICES) {
    using Memory = CacheOf<Device, StandardV<half>>;
    const Communicator comm{MPI_COMM_WORLD};
    if (comm.rank() > 1) return;
    std::mt19937 engine{11}; // the same on both ranks
    Memory cache{many, limits_for(40)};
    int salt = 0; // of what the receiver has
    int tokens = 0;
    int cancelled = 0;
    for (int round = 0; round < 60; ++round) {
        CAPTURE(round);
        const bool out = engine() % 3 != 0;
        const bool in = engine() % 3 != 0;
        const auto who = engine() % 3;
        const auto looks = static_cast<int>(engine() % 40);
        const auto count = static_cast<int>(1 + engine() % 40);
        bool arrived = false;
        if (comm.rank() == 0) {
            REQUIRE(cache.remove(Sequence{0}, Position{0}, to_end));
            feed(cache, 0, count, round);
            auto sending = mpi::send(comm, 1, cache, Sequence{0}, {.device_aware = out});
            if (who == 1) {
                for (int i = 0; i < looks; ++i) static_cast<void>(sending.progress());
            } else {
                const auto sent = sending.wait();
                REQUIRE((sent || (who == 2 && sent.error() == MpiReason::cancelled)));
            }
            continue;
        }
        auto receiving = mpi::receive(comm, 0, cache, Sequence{0}, {.device_aware = in});
        const auto free = cache.statistics().free;
        if (who == 2) {
            bool is_over = false;
            while (!is_over && cache.statistics().free == free) is_over = receiving.progress();
            for (int i = 0; i < looks && !is_over; ++i) is_over = receiving.progress();
            arrived = is_over;
        } else {
            const auto received = receiving.wait();
            REQUIRE((received || (who == 1 && received.error() == MpiReason::cancelled)));
            arrived = received.has_value();
        }
        { const auto end = std::move(receiving); }
        cancelled += arrived ? 0 : 1;
        if (arrived) salt = round, tokens = count;
        REQUIRE(has(cache, 0, tokens, salt));
        REQUIRE(cache.statistics().free == cache.cells() - tokens);
    }
    if (comm.rank() == 1) CHECK((cancelled > 5 && cancelled < 50));
    if (comm.rank() == 0) REQUIRE(cache.statistics().snapshots == 0);
}
