// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the bookkeeping of many sequences takes of the machine's memory.
#include "../skip.hpp"
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <fstream>
#include <vector>

#ifdef __linux__
#include <unistd.h>
#endif

namespace test_many_sequences {

#if defined(__SANITIZE_ADDRESS__)
#define CELLAR_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(memory_sanitizer) || __has_feature(thread_sanitizer)
#define CELLAR_SANITIZED 1
#endif
#endif

using namespace cellar;

namespace {

/// Bytes of memory that this process occupies; 0 where that is unknown.
std::int64_t resident_bytes() {
#if defined(__linux__) && !defined(CELLAR_SANITIZED)
    std::int64_t size = 0;
    std::int64_t pages = 0;
    std::ifstream{"/proc/self/statm"} >> size >> pages;
    return pages * sysconf(_SC_PAGESIZE);
#else
    return 0;
#endif
}

/// The memory that a pool of 2^22 cells takes beside keys and values, once 100,000 sequences have filled it in turn.
std::int64_t bookkeeping_bytes(std::int32_t at_once) {
    constexpr std::int32_t sequences = 100'000;
    constexpr std::int64_t cells = std::int64_t{1} << 22;
    constexpr std::int32_t each = static_cast<std::int32_t>(cells / sequences);
    const std::int64_t before = resident_bytes();
    Cache<StandardV<half>> cache{CacheShape{.layers = 1, .kv_heads = 1, .head_dim = 1},
                                 {.sequences = sequences, .capacity = each, .cells = cells, .batch = 500 * at_once}};
    std::vector<std::int32_t> positions;
    std::vector<std::int32_t> of;
    for (std::int32_t p = 0; p < each; p += at_once) {
        for (std::int32_t s = 0; s < sequences; s += 500) {
            positions.clear();
            of.clear();
            for (std::int32_t i = 0; i < 500; ++i)
                for (std::int32_t k = 0; k < at_once && p + k < each; ++k) {
                    positions.push_back(p + k);
                    of.push_back(s + i);
                }
            auto pass = cache.begin({positions, of});
            REQUIRE(pass);
            pass->mark_put(0);
            pass->commit();
        }
    }
    CHECK(cache.statistics().tokens == std::int64_t{each} * sequences);
    for (std::int32_t s = 0; s < sequences; s += 997) CHECK(cache.next(Sequence{s}) == Position{each});
    return resident_bytes() - before;
}

} // namespace

TEST_CASE("the bookkeeping of 100,000 sequences in a pool of 2^22 cells takes less than 1 GB") {
    if (resident_bytes() == 0) CELLAR_SKIP("the memory of this process is not known here");
    CHECK(bookkeeping_bytes(1) < std::int64_t{1} << 30);  // no two cells of a sequence are neighbours
    CHECK(bookkeeping_bytes(20) < std::int64_t{1} << 30); // prompts
}

} // namespace test_many_sequences
