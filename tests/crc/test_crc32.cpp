// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cellar/crc/crc32.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace test_crc32 {

namespace {

using namespace cellar::detail;

using Bytes = std::vector<std::byte>;

/// Different bytes for each seed.
Bytes bytes_of(std::size_t size, unsigned seed) {
    Bytes bytes(size);
    std::uint32_t state = seed * 2654435761U + 1;
    for (std::byte& b : bytes) {
        state = state * 1664525U + 1013904223U;
        b = static_cast<std::byte>(state >> 24);
    }
    return bytes;
}

/// By the definition, a bit at a time.
std::uint32_t by_bits(std::span<const std::byte> bytes) {
    std::uint32_t crc = 0xffffffff;
    for (const std::byte b : bytes) {
        crc ^= std::to_integer<std::uint32_t>(b);
        for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xedb88320U : 0U);
    }
    return ~crc;
}

} // namespace

TEST_CASE("the checksum of the digits 1 to 9 is the published one") {
    constexpr std::string_view digits = "123456789";
    CHECK(crc32_of(std::as_bytes(std::span{digits})) == 0xcbf43926);
    CHECK(crc32_of({}) == 0);
}

TEST_CASE("the factors of the checksum are the published ones") {
    CHECK(crc32_factor(4 * 128 + 32) == 0x154442bd4);
    CHECK(crc32_factor(4 * 128 - 32) == 0x1c6e41596);
    CHECK(crc32_factor(128 + 32) == 0x1751997d0);
}

TEST_CASE("the checksum equals its definition for every length and address") {
    const Bytes bytes = bytes_of(3000, 1);
    for (std::size_t size = 0; size <= 1200; ++size) {
        const auto some = std::span{bytes}.subspan(size % 67, size);
        CHECK(crc32_of(some) == by_bits(some));
    }
    for (const std::size_t cut : {0U, 1U, 63U, 64U, 511U, 512U, 513U, 1500U, 2999U}) {
        Crc32 crc;
        crc.add(std::span{bytes}.first(cut));
        crc.add(std::span{bytes}.subspan(cut));
        CHECK(crc.value() == by_bits(bytes));
    }
}

TEST_CASE("copying with the checksum gives the bytes and their checksum, for every length and address") {
    const Bytes bytes = bytes_of(6000, 3);
    Bytes room(6000 + 128);
    for (const bool past_caches : {false, true}) {
        for (std::size_t size = 0; size <= 5000; size += size < 1100 ? 7 : 501) {
            const auto some = std::span{bytes}.subspan(size % 67, size);
            for (const std::size_t skipped : {0U, 1U, 32U}) {
                const std::size_t at = (64 - reinterpret_cast<std::uintptr_t>(room.data()) % 64) % 64 + skipped;
                room.assign(room.size(), std::byte{0x5a});
                Crc32 crc;
                crc.add(std::span{bytes}.first(100));
                crc.add_copy(some, room.data() + at, past_caches);
                Bytes all{bytes.begin(), bytes.begin() + 100};
                all.insert(all.end(), some.begin(), some.end());
                CHECK(crc.value() == crc32_of(all));
                const auto copy = std::span{room}.subspan(at, size);
                CHECK(std::equal(copy.begin(), copy.end(), some.begin()));
                CHECK(room[at + size] == std::byte{0x5a});
                if (at > 0) CHECK(room[at - 1] == std::byte{0x5a});
            }
        }
    }
}

TEST_CASE("the checksum and the copy are the same with every set of instructions") {
    const Bytes bytes = bytes_of(5000, 2);
    Bytes room(5000 + 64);
    std::byte* const to = room.data() + (64 - reinterpret_cast<std::uintptr_t>(room.data()) % 64) % 64;
    for (const Crc32Fold& fold : crc32_folds()) {
        if (!fold.is_available) continue;
        for (std::size_t size = smallest_crc32_fold; size <= 4200; size += 61) {
            const auto all = std::span{bytes}.subspan(3, size);
            std::span<const std::byte> rest = all;
            const std::uint32_t added = fold.add(0xffffffff, rest, nullptr);
            CHECK(~add_by_table(added, rest) == by_bits(all));
            for (const auto copy : {fold.copy, fold.copy_past_caches}) {
                room.assign(room.size(), std::byte{0x5a});
                rest = all;
                const std::uint32_t copied = copy(0xffffffff, rest, to);
                CHECK(~add_by_table(copied, rest) == by_bits(all));
                const std::size_t count = size - rest.size();
                CHECK(std::equal(to, to + count, all.begin()));
                CHECK(to[count] == std::byte{0x5a});
            }
        }
    }
    CHECK(crc32_folds().back().is_available);
}

} // namespace test_crc32
