// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/list_entry.hpp>
#include <cellar/base/reserved_list.hpp>
#include <cellar/book/cell_rows.hpp>
#include <cellar/book/list_rows.hpp>
#include <cellar/book/page_rows.hpp>
#include <cellar/cache/detail/lists_of_backend.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace cellar::detail {

/// A copy of rows in the memory of a backend. There is none for a backend whose memory the host reads and writes.
template <class Backend>
class ListCopy {
public:
    ListCopy(Backend&, ListRows&, const ListColumns&) {}

    void reserve(std::int64_t) {}
    void update(std::span<const Sequence>) {}
    static constexpr ListsOfBackend* lists() { return nullptr; }
};

/// The copy that the kernels of such a backend read. Only what changed since the last update is uploaded: entries of
/// the rows, and of the columns, which have a number for each row of a batch. All of it lies in one block: the columns,
/// the beginnings of the compressed rows, and the table.
template <WritesLists Backend>
class ListCopy<Backend> final : public ListsOfBackend {
public:
    /// What is uploaded at once: rebuilt rows may be long.
    static constexpr std::size_t max_entries = std::size_t{1} << 15;

    ListCopy(Backend& backend, ListRows& rows, const ListColumns& columns)
        : backend_{backend},
          rows_{rows},
          columns_{columns},
          memory_{backend.allocate_indices(0)},
          compressed_{backend.allocate_indices(0)},
          uploaded_(static_cast<std::size_t>(columns.size() + columns.rows() + 1)),
          entries_{max_entries} {
        backend.reserve_entries(max_entries);
    }

    /// Room for the rows as they are, and for that many entries in compressed rows. May throw: then all is right, but
    /// addresses may have changed.
    void reserve(std::int64_t compressed) {
        const std::int64_t size = before_table() + rows_.size();
        if (size > memory_.size()) {
            replace(memory_, size);
            entries_.clear();                                 // of the old memory
            std::fill(uploaded_.begin(), uploaded_.end(), 0); // new memory is zero
            filled_rows_ = 0;
        }
        if (compressed > compressed_.size()) replace(compressed_, std::max(compressed, 2 * compressed_.size()));
    }

    /// Enqueues: uploads what changed in the rows of these sequences, which are those of the columns. Does not allocate
    /// while the rows have not grown. May throw; then the next call uploads it.
    void update(std::span<const Sequence> sequences) {
        reserve(0);
        upload(); // what a call that threw has left: one kernel must not write two values to a place
        sequences_ = sequences;
        for (const Sequence s : sequences) {
            const std::int32_t* const values = rows_.row(0, s.value);
            const std::int64_t first = before_table() + std::int64_t{s.value} * rows_.pitch();
            rows_.for_each_changed(s.value, [&](std::int32_t begin, std::int32_t end) {
                for (std::int32_t i = begin; i < end; ++i) add(first + i, values[i]);
            });
            rows_.note_copied(s.value);
        }
        const std::int64_t n = std::ssize(sequences);
        for (int c = 0; c < columns_.columns(); ++c) {
            const std::int64_t first = columns_.rows() * c;
            for (std::int64_t r = 0; r < n; ++r) set(first + r, columns_[c][r]);
            for (std::int64_t r = n; r < filled_rows_; ++r) set(first + r, 0);
        }
        if (n != filled_rows_) is_compressed_ = false; // more rows may be empty ones
        filled_rows_ = n;
        upload();
    }

    ListsOfBackend* lists() { return this; }

    const std::int32_t* table() const override { return memory_.data() + before_table(); }
    const std::int32_t* column(int c) const override { return memory_.data() + columns_.rows() * c; }

    CompressedLists compressed() override {
        std::int64_t all = 0;
        for (const Sequence s : sequences_) all += rows_.extent(s.value).size();
        expect_indexable(all);
        reserve(all);
        const std::int64_t indptr = columns_.size();
        const CompressedLists lists{{memory_.data() + indptr, sequences_.size() + 1},
                                    {compressed_.data(), static_cast<std::size_t>(all)}};
        if (is_compressed_) return lists;
        std::int32_t end = 0;
        set(indptr, 0);
        for (std::size_t r = 0; r < sequences_.size(); ++r)
            set(indptr + 1 + static_cast<std::int64_t>(r), end += rows_.extent(sequences_[r].value).size());
        upload();
        const auto rows = static_cast<std::int32_t>(sequences_.size());
        backend_.compress_rows({table(), column(0), lists.indptr.data(), compressed_.data(), rows}, all);
        is_compressed_ = true;
        return lists;
    }

private:
    using Buffer = typename Backend::IndexBuffer;

    // Of the block, in whole lines of 64 bytes.
    std::int64_t before_table() const { return (columns_.size() + columns_.rows() + 1 + 15) / 16 * 16; }

    // Enqueued kernels may use the old memory.
    void replace(Buffer& buffer, std::int64_t size) {
        Buffer larger = backend_.allocate_indices(size);
        if (buffer.size() != 0) backend_.fence();
        buffer = std::move(larger);
        is_compressed_ = false;
    }

    void set(std::int64_t place, std::int32_t value) {
        std::int32_t& uploaded = uploaded_[static_cast<std::size_t>(place)];
        if (uploaded == value) return;
        add(place, value);
        uploaded = value;
    }
    void add(std::int64_t place, std::int32_t value) {
        if (entries_.size() == max_entries) upload();
        entries_.push_back({static_cast<std::uint32_t>(place), value});
        is_compressed_ = false;
    }
    void upload() {
        if (entries_.empty()) return;
        backend_.write_entries(std::span<const ListEntry>{entries_.data(), entries_.size()}, memory_.data());
        entries_.clear();
    }

    Backend& backend_;
    ListRows& rows_;
    const ListColumns& columns_;
    std::span<const Sequence> sequences_; // of the rows
    Buffer memory_;
    Buffer compressed_;
    std::vector<std::int32_t> uploaded_; // what the block has before the table
    std::int64_t filled_rows_ = 0;       // columns are zero from here on
    ReservedList<ListEntry> entries_;    // to be uploaded
    bool is_compressed_ = false;
};

/// The lists that paged kernels read.
template <class Backend>
struct ListMemory {
    struct Pages {
        Pages(Backend& backend, std::int32_t sequences, std::int32_t batch, std::int32_t page_size)
            : rows{sequences, batch, page_size}, copy{backend, rows.rows(), rows.columns()} {}

        PageRows rows;
        ListCopy<Backend> copy;
    };

    ListMemory(Backend& backend, std::int32_t sequences, std::int32_t batch)
        : cells{sequences, batch}, copy{backend, cells.rows(), cells.columns()} {}

    CellRows cells;
    ListCopy<Backend> copy;
    std::unique_ptr<Pages> pages; ///< of one page size
};

} // namespace cellar::detail
