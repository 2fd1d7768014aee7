// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/book/cell_rows.hpp>
#include <cellar/book/page_rows.hpp>
#include <cellar/cache/compressed_lists.hpp>
#include <cellar/cache/detail/lists_of_backend.hpp>
#include <cellar/cache/detail/row_lists.hpp>

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>

namespace cellar {

struct MemoryAccess;

/// The cells that a batch sees, as `ReadPass::lists` finds them: a row for each sequence of the batch, in the order in
/// which the batch first mentions them. A row has the sinks, then the window, in the order of positions, and includes
/// the batch's own tokens: from the oldest cell that any token of the sequence sees to the newest one.
///
/// `indices` is a table with a row of `pitch()` entries for each sequence of the memory. What a sequence sees is
/// indices[starts[r], starts[r] + lengths[r]). Entries stay where they are while tokens are appended, until a sliding
/// window reaches the end of its row. `compressed` copies the rows. Addresses change if a row outgrows the table; see
/// `Cache::reserve_lists`.
///
/// `indices`, `starts`, `lengths` and what `compressed` returns lie in the memory of the backend: kernels that are
/// enqueued there after the lists were asked for read them. `cells`, `positions` and `sequence` are for the host. On a
/// device, `starts` and `lengths` are zero after the batch's rows, up to the largest number of rows that a batch can
/// have, so a graph captured for more sequences finds empty rows.
class CellLists : private detail::RowLists<detail::CellRows> {
public:
    using RowLists::rows;

    /// The sequence of a row.
    using RowLists::sequence;

    /// The cells of a row, and their positions, for the host.
    std::span<const std::int32_t> cells(std::int32_t row,
                                        const std::source_location& where = std::source_location::current()) const {
        return own().cells(sequence(row, where));
    }
    std::span<const std::int32_t> positions(std::int32_t row,
                                            const std::source_location& where = std::source_location::current()) const {
        return own().positions(sequence(row, where));
    }

    /// The whole table, and each row's part of it.
    using RowLists::indices;
    using RowLists::pitch;
    std::span<const std::int32_t> starts() const { return column(detail::CellRows::starts); }
    std::span<const std::int32_t> lengths() const { return column(detail::CellRows::lengths); }

    /// Copies the rows, once for each pass: 4 bytes for each cell. A backend that writes lists does it (enqueued), and
    /// uploads 8 bytes for each row that ends elsewhere than in the last ones. May throw `std::bad_alloc`. One thread
    /// at a time may call it.
    using RowLists::compressed;

private:
    friend struct MemoryAccess;

    CellLists(detail::CellRows& cells, detail::ListsOfBackend* in_backend) : RowLists{cells, cells, in_backend} {}
};

/// The same as pages, as `ReadPass::pages` finds them: page p has cells [p * page_size, (p + 1) * page_size), and the
/// token at position q is in place q % page_size of its page. Pages are those of a window: the first one may begin with
/// cells that no token sees, which hold anything.
///
/// As with `CellLists`, all lists but `pages(row)` lie in the memory of the backend.
class PageLists : private detail::RowLists<detail::PageRows> {
public:
    using RowLists::rows;
    std::int32_t page_size() const { return own().page_size(); }

    /// The sequence of a row.
    using RowLists::sequence;

    /// The pages of a row, for the host.
    std::span<const std::int32_t> pages(std::int32_t row,
                                        const std::source_location& where = std::source_location::current()) const {
        const std::int32_t s = sequence(row, where).value;
        return {own().rows().data(0) + own().rows().start(s), static_cast<std::size_t>(own().rows().extent(s).size())};
    }

    /// The whole table, as in `CellLists`, and each row's part of it.
    using RowLists::indices;
    using RowLists::pitch;
    std::span<const std::int32_t> starts() const { return column(detail::PageRows::starts); }
    std::span<const std::int32_t> counts() const { return column(detail::PageRows::counts); }

    /// How many cells of a row's first page come before the first that is visible.
    std::span<const std::int32_t> first_offsets() const { return column(detail::PageRows::first_offsets); }
    /// How many cells of a row's last page are tokens, from the beginning of the page.
    std::span<const std::int32_t> last_lengths() const { return column(detail::PageRows::last_lengths); }
    /// How many cells a row has from the beginning of its first page: (count - 1) * page_size + last length.
    std::span<const std::int32_t> lengths() const { return column(detail::PageRows::lengths); }

    /// Copies the rows, as in `CellLists`. May throw `std::bad_alloc`. One thread at a time may call it.
    using RowLists::compressed;

private:
    friend struct MemoryAccess;

    PageLists(detail::CellRows& cells, detail::PageRows& pages, detail::ListsOfBackend* in_backend)
        : RowLists{cells, pages, in_backend} {}
};

} // namespace cellar
