// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cstdint>

/// For vectors: the nearest of up to 16 levels, found in two tables of 16 bytes, which an instruction reads.
namespace cellar::detail {

/// Once for each 16 bytes of a vector.
struct ByteTable {
    alignas(32) std::uint8_t bytes[32] = {};

    template <class Byte>
    static constexpr ByteTable of(Byte byte) {
        ByteTable table;
        for (int i = 0; i < 32; ++i) table.bytes[i] = static_cast<std::uint8_t>(byte(i % 16));
        return table;
    }
};

/// How many of up to 15 middles between levels an integer in [-256, 255] reaches. At most one of the middles is in each
/// run of 16 integers that a multiple of 16 begins.
struct NearestLevel {
    // For each run: 16 times the middles that its first integer reaches. If the run has a middle at distance d from
    // there, plus 16 - d. So an integer adds its own distance, and a sixteenth of the sum is how many it reaches.
    ByteTable negative;
    ByteTable positive;

    /// `middle(i)` for i = 0, 1, ..., `count` - 1, in order.
    template <class Middle>
    static constexpr NearestLevel of(Middle middle, int count) {
        const auto run = [=](int first) {
            int reached = 0;
            while (reached < count && middle(reached) <= first) ++reached;
            const int distance = reached < count ? middle(reached) - first : 16;
            return reached * 16 + (distance < 16 ? 16 - distance : 0);
        };
        return {ByteTable::of([=](int i) { return run(16 * i - 256); }),
                ByteTable::of([=](int i) { return run(16 * i); })};
    }
};

} // namespace cellar::detail
