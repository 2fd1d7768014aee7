// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/book/cell_rows.hpp>
#include <cellar/book/page_rows.hpp>
#include <cellar/cache/compressed_lists.hpp>
#include <cellar/cache/detail/lists_of_backend.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>

namespace cellar::detail {

/// What `CellLists` and `PageLists` have in common: a row of numbers for each sequence of a batch. `Rows` is `CellRows`
/// or `PageRows`.
template <class Rows>
class RowLists {
    static constexpr const char* name = std::same_as<Rows, CellRows> ? "lists" : "pages";

public:
    std::int32_t rows() const { return static_cast<std::int32_t>(cells_->sequences().size()); }

    Sequence sequence(std::int32_t row, const std::source_location& where = std::source_location::current()) const {
        CELLAR_EXPECTS_AT(where, row >= 0 && row < rows(), name, ": row ", row, ", expected 0 to ", rows() - 1);
        return cells_->sequences()[static_cast<std::size_t>(row)];
    }

    std::span<const std::int32_t> indices() const {
        return {in_backend_ == nullptr ? own().rows().data(0) : in_backend_->table(),
                static_cast<std::size_t>(own().rows().size())};
    }
    std::int32_t pitch() const { return own().rows().pitch(); }

    CompressedLists compressed() const {
        if (in_backend_ != nullptr) return in_backend_->compressed();
        const CompressedRows& found = compressed_rows(*rows_);
        const auto size = static_cast<std::size_t>(rows());
        return {{found.indptr.data(), size + 1},
                {found.indices.data(), static_cast<std::size_t>(found.indptr[rows()])}};
    }

protected:
    RowLists(const CellRows& cells, Rows& rows, ListsOfBackend* in_backend)
        : cells_{&cells}, rows_{&rows}, in_backend_{in_backend} {}

    const Rows& own() const { return *rows_; }

    /// A number for each row.
    std::span<const std::int32_t> column(int c) const {
        return {in_backend_ == nullptr ? own().columns()[c] : in_backend_->column(c), static_cast<std::size_t>(rows())};
    }

private:
    const CompressedRows& compressed_rows(CellRows& rows) const { return rows.compressed(); }
    const CompressedRows& compressed_rows(PageRows& rows) const { return rows.compressed(cells_->sequences()); }

    const CellRows* cells_; // the batch's
    Rows* rows_;
    ListsOfBackend* in_backend_; // null if the host's are meant for kernels
};

} // namespace cellar::detail
