// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/trivial_list.hpp>
#include <cellar/base/zeroed.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace cellar::detail {

/// The part of a row that is in use.
struct RowExtent {
    std::int32_t begin = 0;
    std::int32_t end = 0;

    std::int32_t size() const { return end - begin; }
};

/// Lists of integers, one row for each sequence, at a fixed distance in one array. A row gets entries at its end and
/// loses them at both ends; what stays is not moved, until the row reaches the end of its room. That is O(1) amortised.
/// Several arrays can share the extents: entry i of a row has one value in each.
///
/// Somebody may keep a copy of the table, with the same pitch. The rows know which of their entries changed since they
/// were copied.
class ListRows {
public:
    ListRows(std::int32_t sequences, int arrays)
        : extents_(static_cast<std::size_t>(sequences)),
          copied_(static_cast<std::size_t>(sequences)),
          memory_(static_cast<std::size_t>(arrays)) {}

    std::int32_t pitch() const { return pitch_; }
    const RowExtent& extent(std::int32_t row) const { return extents_[static_cast<std::size_t>(row)]; }

    const std::int32_t* data(int array) const { return memory_[static_cast<std::size_t>(array)].data(); }
    std::int64_t size() const { return std::int64_t{pitch_} * std::ssize(extents_); }
    std::int32_t start(std::int32_t row) const { return row * pitch_ + extent(row).begin; }

    std::int32_t* row(int array, std::int32_t row) {
        return memory_[static_cast<std::size_t>(array)].data() + std::int64_t{row} * pitch_;
    }

    /// Takes off all entries.
    void clear(std::int32_t r) { own(r) = copied(r) = {}; }

    /// Takes off the entries at `end` and behind. Places are counted in the room of the row.
    void cut(std::int32_t r, std::int32_t end) {
        own(r).end = end;
        copied(r).end = std::min(copied(r).end, end);
    }

    /// Takes off n entries behind the first `kept`. These follow.
    void drop(std::int32_t r, std::int32_t n, std::int32_t kept) {
        if (n == 0) return;
        for (std::size_t a = 0; a < memory_.size(); ++a) {
            std::int32_t* const first = row(static_cast<int>(a), r) + own(r).begin;
            std::copy_backward(first, first + kept, first + kept + n);
        }
        own(r).begin += n;
        copied(r).begin = std::max(copied(r).begin, own(r).begin + kept);
    }

    /// The row has n more entries at its end, for which there is room, and which the caller wrote.
    void append(std::int32_t r, std::int32_t n) { own(r).end += n; }

    /// Calls f(begin, end) for the places whose entries changed since `note_copied`: at most two ranges.
    template <class F>
    void for_each_changed(std::int32_t r, F f) const {
        const RowExtent& now = extent(r);
        const RowExtent& old = copied_[static_cast<std::size_t>(r)];
        if (old.begin >= old.end) return f(now.begin, now.end);
        if (now.begin < old.begin) f(now.begin, old.begin);
        if (old.end < now.end) f(old.end, now.end);
    }
    void note_copied(std::int32_t r) { copied(r) = own(r); }

    /// Gives rows at least this pitch. Copies of them are out of date then. May throw, with nothing changed.
    void reserve(std::int64_t pitch) {
        if (pitch <= pitch_) return;
        const std::int64_t wanted = (pitch + line_entries - 1) / line_entries * line_entries;
        const std::int64_t all = wanted * std::ssize(extents_);
        CELLAR_EXPECTS(all <= INT32_MAX, "lists: rows of ", wanted, " entries for ", std::ssize(extents_),
                       " sequences, expected at most ", INT32_MAX, " entries in all");
        std::vector<ZeroedArray<std::int32_t>> larger(memory_.size());
        for (auto& array : larger) array = ZeroedArray<std::int32_t>{all};
        for (std::size_t a = 0; a < memory_.size(); ++a)
            for (std::int64_t r = 0; r < std::ssize(extents_); ++r) {
                const RowExtent& own = extents_[static_cast<std::size_t>(r)];
                const std::int32_t* const from = memory_[a].data() + r * pitch_;
                std::copy(from + own.begin, from + own.end, larger[a].data() + r * wanted + own.begin);
            }
        memory_ = std::move(larger);
        pitch_ = static_cast<std::int32_t>(wanted);
        std::fill(copied_.begin(), copied_.end(), RowExtent{});
    }

    /// Room for `more` entries at the end of a row. A row that has lost entries at its front moves there, if it then
    /// has a quarter of its room free. May throw, with nothing changed.
    void make_room(std::int32_t r, std::int64_t more) {
        RowExtent& all = own(r);
        if (all.end + more <= pitch_) return;
        const std::int64_t needed = all.size() + more;
        if (needed > pitch_ - pitch_ / 4) reserve(std::max(needed, std::min(2 * needed, most_entries())));
        if (all.end + more <= pitch_) return;
        for (std::size_t a = 0; a < memory_.size(); ++a) {
            std::int32_t* const first = row(static_cast<int>(a), r);
            std::copy(first + all.begin, first + all.end, first);
        }
        all = {0, all.size()};
        copied(r) = {};
    }

private:
    static constexpr std::int64_t line_entries = 16; // in 64 bytes

    // Of a row: all rows have at most INT32_MAX.
    std::int64_t most_entries() const { return INT32_MAX / std::ssize(extents_) / line_entries * line_entries; }

    RowExtent& own(std::int32_t row) { return extents_[static_cast<std::size_t>(row)]; }
    RowExtent& copied(std::int32_t row) { return copied_[static_cast<std::size_t>(row)]; }

    TrivialList<RowExtent> extents_;
    TrivialList<RowExtent> copied_; // the places whose entries are as in the copy
    std::vector<ZeroedArray<std::int32_t>> memory_;
    std::int32_t pitch_ = 0;
};

/// Columns of numbers, one for each row of a batch.
class ListColumns {
public:
    ListColumns(int columns, std::int32_t rows)
        : columns_{columns}, rows_{rows}, numbers_{std::int64_t{columns} * rows} {}

    int columns() const { return columns_; }
    std::int64_t rows() const { return rows_; }
    std::int64_t size() const { return numbers_.size(); }

    std::int32_t* operator[](int column) { return numbers_.data() + rows_ * column; }
    const std::int32_t* operator[](int column) const { return numbers_.data() + rows_ * column; }

private:
    int columns_;
    std::int64_t rows_;
    ZeroedArray<std::int32_t> numbers_;
};

inline void expect_indexable(std::int64_t entries) {
    CELLAR_EXPECTS(entries <= INT32_MAX, "lists: ", entries, " entries in all rows, expected at most ", INT32_MAX);
}

} // namespace cellar::detail
