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
class ListRows {
public:
    ListRows(std::int32_t sequences, int arrays)
        : extents_(static_cast<std::size_t>(sequences)), memory_(static_cast<std::size_t>(arrays)) {}

    std::int32_t pitch() const { return pitch_; }
    const RowExtent& extent(std::int32_t row) const { return extents_[static_cast<std::size_t>(row)]; }
    RowExtent& extent(std::int32_t row) { return extents_[static_cast<std::size_t>(row)]; }

    const std::int32_t* data(int array) const { return memory_[static_cast<std::size_t>(array)].data(); }
    std::int64_t size() const { return std::int64_t{pitch_} * std::ssize(extents_); }
    std::int32_t start(std::int32_t row) const { return row * pitch_ + extent(row).begin; }

    std::int32_t* row(int array, std::int32_t row) {
        return memory_[static_cast<std::size_t>(array)].data() + std::int64_t{row} * pitch_;
    }

    /// Gives rows at least this pitch. May throw, with nothing changed.
    void reserve(std::int64_t pitch) {
        if (pitch <= pitch_) return;
        constexpr std::int64_t line = 16; // entries in 64 bytes
        const std::int64_t wanted = (pitch + line - 1) / line * line;
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
    }

    /// Room for `more` entries at the end of a row. A row that has lost entries at its front moves there, if it then
    /// has a quarter of its room free. May throw, with nothing changed.
    void make_room(std::int32_t r, std::int64_t more) {
        RowExtent& own = extent(r);
        if (own.end + more <= pitch_) return;
        const std::int64_t needed = own.size() + more;
        if (needed > pitch_ - pitch_ / 4) reserve(2 * needed);
        if (own.end + more <= pitch_) return;
        for (std::size_t a = 0; a < memory_.size(); ++a) {
            std::int32_t* const first = row(static_cast<int>(a), r);
            std::copy(first + own.begin, first + own.end, first);
        }
        own = {0, own.size()};
    }

private:
    TrivialList<RowExtent> extents_;
    std::vector<ZeroedArray<std::int32_t>> memory_;
    std::int32_t pitch_ = 0;
};

} // namespace cellar::detail
