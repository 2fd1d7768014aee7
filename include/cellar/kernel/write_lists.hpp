// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/base/last_where.hpp>
#include <cellar/base/list_entry.hpp>

#include <cstdint>

namespace cellar::detail::kernel {

/// Writes entries of a list of indices. Its index is that of an entry.
struct WriteEntries {
    using Value = std::int32_t;

    const ListEntry* entries;
    std::int32_t* list;

    CELLAR_FUNCTION Value read(std::int64_t i, std::int64_t, std::int64_t) const { return entries[i].value; }
    CELLAR_FUNCTION void write(std::int64_t i, std::int64_t, std::int64_t, Value value) const {
        list[entries[i].place] = value;
    }
};

/// Writes rows of a table one after the other. Its index is that of an entry in the result.
struct CompressRows {
    using Value = std::int32_t;

    ListRowsCopy copy;

    CELLAR_FUNCTION Value read(std::int64_t i, std::int64_t, std::int64_t) const {
        // The last one that begins at i or before; empty rows come before it.
        const std::int32_t row = last_where(copy.rows, [&](std::int32_t r) { return copy.indptr[r] <= i; });
        return copy.table[copy.starts[row] + (i - copy.indptr[row])];
    }
    CELLAR_FUNCTION void write(std::int64_t i, std::int64_t, std::int64_t, Value value) const { copy.to[i] = value; }
};

} // namespace cellar::detail::kernel
