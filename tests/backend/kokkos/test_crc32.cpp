// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "backend/kokkos/device_on_host.hpp"
#include <cellar/backend/kokkos/device_crc32.hpp>
#include <cellar/crc/crc32.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace test_crc32 {

namespace {

using namespace cellar;
using cellar_test::TheDevice;

template <std::int32_t Threads>
struct Limits {
    static constexpr std::int32_t crc_threads = Threads;
};

/// Random bytes in memory of a device, and a copy.
template <class Space, class Memory>
struct Bytes {
    Bytes(const Space& space, std::size_t n, unsigned seed) : on_host(n), on_device{space, "bytes", n} {
        std::mt19937 engine{seed};
        for (std::byte& b : on_host) b = static_cast<std::byte>(engine() & 0xff);
        const Kokkos::View<std::byte*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged> from{on_host.data(), n};
        Kokkos::deep_copy(space, on_device.view(), from);
        space.fence();
    }

    std::vector<std::byte> on_host;
    detail::KokkosBlock<std::byte, Memory> on_device;
};

template <class Space, std::int32_t Threads>
void check(std::size_t all_up_to, int more) {
    using Memory = typename Space::memory_space;
    constexpr std::size_t most = 300000;
    const Space space;
    const Bytes<Space, Memory> bytes{space, most, 5};
    detail::DeviceCrc32<Space, Memory, Limits<Threads>> crc;
    const auto compare = [&](std::size_t first, std::size_t n) {
        CAPTURE(Threads);
        CAPTURE(first);
        CAPTURE(n);
        const std::uint32_t expected = detail::crc32_of(std::span{bytes.on_host}.subspan(first, n));
        REQUIRE(crc.of(space, bytes.on_device.data() + first, static_cast<std::int64_t>(n)) == expected);
    };
    for (std::size_t n = 0; n <= all_up_to; ++n) compare(4 * (n % 3), n);
    std::mt19937 engine{7};
    for (int i = 0; i < more; ++i) {
        const std::size_t n = engine() % most;
        compare((most - n) / 4 * 4, n);
    }
}

/// The same with few threads, each of which has many words, and with many.
template <class Space>
void check_all() {
    check<Space, 1>(70, 1);
    check<Space, 2>(70, 1);
    check<Space, 7>(200, 3);
    check<Space, 64>(1100, 10);
    check<Space, 1000>(300, 10);
    check<Space, detail::DeviceLimits::crc_threads>(100, 10);
}

} // namespace

#ifdef KOKKOS_ENABLE_SERIAL
TEST_CASE("Serial: the checksum of threads equals that of the host") {
    check_all<Kokkos::Serial>();
}
#endif

TEST_CASE("the host's cores: the checksum of threads equals that of the host") {
    check_all<cellar_test::HostSpace>();
}

TEST_CASE("device: the checksum of threads equals that of the host") {
    check_all<TheDevice::execution_space>();
}

TEST_CASE("device: a checksum is of what was enqueued before") {
    static_assert(ComputesChecksums<TheDevice> && ComputesChecksums<cellar_test::DeviceOnHost>);
    static_assert(!ComputesChecksums<KokkosBackend<cellar_test::HostSpace>>);
    TheDevice backend;
    auto from = backend.allocate<float>(5000);
    auto to = backend.allocate<float>(5000);
    std::vector<float> numbers(5000);
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
    backend.copy_from_host(std::span<const float>{numbers}, from, 0);
    const auto* const begin = reinterpret_cast<const std::byte*>(from.data());
    const SlotRows rows{begin, reinterpret_cast<std::byte*>(to.data()), 0, 0, 4 * 5000};
    const SlotCopy once{0, 0};
    backend.copy_slots({&rows, 1}, {&once, 1});
    CHECK(backend.crc32(reinterpret_cast<const std::byte*>(to.data()), 4 * 4000)
          == detail::crc32_of(std::as_bytes(std::span{numbers}.first(4000))));
}

} // namespace test_crc32
