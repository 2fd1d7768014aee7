// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/kokkos/buffer.hpp>
#include <cellar/backend/kokkos/launch.hpp>
#include <cellar/base/function.hpp>
#include <cellar/crc/crc32_product.hpp>
#include <cellar/crc/crc32_table.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace cellar::detail {

/// Four bytes of any type, the lowest first.
struct [[gnu::may_alias]] Crc32Word {
    std::uint32_t bits;

    CELLAR_FUNCTION std::uint32_t value() const {
        if constexpr (std::endian::native == std::endian::little) {
            return bits;
        } else {
            return (bits >> 24) | ((bits >> 8) & 0xff00) | ((bits << 8) & 0xff0000) | (bits << 24);
        }
    }
};

/// The polynomial of a message, divided among threads: thread t folds the words t, t + threads, ..., multiplies its sum
/// by the power of x that belongs to its last word, and adds it to one of a few sums. The powers are part of the
/// kernel, so nothing is uploaded.
struct FoldWords {
    static constexpr int sums = 256; ///< neighbouring threads add to neighbouring ones
    static constexpr int max_bits = 20;

    const Crc32Word* words;
    std::int64_t count;
    std::int32_t threads;            ///< less than 2^max_bits
    std::int32_t rest;               ///< bytes after the words: less than 4
    std::uint32_t* result;           ///< the sums, all zero; after them, the rest
    std::uint32_t step[32];          ///< [i]: x^i times x^(32 threads)
    std::uint32_t squares[max_bits]; ///< [i]: x^(32 * 2^i)

    FoldWords(const std::byte* bytes, std::int64_t n, std::int32_t all_threads, std::uint32_t* to)
        : words{reinterpret_cast<const Crc32Word*>(bytes)},
          count{n / 4},
          threads{all_threads},
          rest{static_cast<std::int32_t>(n % 4)},
          result{to} {
        std::uint32_t power = crc32_power(32 * static_cast<std::uint64_t>(threads));
        for (std::uint32_t& factor : step) {
            factor = power;
            power = crc32_times_x(power);
        }
        squares[0] = crc32_power(32);
        for (int i = 1; i < max_bits; ++i) squares[i] = crc32_product(squares[i - 1], squares[i - 1]);
    }

    CELLAR_FUNCTION void operator()(std::int32_t thread) const {
        std::uint32_t sum = 0;
        std::int64_t at = thread;
        for (; at < count; at += threads) sum = stepped(sum) ^ words[at].value();
        if (thread < count) {
            const auto left = static_cast<std::uint32_t>(count - (at - threads)); // words from its last one on
            for (int i = 0; i < max_bits; ++i)
                if ((left >> i & 1) != 0) sum = crc32_product(sum, squares[i]);
            Kokkos::atomic_fetch_xor(result + thread % sums, sum);
        }
        if (thread == 0) {
            const auto* const last = reinterpret_cast<const unsigned char*>(words + count);
            std::uint32_t bytes = 0;
            for (int i = 0; i < rest; ++i) bytes |= static_cast<std::uint32_t>(last[i]) << (8 * i);
            result[sums] = bytes;
        }
    }

private:
    // A product without a chain of dependent instructions.
    CELLAR_FUNCTION std::uint32_t stepped(std::uint32_t a) const {
        std::uint32_t product = 0;
        for (int i = 0; i < 32; ++i) product ^= (a >> (31 - i) & 1) != 0 ? step[i] : 0;
        return product;
    }
};

/// CRC-32 of memory of a device, equal to that of `Crc32`. It has 1 KB of the device's memory once it was used.
template <class ExecutionSpace, class MemorySpace, class Limits>
class DeviceCrc32 {
    static_assert(Limits::crc_threads > 0 && Limits::crc_threads < 1 << FoldWords::max_bits);

public:
    /// Of n bytes at a multiple of 4, after all work before. Blocks.
    std::uint32_t of(const ExecutionSpace& space, const std::byte* bytes, std::int64_t n) {
        constexpr std::size_t size = FoldWords::sums + 1;
        if (sums_.size() == 0) sums_ = {space, "cellar: checksum", size};
        Kokkos::deep_copy(space, sums_.view(), std::uint32_t{0});
        const FoldWords fold{bytes, n, Limits::crc_threads, sums_.data()};
        using Policy = Kokkos::RangePolicy<ExecutionSpace, Kokkos::IndexType<std::int32_t>>;
        const std::int64_t threads = std::clamp<std::int64_t>(fold.count, 1, fold.threads);
        launch("cellar: checksum", Policy(space, 0, static_cast<std::int32_t>(threads)), fold);
        std::array<std::uint32_t, size> sums{};
        Kokkos::deep_copy(space, HostView{sums.data(), size}, sums_.view());
        space.fence("cellar");
        // What the state at the beginning, all ones, adds to the words.
        std::uint32_t state = crc32_product(0xffffffff, crc32_power(32 * static_cast<std::uint64_t>(fold.count)));
        for (int i = 0; i < FoldWords::sums; ++i) state ^= sums[static_cast<std::size_t>(i)];
        std::array<std::byte, 4> rest{};
        for (std::size_t i = 0; i < rest.size(); ++i)
            rest[i] = static_cast<std::byte>(sums[FoldWords::sums] >> (8 * i) & 0xff);
        return ~add_by_table(state, std::span{rest}.first(static_cast<std::size_t>(fold.rest)));
    }

private:
    using HostView = Kokkos::View<std::uint32_t*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>;

    KokkosBlock<std::uint32_t, MemorySpace> sums_;
};

} // namespace cellar::detail
