// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Index lists and page tables in the memory of a device: what is in them, what is uploaded, what waits or allocates.
#include "backend/kokkos/device_on_host.hpp"
#include "backend/kokkos/tools.hpp"
#include "cache/list_trial.hpp"
#include "hybrid/failing_allocations.hpp"
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <ostream>
#include <span>
#include <string_view>
#include <vector>

namespace test_lists {

using namespace cellar;
using cellar_test::HostSpace;
using cellar_test::LateDevice;
using cellar_test::LateDeviceOfSmallLimits;
using cellar_test::LateSpace;
using cellar_test::TheDevice;
using list_trial::Ints;

static_assert(WritesLists<LateDevice> && !WritesLists<KokkosBackend<HostSpace>> && !WritesLists<HostBackend>);

namespace {

/// Copies a list from the memory of a device.
struct ReadDevice {
    template <class Cache>
    Ints operator()(Cache& cache, std::span<const std::int32_t> list) const {
        using Space = typename Cache::backend_type::memory_space;
        cache.fence();
        const Kokkos::View<const std::int32_t*, Space, Kokkos::MemoryUnmanaged> source{list.data(), list.size()};
        Ints copy(list.size());
        Kokkos::deep_copy(
            Kokkos::View<std::int32_t*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>{copy.data(), copy.size()}, source);
        return copy;
    }
};

template <class Cache>
Ints read(Cache& cache, std::span<const std::int32_t> list) {
    return ReadDevice{}(cache, list);
}

template <class Window = FullCausal, class Backend = LateDevice>
using OnDevice = Cache<StandardV<float>, Window, DisabledShift, Backend>;

const CacheShape small{.layers = 1, .kv_heads = 1, .head_dim = 1, .value_dim = 1};

/// Opens a pass over the next tokens of each of these sequences.
template <class Cache>
auto begin(Cache& cache, const std::vector<int>& sequences, int tokens = 1) {
    BatchBuilder batch;
    for (const int s : sequences)
        for (int i = 0; i < tokens; ++i) batch.add(Sequence{s}, cache.next(Sequence{s}) + i);
    return cache.begin(batch).value();
}

template <class Pass>
void commit(Pass& pass) {
    pass.mark_put(0);
    pass.commit();
}

template <class Cache>
void feed(Cache& cache, const std::vector<int>& sequences, int tokens) {
    auto pass = begin(cache, sequences, tokens);
    commit(pass);
}

/// Checks the lists of a pass against what the host has, which other tests check.
template <class Cache, class Pass>
void check_rows(Cache& cache, Pass& pass) {
    const CellLists lists = pass.lists();
    const Ints indices = read(cache, lists.indices());
    const Ints starts = read(cache, lists.starts());
    const Ints lengths = read(cache, lists.lengths());
    const CompressedLists compressed = lists.compressed();
    const Ints indptr = read(cache, compressed.indptr);
    const Ints all = read(cache, compressed.indices);
    REQUIRE(static_cast<std::int32_t>(indptr.size()) == lists.rows() + 1);
    REQUIRE(indptr.front() == 0);
    REQUIRE(indptr.back() == static_cast<std::int32_t>(all.size()));
    for (std::int32_t r = 0; r < lists.rows(); ++r) {
        const auto i = static_cast<std::size_t>(r);
        const Ints cells = list_trial::ints(lists.cells(r));
        REQUIRE(list_trial::part(indices, starts[i], lengths[i]) == cells);
        REQUIRE(list_trial::part(all, indptr[i], indptr[i + 1] - indptr[i]) == cells);
    }
}

/// Stands for a kernel that reads the first row.
struct CopyRow {
    const std::int32_t* indices;
    const std::int32_t* starts;
    const std::int32_t* lengths;
    std::int32_t* seen;

    KOKKOS_FUNCTION void operator()(int i) const { seen[i] = i < lengths[0] ? indices[starts[0] + i] : -1; }
};

/// What a call gives to Kokkos.
struct Work {
    int allocations = 0;
    int fences = 0;
    int copies = 0;
    int kernels = 0;
    std::size_t bytes = 0; ///< copied

    bool operator==(const Work&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Work& w) {
    return out << w.allocations << " allocations, " << w.fences << " fences, " << w.copies << " copies of " << w.bytes
               << " bytes, " << w.kernels << " kernels";
}

template <class Call>
Work work_of(Call call) {
    Work work;
    const cellar_test::Listener listener{{.kernel = [&](std::string_view) { ++work.kernels; },
                                          .fence = [&](std::string_view) { ++work.fences; },
                                          .allocation = [&](std::string_view) { ++work.allocations; },
                                          .copy =
                                              [&](const void*, const void*, std::size_t bytes) {
                                                  ++work.copies;
                                                  work.bytes += bytes;
                                              }}};
    call();
    return work;
}

template <class Call>
int new_calls_of(Call call) {
    constexpr int enough = 1'000'000;
    const FailingAllocations counter{enough};
    call();
    return cellar_test::new_calls_are_ours ? static_cast<int>(enough - FailingAllocations::left()) : 0;
}

} // namespace

TEST_CASE("device: random operations leave in the lists what a scan of the sequences finds") {
    list_trial::run_all_trials<TheDevice, ReadDevice>(30);
}

TEST_CASE("random operations leave in the lists what a scan of the sequences finds, in small pieces and on cores") {
    const SlidingWindow<5> window{{.retention = 8, .sinks = 2}};
    list_trial::run_trials<LateDeviceOfSmallLimits, ReadDevice>(window, 12);
    list_trial::run_trials<KokkosBackend<HostSpace>, list_trial::ReadHost>(window, 6);
}

TEST_CASE("lists of a device: a decode step uploads 16 bytes for each sequence, in one copy and one kernel") {
    for (const int n : {1, 3, 8}) {
        CAPTURE(n);
        OnDevice<> cache{small, {.sequences = 8, .capacity = 512, .batch = 2400}};
        cache.reserve_lists(512, 16);
        std::vector<int> sequences;
        for (int s = 0; s < n; ++s) sequences.push_back(s);
        feed(cache, sequences, 300);
        const auto rows = static_cast<std::size_t>(n);
        const std::int32_t* address = nullptr;
        for (int step = 0; step < 40; ++step) {
            CAPTURE(step);
            auto pass = begin(cache, sequences);
            if (step % 2 == 1) { // counting calls of new, which the listener would add to
                CHECK(new_calls_of([&] { (void)pass.lists().compressed(); }) == 0);
            } else {
                // An entry and a length for each row.
                const Work lists = work_of([&] { (void)pass.lists(); });
                if (step > 0) CHECK(lists == Work{.copies = 1, .kernels = 1, .bytes = 16 * rows});
                CHECK(work_of([&] { (void)pass.lists(); }) == Work{});
                // The end of each row.
                const Work compressed = work_of([&] { (void)pass.lists().compressed(); });
                if (step > 0) CHECK(compressed == Work{.copies = 1, .kernels = 2, .bytes = 8 * rows});
                CHECK(work_of([&] { (void)pass.lists().compressed(); }) == Work{});
            }
            if (address == nullptr) address = pass.lists().indices().data();
            CHECK(pass.lists().indices().data() == address);
            if (step % 8 == 7) check_rows(cache, pass);
            commit(pass);
        }
    }
}

TEST_CASE("lists of a device: a decode step uploads a page when one begins") {
    OnDevice<> cache{small, {.sequences = 3, .capacity = 512, .batch = 900}};
    cache.reserve_lists(512, 16);
    feed(cache, {0, 1, 2}, 290);
    for (int p = 290; p < 340; ++p) {
        CAPTURE(p);
        auto pass = begin(cache, {0, 1, 2});
        const Work work = work_of([&] { REQUIRE(pass.pages(16)); });
        // The last length and the length of each row; if a page begins, its number and the count.
        if (p > 290) CHECK(work == Work{.copies = 1, .kernels = 1, .bytes = std::size_t{3} * (p % 16 == 0 ? 32 : 16)});
        commit(pass);
    }
}

TEST_CASE("device: lists are read by kernels") {
    using Backend = TheDevice;
    using Space = Backend::memory_space;
    OnDevice<FullCausal, Backend> cache{small, {.sequences = 2, .capacity = 64, .batch = 20}};
    feed(cache, {0, 1}, 10);
    std::vector<Cell> expected;
    cache.visit_cells(Sequence{1}, [&](Position, Cell first, std::int32_t n) {
        for (std::int32_t i = 0; i < n; ++i) expected.push_back(first + i);
    });
    const Kokkos::View<std::int32_t*, Space> seen{"seen", 11};

    // [device]
    cache.reserve_lists(64); // from now on, the addresses stay, for rows of up to 64 cells
    auto pass = cache.begin(BatchBuilder{Sequence{1}, Position{10}}).value();
    const CellLists lists = pass.lists(); // enqueues the upload
    const std::int32_t* const indices = lists.indices().data();
    const std::int32_t* const starts = lists.starts().data();
    const std::int32_t* const lengths = lists.lengths().data();
    const Kokkos::RangePolicy<typename Backend::execution_space> range(cache.backend().space(), 0, 11);
    Kokkos::parallel_for("kernel", range, CopyRow{indices, starts, lengths, seen.data()}); // or by any other means
    // [/device]

    expected.push_back(pass.cells()[0]);
    CHECK(read(cache, {seen.data(), 11}) == expected);
}

TEST_CASE("lists of a device: a window that slides also uploads where its rows start, and its sinks") {
    OnDevice<SlidingWindow<20>> cache{small, {.capacity = 100, .batch = 40}, SlidingWindow<20>{{.sinks = 2}}};
    cache.reserve_lists(200); // long rows, so that none comes to its end
    feed(cache, {0}, 30);
    for (int p = 30; p < 60; ++p) {
        auto pass = begin(cache, {0});
        const Work work = work_of([&] { (void)pass.lists(); });
        if (p > 31) CHECK(work == Work{.copies = 1, .kernels = 1, .bytes = 8 * (1 + 1 + 2)}); // the length stays
        check_rows(cache, pass);
        commit(pass);
    }
}

TEST_CASE("lists of a device: what nobody asked for is not uploaded, and later all of it is") {
    OnDevice<> cache{small, {.sequences = 2, .capacity = 100, .batch = 60}};
    const auto uploads = [&](auto& pass) {
        return work_of([&] {
            pass.mark_put(0);
            pass.commit();
        });
    };
    for (int i = 0; i < 10; ++i) {
        auto pass = begin(cache, {0, 1}, 3);
        CHECK(uploads(pass) == Work{});
    }
    cache.reserve_lists(100);
    auto pass = begin(cache, {0});
    CHECK(work_of([&] { (void)pass.lists(); }).bytes == 8 * (31 + 1)); // its start is 0, as in new memory
    check_rows(cache, pass);
}

TEST_CASE("lists of a device: a dropped pass and a removal upload what differs afterwards") {
    OnDevice<> cache{small, {.sequences = 2, .capacity = 100, .batch = 60}};
    cache.reserve_lists(100);
    feed(cache, {0}, 30);
    {
        auto pass = begin(cache, {0}, 5);
        (void)pass.lists();
    }
    feed(cache, {1}, 64 - 30); // its block, and the cells that were dropped
    {
        auto pass = begin(cache, {0});
        CHECK(work_of([&] { (void)pass.lists(); }).bytes == 8 * (1 + 1));
        check_rows(cache, pass);
        commit(pass);
    }
    REQUIRE(cache.remove(Sequence{0}, Position{20}, to_end));
    auto pass = begin(cache, {0}, 2);
    CHECK(work_of([&] { (void)pass.lists(); }).bytes == 8 * (2 + 1));
    check_rows(cache, pass);
}

TEST_CASE("lists of a device: addresses stay up to what was reserved, from a reserved pass on") {
    OnDevice<SlidingWindow<30>> cache{small, {.sequences = 4, .capacity = 100, .cells = 4096, .batch = 200}};
    cache.reserve_lists(40, 8);
    std::vector<const std::int32_t*> fixed;
    const auto addresses = [](auto& pass) {
        const CellLists lists = pass.lists();
        const CompressedLists cells = lists.compressed();
        const PageLists pages = pass.pages(8).value();
        const CompressedLists compressed = pages.compressed();
        return std::vector<const std::int32_t*>{
            lists.indices().data(),      lists.starts().data(),        lists.lengths().data(),
            cells.indptr.data(),         cells.indices.data(),         pages.indices().data(),
            pages.starts().data(),       pages.counts().data(),        pages.lengths().data(),
            pages.last_lengths().data(), pages.first_offsets().data(), compressed.indptr.data(),
            compressed.indices.data()};
    };
    {
        auto reserved = cache.reserve(4);
        fixed = addresses(reserved);
        CHECK(read(cache, reserved.lists().compressed().indptr) == Ints{0});
    }
    const int allocations = LateSpace::allocations;
    for (int p = 0; p < 200; p += 10) {
        auto pass = begin(cache, {3, 1, 0, 2}, 10);
        CHECK(addresses(pass) == fixed);
        check_rows(cache, pass);
        commit(pass);
    }
    CHECK(LateSpace::allocations == allocations);
}

TEST_CASE("lists of a device: long rows are uploaded in pieces, and defragmentation uploads them again") {
    constexpr int n = 70000;
    OnDevice<> cache{small, {.sequences = 2, .cells = n + 64, .batch = n}};
    cache.reserve_lists(n);
    feed(cache, {1}, 64);
    {
        auto pass = begin(cache, {0}, n - 64);
        const Work work = work_of([&] { (void)pass.lists(); });
        CHECK(work == Work{.copies = 3, .kernels = 3, .bytes = 8 * (n - 64 + 1)}); // 32768 entries each
        check_rows(cache, pass);
        commit(pass);
    }
    REQUIRE(cache.remove(Sequence{1}, Position{0}, to_end));
    cache.defragment();
    auto pass = begin(cache, {0});
    check_rows(cache, pass);
}

TEST_CASE("lists of a device: they grow while work in flight uses them, and pages of another size take their place") {
    OnDevice<> cache{small, {.sequences = 2, .capacity = 2000, .batch = 400}};
    for (int i = 0; i < 10; ++i) {
        auto pass = begin(cache, {0, 1}, 100);
        (void)pass.lists().compressed();
        (void)pass.pages(i % 3 == 0 ? 4 : 8).value().compressed();
        if (i % 4 == 3) check_rows(cache, pass);
        commit(pass);
    }
}

TEST_CASE("lists of a device: without memory of the device they change nothing, and are right once there is some") {
    OnDevice<SlidingWindow<40>> cache{small, {.sequences = 2, .capacity = 200, .batch = 100}};
    int failures = 0;
    const auto repeat = [&](auto call) {
        for (int successes = 0;; ++successes) {
            LateSpace::left = successes;
            try {
                call();
                LateSpace::left = -1;
                return;
            } catch (const std::bad_alloc&) {
                ++failures;
            }
            LateSpace::left = -1;
        }
    };
    for (int p = 0; p < 180; p += 20) {
        auto pass = begin(cache, {0, 1}, 20);
        repeat([&] { (void)pass.lists().compressed(); });
        repeat([&] { (void)pass.pages(1).value().compressed(); });
        check_rows(cache, pass);
        commit(pass);
    }
    CHECK(failures > 8);
    repeat([&] { cache.reserve_lists(1000, 4); });
    auto pass = begin(cache, {1, 0}, 2);
    check_rows(cache, pass);
}

} // namespace test_lists
