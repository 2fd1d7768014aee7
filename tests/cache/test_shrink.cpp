// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Memory goes back to the operating system, and comes back by itself.
#include "numbers.hpp"
#include "skip.hpp"
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <vector>

namespace test_shrink {

using namespace cellar;

namespace {

/// Bytes of this process that are in memory; 0 if the system does not say.
std::int64_t resident_bytes() {
    std::ifstream file{"/proc/self/statm"};
    std::int64_t all = 0;
    std::int64_t resident = 0;
    file >> all >> resident;
    return resident * 4096;
}

constexpr std::int64_t mib = std::int64_t{1} << 20;

template <class Layout>
void check_that_memory_falls() {
    // 4 layers of 16,384 cells of a KiB for the keys and one for the values.
    Cache<Layout> cache{CacheShape{.layers = 4, .kv_heads = 2, .head_dim = 256},
                        {.sequences = 2, .cells = 16384, .batch = 1024}};
    const std::vector<float> rows(1024 * 2 * 256, 1.0F);
    const auto feed = [&](Sequence s) {
        auto pass = cache.begin(BatchBuilder{s, cache.next(s), 1024}).value();
        for (int layer = 0; layer < 4; ++layer) pass.put(layer, rows, rows);
        pass.commit();
    };
    for (int n = 0; n < 8; ++n) {
        feed(Sequence{0});
        feed(Sequence{1});
    }
    const std::int64_t whole = resident_bytes();
    CHECK(cache.shrink_to(8192).error() == Reason::full); // sequences lie in between one another
    REQUIRE(cache.remove(Sequence{0}, Position{0}, to_end));
    REQUIRE(cache.remove(Sequence{1}, Position{1024}, to_end));
    cache.defragment();
    CHECK(cache.shrink_to(1023).error() == Reason::full);
    REQUIRE(cache.shrink_to(cache.cells() - cache.statistics().free));
    const std::int64_t less = resident_bytes();
    CHECK(whole - less > 100 * mib); // of 128 MiB, 8 MiB are in use, and pages that strips use in part
    CHECK(cache.bytes() == 128 * mib);
    feed(Sequence{0});
    CHECK(resident_bytes() - less > 3 * mib);
    const auto pass = cache.reserve(1);
    CHECK(static_cast<float>(pass.keys(3)(1023, 1, 255)) == 1.0F); // a row of sequence 1 stayed
    CHECK(static_cast<float>(pass.values(3)(0, 1, 255)) == 1.0F);
}

} // namespace

TEST_CASE("what a process does not use goes back after shrink_to, and comes back by itself") {
    if (resident_bytes() == 0) CELLAR_SKIP("the system does not say how much memory is resident");
    check_that_memory_falls<StandardV<half>>();
    check_that_memory_falls<PermutedV<half>>();
    check_that_memory_falls<Blocked<half>>();
}

TEST_CASE("shrink_to leaves what is in use") {
    numbers::Cache<> cache{numbers::small, {.sequences = 2, .cells = 70'000, .batch = 8}};
    numbers::feed(cache, numbers::prompt(0, 0, {1, 2, 3, 4, 5}));
    REQUIRE(cache.shrink_to(5));
    CHECK(cache.shrink_to(4).error() == Reason::full);
    CHECK(cache.shrink_to(70'000));
    CHECK(numbers::values(cache, 0) == numbers::Values{1, 2, 3, 4, 5});
    numbers::feed(cache, numbers::prompt(0, 5, {6, 7}));
    CHECK(numbers::values(cache, 0) == numbers::Values{1, 2, 3, 4, 5, 6, 7});
}

} // namespace test_shrink
