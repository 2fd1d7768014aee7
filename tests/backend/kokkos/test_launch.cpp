// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How device work is divided into launches, and how large a launch may be.
#include "backend/kokkos/device_on_host.hpp"
#include "violations.hpp"
#include <cellar/backend/kokkos/device_work.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace test_launch {

using namespace cellar;
using cellar_test::Late;
using cellar_test::LateDevice;
using cellar_test::LateDeviceOfSmallLimits;
using cellar_test::SmallLimits;

namespace {

/// A kernel of a certain size.
template <std::size_t Bytes>
struct Sized {
    template <class Argument>
    CELLAR_FUNCTION void operator()(const Argument&) const {}
    std::byte bytes[Bytes] = {};
};

template <class Space, template <class...> class Policy>
using LargestKernel = Sized<detail::max_kernel_bytes<Policy<Space>>>;

} // namespace

// Kokkos' own part of what is passed to a device, measured with nvcc 13, and the size from which on it waits.
static_assert(sizeof(LargestKernel<Late, Kokkos::TeamPolicy>) + 152 < 512);
static_assert(sizeof(LargestKernel<Late, Kokkos::RangePolicy>) + 32 < 512);
#ifdef KOKKOS_ENABLE_CUDA
static_assert(sizeof(Kokkos::Impl::ParallelFor<LargestKernel<Kokkos::Cuda, Kokkos::TeamPolicy>,
                                               Kokkos::TeamPolicy<Kokkos::Cuda>, Kokkos::Cuda>)
              < 512);
static_assert(sizeof(Kokkos::Impl::ParallelFor<LargestKernel<Kokkos::Cuda, Kokkos::RangePolicy>,
                                               Kokkos::RangePolicy<Kokkos::Cuda>, Kokkos::Cuda>)
              < 512);
#endif

namespace {

/// Counts how often each place is written.
struct Visits {
    using Value = float;

    int* visits;
    std::int64_t heads;
    std::int64_t dim;

    CELLAR_FUNCTION float read(std::int64_t i, std::int64_t head, std::int64_t d) const {
        return static_cast<float>((i * heads + head) * dim + d);
    }
    CELLAR_FUNCTION void write(std::int64_t i, std::int64_t head, std::int64_t d, float value) const {
        if (static_cast<std::int64_t>(value) == (i * heads + head) * dim + d) ++visits[(i * heads + head) * dim + d];
    }
};

/// The number of launches, each place being visited once.
template <class Launch>
std::int64_t launches(std::int64_t cells, std::int64_t heads, std::int64_t dim, Launch launch) {
    const Late space;
    std::vector<int> visits(static_cast<std::size_t>(cells * heads * dim));
    launch(space, Visits{visits.data(), heads, dim});
    const std::int64_t count = space.queue().launches;
    space.fence();
    CHECK(visits == std::vector<int>(visits.size(), 1));
    return count;
}

} // namespace

TEST_CASE("launches: work of more values than a launch may have is divided") {
    const auto by_elements = [](std::int64_t cells, std::int64_t heads, std::int64_t dim) {
        const std::int64_t along_dims = launches(cells, heads, dim, [=](const Late& space, const Visits& kernel) {
            detail::launch_elements<SmallLimits, false>("test", space, kernel, cells, heads, dim);
        });
        CHECK(along_dims == launches(cells, heads, dim, [=](const Late& space, const Visits& kernel) {
                  detail::launch_elements<SmallLimits, true>("test", space, kernel, cells, heads, dim);
              }));
        return along_dims;
    };
    CHECK(by_elements(30, 5, 20) == 1); // as many values as a launch may have
    CHECK(by_elements(31, 5, 20) == 2);
    CHECK(by_elements(100, 5, 20) == 4);
    CHECK(by_elements(7, 1, 1601) == 7);
    CHECK(by_elements(3, 2, 3001) == 3); // a row is not divided
    const auto by_tiles = [](std::int64_t cells, std::int64_t heads, std::int64_t dim) {
        return launches(cells, heads, dim, [=](const Late& space, const Visits& kernel) {
            detail::launch_tiles<SmallLimits, true>(space, kernel, cells, heads, dim);
        });
    };
    CHECK(by_tiles(50, 1, 60) == 1);
    CHECK(by_tiles(51, 1, 60) == 2);
    CHECK(by_tiles(150, 2, 33) == 4);
}

TEST_CASE("launches: a row of more than 2^30 elements is a violation") {
    const Late space;
    const auto launch = [&](std::int64_t heads, std::int64_t dim) {
        return violation_of([&] {
            const Visits kernel{nullptr, heads, dim};
            detail::launch_elements<detail::DeviceLimits, false>("test", space, kernel, 0, heads, dim);
        });
    };
    CHECK(launch(1, std::int64_t{1} << 30) == "none");
    CHECK(launch(8, std::int64_t{1} << 27) == "none");
    CHECK(launch(8, (std::int64_t{1} << 27) + 1)
          == "KokkosBackend: rows of [8, 134217729], expected at most 1073741824 elements");
}

// With one more strip and a block of threads, the indices of the largest launch still fit into 32 bits.
static_assert(detail::DeviceLimits::values <= INT32_MAX - (1 << 20));

namespace {

/// Where the rows of `words_of` lie.
struct Placed {
    std::int64_t offset = 0;       // of the first row
    std::int64_t padding_from = 0; // behind each row
    std::int64_t padding_to = 0;
};

/// The number of words that a copy of one row each moves.
std::int64_t words_of(const std::vector<std::int64_t>& bytes, const Placed& placed = {}) {
    LateDevice device;
    auto from = device.allocate<float>(1000);
    auto to = device.allocate<float>(1000);
    std::vector<SlotRows> tensors;
    for (const std::int64_t n : bytes)
        tensors.push_back({reinterpret_cast<std::byte*>(from.data()) + placed.offset,
                           reinterpret_cast<std::byte*>(to.data()) + placed.offset, n + placed.padding_from,
                           n + placed.padding_to, n});
    const std::vector<SlotCopy> copies{{0, 0}};
    const std::int64_t before = device.space().queue().indices;
    device.copy_slots(tensors, copies);
    const std::int64_t words = device.space().queue().indices - before;
    device.fence();
    return words;
}

} // namespace

TEST_CASE("launches: slots are copied in the widest words that all rows of a launch consist of") {
    CHECK(words_of({160}) == 160 / 16);
    CHECK(words_of({160, 320}) == 2 * 320 / 16);
    CHECK(words_of({168}) == 168 / 4);
    CHECK(words_of({160, 164}) == 2 * 164 / 4);
    CHECK(words_of({160, 162}) == 2 * 162 / 2);
    CHECK(words_of({163}) == 163);
    CHECK(words_of({160}, {.offset = 4}) == 160 / 4);
    CHECK(words_of({160}, {.offset = 2}) == 160 / 2);
    CHECK(words_of({160}, {.padding_from = 4}) == 160 / 4);
    CHECK(words_of({160}, {.padding_to = 4}) == 160 / 4);
    CHECK(words_of({160}, {.padding_to = 2}) == 160 / 2);
    // Only the eight tensors of the launch with the odd one.
    CHECK(words_of({160, 160, 160, 160, 160, 160, 160, 160, 162}) == 8 * 10 + 81);
}

} // namespace test_launch
