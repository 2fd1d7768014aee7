// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/base/compressed_lists.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/list_entry.hpp>
#include <cellar/base/memory_bytes.hpp>
#include <cellar/base/reserved_list.hpp>
#include <cellar/book/list_rows.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace cellar::detail {

/// Rows, and what kernels read of them. If the host reads and writes the memory of the backend, that is the rows
/// themselves.
template <class Rows, class Backend>
class ListMemory {
public:
    template <class... Sizes>
    explicit ListMemory(Backend&, Sizes... sizes) : rows{sizes...} {}
    /// With the object itself, once `reserve(entries, slides)` was called.
    static constexpr std::int64_t bytes_for(std::int32_t sequences, std::int32_t batch, std::int64_t entries,
                                            bool slides) {
        return bytes_of<ListMemory>(1) + Rows::bytes_for(sequences, batch, entries, slides);
    }

    /// Room for rows of that many entries. May throw; all rows stay right.
    void reserve(std::int64_t entries, bool slides) { rows.reserve(entries, slides); }

    /// What kernels read, as the rows are now.
    IndexLists& update() { return rows; }

    Rows rows;
};

/// Else it is a copy in the memory of the backend. Only what changed since the last update is uploaded: entries of the
/// rows, and of the columns. All of it lies in one block: the columns, the beginnings of the compressed rows, and the
/// table.
template <class Rows, WritesLists Backend>
class ListMemory<Rows, Backend> final : public IndexLists {
public:
    /// What is uploaded at once: rebuilt rows may be long.
    static constexpr std::size_t max_entries = std::size_t{1} << 15;

    template <class... Sizes>
    explicit ListMemory(Backend& backend, Sizes... sizes)
        : rows{sizes...},
          backend_{backend},
          memory_{backend.allocate_indices(0)},
          compressed_{backend.allocate_indices(0)},
          uploaded_(static_cast<std::size_t>(numbers_for(rows.batch()))),
          entries_{max_entries} {
        backend.reserve_entries(max_entries);
    }
    /// On the host and on the device.
    static constexpr std::int64_t bytes_for(std::int32_t sequences, std::int32_t batch, std::int64_t entries,
                                            bool slides) {
        const std::int64_t numbers = numbers_for(batch);
        return bytes_of<ListMemory>(1) + Rows::bytes_for(sequences, batch, entries, slides)
               + bytes_of<ListEntry>(max_entries)
               + bytes_of<std::int32_t>(numbers + whole_line(numbers) + entries * batch
                                        + Rows::entries_of_table(sequences, entries, slides));
    }

    /// May throw: then all is right, but addresses may have changed.
    void reserve(std::int64_t entries, bool slides) {
        rows.reserve(entries, slides);
        make_room(entries * rows.batch());
    }

    /// Enqueues: uploads what changed in the rows of the batch. Does not allocate while the rows have not grown. May
    /// throw; then the next call uploads it.
    IndexLists& update() {
        make_room(0);
        upload(); // what a call that threw has left: one kernel must not write two values to a place
        for (const Sequence s : rows.sequences()) {
            const std::int32_t* const values = rows.table() + rows.place(s);
            const std::int64_t first = before_table() + rows.place(s);
            rows.for_each_changed(s, [&](std::int32_t begin, std::int32_t end) {
                for (std::int32_t i = begin; i < end; ++i) add(first + i, values[i]);
            });
            rows.note_copied(s);
        }
        const std::int64_t n = std::ssize(rows.sequences());
        for (int c = 0; c < Rows::columns; ++c) {
            const std::int64_t first = rows.batch() * c;
            for (std::int64_t r = 0; r < n; ++r) set(first + r, rows.column(c)[r]);
            for (std::int64_t r = n; r < filled_rows_; ++r) set(first + r, 0);
        }
        if (n != filled_rows_) is_compressed_ = false; // more rows may be empty ones
        filled_rows_ = n;
        upload();
        return *this;
    }

    const std::int32_t* table() const override { return memory_.data() + before_table(); }
    const std::int32_t* column(int c) const override { return memory_.data() + rows.batch() * c; }

    CompressedLists compressed() override {
        const std::span<const Sequence> sequences = rows.sequences();
        const std::int64_t all = rows.batch_entries();
        make_room(all);
        const CompressedLists lists{{memory_.data() + indptr(), sequences.size() + 1},
                                    {compressed_.data(), static_cast<std::size_t>(all)}};
        if (is_compressed_) return lists;
        std::int64_t place = indptr(); // which has 0
        std::int32_t end = 0;
        for (const Sequence s : sequences) set(++place, end += rows.extent(s).size());
        upload();
        const auto n = static_cast<std::int32_t>(sequences.size());
        backend_.compress_rows({table(), column(Rows::starts), lists.indptr.data(), compressed_.data(), n}, all);
        is_compressed_ = true;
        return lists;
    }

    Rows rows;

private:
    using Buffer = typename Backend::IndexBuffer;

    // Places in the block; the table begins with a line of 64 bytes.
    std::int64_t indptr() const { return rows.batch() * Rows::columns; }
    std::int64_t before_table() const { return whole_line(std::ssize(uploaded_)); }
    static constexpr std::int64_t whole_line(std::int64_t numbers) { return (numbers + 15) / 16 * 16; }
    // The columns, and the beginnings of the compressed rows.
    static constexpr std::int64_t numbers_for(std::int64_t batch) { return (Rows::columns + 1) * batch + 1; }

    // For the rows as they are, and for that many entries in compressed rows.
    void make_room(std::int64_t compressed) {
        const std::int64_t size = before_table() + rows.size();
        if (size > memory_.size()) {
            replace(memory_, size);
            entries_.clear();                                 // of the old memory
            std::fill(uploaded_.begin(), uploaded_.end(), 0); // new memory is zero
            filled_rows_ = 0;
        }
        if (compressed > compressed_.size()) replace(compressed_, std::max(compressed, 2 * compressed_.size()));
    }

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
    Buffer memory_;
    Buffer compressed_;
    std::vector<std::int32_t> uploaded_; // what the block has before the table
    std::int64_t filled_rows_ = 0;       // columns are zero from here on
    ReservedList<ListEntry> entries_;    // to be uploaded
    bool is_compressed_ = false;
};

} // namespace cellar::detail
