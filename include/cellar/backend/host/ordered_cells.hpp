// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>

namespace cellar::detail {

inline std::span<const Cell> cells_from(std::span<const Cell> cells, std::int64_t begin, std::int64_t end) {
    return cells.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
}

/// The number of neighbouring cells from cells[first] on.
inline std::int64_t run_length(std::span<const Cell> cells, std::int64_t first) {
    const Cell* const run = cells.data() + first;
    std::int64_t n = 1;
    while (first + n < std::ssize(cells) && run[n] == run[0] + n) ++n;
    return n;
}

/// A list of up to a few thousand cells, sorted roughly by address, so that each strip is read once from one end to the
/// other wherever a sequence's cells lie. On the stack, because moving rows must not allocate.
class OrderedCells {
public:
    static constexpr std::int64_t max_cells = 4096;

    /// Cells of a memory of `capacity` cells. O(cells).
    constexpr OrderedCells(std::span<const Cell> cells, std::int64_t capacity) : count_{std::ssize(cells)} {
        // Sorted by bucket. Within a bucket the order is kept, so runs stay together.
        constexpr int buckets = 256;
        int shift = 0;
        while ((capacity - 1) >> shift >= buckets) ++shift;
        std::int32_t begins[buckets + 1] = {};
        for (const Cell cell : cells) ++begins[(cell >> shift) + 1];
        for (int bucket = 0; bucket < buckets; ++bucket) begins[bucket + 1] += begins[bucket];
        for (std::size_t i = 0; i < cells.size(); ++i) {
            const std::int32_t at = begins[cells[i] >> shift]++;
            cells_[at] = cells[i];
            rows_[at] = static_cast<std::int32_t>(i);
        }
    }

    constexpr std::span<const Cell> cells() const { return {cells_, static_cast<std::size_t>(count_)}; }
    /// The index of cells()[i] in the original list.
    constexpr std::int64_t row(std::int64_t i) const { return rows_[i]; }

    /// The number of runs of neighbouring cells.
    std::int64_t runs() const {
        std::int64_t runs = 0;
        for (std::int64_t i = 0; i < count_; i += run_length(cells(), i)) ++runs;
        return runs;
    }

private:
    std::int64_t count_;
    Cell cells_[max_cells];
    std::int32_t rows_[max_cells];
};

} // namespace cellar::detail
