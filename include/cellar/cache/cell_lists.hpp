// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/compressed_lists.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/book/cell_rows.hpp>
#include <cellar/book/list_rows.hpp>
#include <cellar/book/page_rows.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace cellar {

namespace detail {

/// What `CellLists` and `PageLists` have in common.
template <class Rows>
class RowLists {
public:
    std::int32_t rows() const { return static_cast<std::int32_t>(rows_->sequences().size()); }

    /// The sequence of a row.
    Sequence sequence(std::int32_t row, Where where = Where::current()) const {
        CELLAR_EXPECTS_AT(where, row >= 0 && row < rows(), Rows::name, ": row ", row, ", expected 0 to ", rows() - 1);
        return rows_->sequences()[static_cast<std::size_t>(row)];
    }

    /// The whole table: a row of `pitch()` entries for each sequence of the memory. The batch has
    /// indices[starts[row], starts[row] + n) of it, where n is `CellLists::lengths` or `PageLists::counts`.
    std::span<const std::int32_t> indices() const { return {lists_->table(), static_cast<std::size_t>(rows_->size())}; }
    std::int32_t pitch() const { return rows_->pitch(); }
    std::span<const std::int32_t> starts() const { return column(Rows::starts); }

    /// Copies the rows, once for each pass: 4 bytes for each entry. A backend that writes lists does it (enqueued), and
    /// uploads 8 bytes for each row that ends elsewhere than in the last ones. May throw `std::bad_alloc`. One thread
    /// at a time may call it.
    CompressedLists compressed() const { return lists_->compressed(); }

    RowLists(const Rows& rows, IndexLists& lists) : rows_{&rows}, lists_{&lists} {}

protected:
    const Rows& own() const { return *rows_; }

    /// A number for each row.
    std::span<const std::int32_t> column(int c) const { return {lists_->column(c), static_cast<std::size_t>(rows())}; }

private:
    const Rows* rows_;
    IndexLists* lists_; // for kernels
};

} // namespace detail

/// The cells that a batch sees, as `CachePass::lists` finds them: a row for each sequence of the batch, in the order in
/// which the batch first mentions them. A row has the sinks, then the window, in the order of positions, and includes
/// the batch's own tokens: from the oldest cell that any token of the sequence sees to the newest one.
///
/// Entries of `indices` stay where they are while tokens are appended, until a sliding window reaches the end of its
/// row. `compressed` copies the rows. Addresses change if a row outgrows the table; see `Cache::reserve_lists`.
///
/// `indices`, `starts`, `lengths` and what `compressed` returns lie in the memory of the backend: kernels that are
/// enqueued there after the lists were asked for read them. `cells`, `positions` and `sequence` are for the host. On a
/// device, `starts` and `lengths` are zero after the batch's rows, up to the largest number of rows that a batch can
/// have, so a graph captured for more sequences finds empty rows.
class CellLists : public detail::RowLists<detail::CellRows> {
public:
    /// The cells of a row, in the order of their positions, in memory of the host.
    std::span<const std::int32_t> cells(std::int32_t row, Where where = Where::current()) const {
        return own().entries(sequence(row, where));
    }
    /// The positions of `cells(row)`, in memory of the host.
    std::span<const std::int32_t> positions(std::int32_t row, Where where = Where::current()) const {
        return own().positions(sequence(row, where));
    }

    /// How many cells each row has.
    std::span<const std::int32_t> lengths() const { return column(detail::CellRows::counts); }

    using RowLists::RowLists; // for cellar itself
};

/// The same as pages, as `CachePass::pages` finds them: page p has cells [p * page_size, (p + 1) * page_size), and the
/// token at position q is in place q % page_size of its page. Pages are those of a window: the first one may begin with
/// cells that no token sees, which hold anything.
///
/// As with `CellLists`, all lists but `pages(row)` lie in the memory of the backend.
class PageLists : public detail::RowLists<detail::PageRows> {
public:
    /// The cells of a page, as given to `CachePass::pages`.
    std::int32_t page_size() const { return own().page_size(); }

    /// The pages of a row, for the host.
    std::span<const std::int32_t> pages(std::int32_t row, Where where = Where::current()) const {
        return own().entries(sequence(row, where));
    }

    /// How many pages each row has.
    std::span<const std::int32_t> counts() const { return column(detail::PageRows::counts); }
    /// How many cells of a row's first page come before the first that is visible.
    std::span<const std::int32_t> first_offsets() const { return column(detail::PageRows::first_offsets); }
    /// How many cells of a row's last page are tokens, from the beginning of the page.
    std::span<const std::int32_t> last_lengths() const { return column(detail::PageRows::last_lengths); }
    /// How many cells a row has from the beginning of its first page: (count - 1) * page_size + last length.
    std::span<const std::int32_t> lengths() const { return column(detail::PageRows::lengths); }

    using RowLists::RowLists; // for cellar itself
};

} // namespace cellar
