// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/host.hpp>
#include <cellar/base/zeroed.hpp>

#include <cstdint>
#include <new>
#include <set>
#include <span>

namespace cellar_test {

/// `HostBackend`, which also writes lists of its own, entry by entry. A call can be made to throw.
struct ListWriter : cellar::HostBackend {
    using IndexBuffer = cellar::ZeroedArray<std::int32_t>;

    IndexBuffer allocate_indices(std::int64_t n) const { return IndexBuffer{n}; }
    void reserve_entries(std::int64_t) {}
    void write_entries(std::span<const cellar::ListEntry> entries, std::int32_t* list) {
        std::set<std::uint32_t> places;
        for (const cellar::ListEntry& entry : entries) repeated += places.insert(entry.place).second ? 0 : 1;
        if (throws_after-- == 0) throw std::bad_alloc{};
        for (const cellar::ListEntry& entry : entries) list[entry.place] = entry.value;
        written += static_cast<std::int64_t>(entries.size());
    }
    void compress_rows(const cellar::ListRowsCopy& copy, std::int64_t) {
        for (std::int32_t r = 0; r < copy.rows; ++r)
            for (std::int32_t i = copy.indptr[r]; i < copy.indptr[r + 1]; ++i)
                copy.to[i] = copy.table[copy.starts[r] + i - copy.indptr[r]];
        ++compressed;
    }

    static inline std::int64_t written = 0;  ///< entries so far
    static inline std::int64_t repeated = 0; ///< entries whose place another one of the same call has, so far
    static inline int compressed = 0;        ///< calls of `compress_rows` so far
    static inline int throws_after = -1;     ///< calls of `write_entries` until one throws; negative: none does
};
static_assert(cellar::BackendPolicy<ListWriter> && cellar::WritesLists<ListWriter>);

} // namespace cellar_test
