// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "backend/kokkos/device_on_host.hpp"

#define CELLAR_DEVICES cellar_test::LateDeviceOfSmallLimits, cellar_test::DeviceOnHost
#include "device_suite.hpp"

namespace {

void start_devices() {
    static const Kokkos::ScopeGuard until_exit{
        Kokkos::InitializationSettings{}.set_num_threads(2).set_disable_warnings(true)};
}

} // namespace

namespace test_kokkos {

TEST_CASE("a device without memory for a block ends the transfer, and the next one arrives") {
    using Memory = CacheOf<cellar_test::LateDevice, StandardV<half>>;
    using cellar_test::LateSpace;
    int failed = 0;
    for (const int side : {0, 1})
        for (int left = 0; left < 6; ++left) {
            CAPTURE(side);
            CAPTURE(left);
            const auto run = [&](const Communicator& comm, auto transfer) {
                LateSpace::left = comm.rank() == side ? left : -1;
                const auto done = transfer();
                LateSpace::left = -1;
                if (done) return;
                CHECK_MESSAGE(done.error() == MpiReason::no_memory, done.error().message);
                ++failed;
            };
            between(
                [&](const Communicator& comm, int rank) {
                    auto cache = filled<Memory>(many, 40, 1);
                    const auto send = [&] {
                        return mpi::send(comm, rank, cache, Sequence{0}, {.device_aware = true}).wait();
                    };
                    run(comm, send);
                    CHECK(cache.statistics().snapshots == 0);
                    REQUIRE(send());
                },
                [&](const Communicator& comm, int rank) {
                    Memory cache{many, limits_for(40)};
                    feed(cache, 0, 3, 2);
                    const auto receive = [&] {
                        return mpi::receive(comm, rank, cache, Sequence{0}, {.device_aware = true}).wait();
                    };
                    const int before = failed;
                    run(comm, receive);
                    CHECK((failed == before || has(cache, 0, 3, 2)));
                    REQUIRE(receive());
                    CHECK(has(cache, 0, 40, 1));
                });
        }
    CHECK(failed >= 4);
}

} // namespace test_kokkos
