// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/compressed_lists.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/memory_bytes.hpp>
#include <cellar/base/trivial_list.hpp>
#include <cellar/base/zeroed.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <new>
#include <span>
#include <utility>

namespace cellar::detail {

/// A table of integers for kernels, in host memory or in that of a backend.
class IndexLists {
public:
    virtual const std::int32_t* table() const = 0;
    /// One number for each row of the batch.
    virtual const std::int32_t* column(int c) const = 0;
    /// The rows of the batch. A backend enqueues the copy. May throw, with nothing changed.
    virtual CompressedLists compressed() = 0;

protected:
    ~IndexLists() = default;
};

/// The part of a row that is in use.
struct RowExtent {
    std::int32_t begin = 0;
    std::int32_t end = 0;

    std::int32_t size() const { return end - begin; }
};

/// Lists of integers, one row for each sequence, at a fixed distance in one table. A row gets entries at its end and
/// loses them at both ends; what stays is not moved, until the row reaches the end of its room. That is O(1) amortised.
/// Several tables share the extents: entry i of a row has one value in each. Kernels read the first table.
///
/// A batch has rows of its sequences, with a number in each column: where the row starts in the table, how many entries
/// it has, and others.
///
/// Somebody may keep a copy of the first table, with the same pitch. The rows know which of their entries changed since
/// they were copied.
///
/// `State`: what a class that derives from it notes for each row.
template <class State, std::size_t Tables, int Columns>
class ListRows : public IndexLists {
public:
    enum Column { starts, counts };
    static constexpr int columns = Columns;

    /// `batch`: rows of one batch at most.
    ListRows(std::int32_t sequences, std::int32_t batch)
        : rows_(static_cast<std::size_t>(sequences)),
          batch_{batch},
          numbers_{std::int64_t{Columns} * batch},
          indptr_{std::int64_t{batch} + 1} {
        sequences_.reserve(static_cast<std::size_t>(batch));
    }
    /// Once `reserve(entries, slides)` was called.
    static constexpr std::int64_t bytes_for(std::int32_t sequences, std::int32_t batch, std::int64_t entries,
                                            bool slides) {
        return bytes_of<Row>(sequences) + bytes_of<Sequence>(batch)
               + bytes_of<std::int32_t>((Columns + 1 + entries) * batch + 1
                                        + std::int64_t{Tables} * entries_of_table(sequences, entries, slides));
    }
    /// Of one table then.
    static constexpr std::int64_t entries_of_table(std::int32_t sequences, std::int64_t entries, bool slides) {
        return sequences * whole_lines(room_for(entries, slides));
    }
    ListRows(const ListRows&) = delete;
    ListRows& operator=(const ListRows&) = delete;

    std::int32_t pitch() const { return pitch_; }
    std::int64_t size() const { return std::int64_t{pitch_} * std::ssize(rows_); }
    const RowExtent& extent(Sequence s) const { return row(s).own; }
    /// The place of a sequence's row in the table.
    std::int64_t place(Sequence s) const { return std::int64_t{s.value} * pitch_; }
    std::span<const std::int32_t> entries(Sequence s, std::size_t table = 0) const {
        return {room(s, table) + extent(s).begin, static_cast<std::size_t>(extent(s).size())};
    }

    /// The rows of the batch.
    std::span<const Sequence> sequences() const { return {sequences_.data(), sequences_.size()}; }
    std::int64_t batch() const { return batch_; }

    const std::int32_t* table() const override { return memory_.front().data(); }
    const std::int32_t* column(int c) const override { return numbers_.data() + batch_ * c; }
    CompressedLists compressed() override {
        if (!is_compressed_) {
            reserve_compressed(batch_entries());
            std::int32_t* next = indptr_.data();
            std::int32_t end = 0;
            for (const Sequence s : sequences_) {
                const std::span<const std::int32_t> row = entries(s);
                std::copy(row.begin(), row.end(), indices_.data() + end);
                *++next = end += extent(s).size();
            }
            is_compressed_ = true;
        }
        const std::size_t n = sequences_.size();
        return {{indptr_.data(), n + 1}, {indices_.data(), static_cast<std::size_t>(indptr_[std::ssize(sequences_)])}};
    }

    /// Of all rows of the batch.
    std::int64_t batch_entries() const {
        std::int64_t all = 0;
        for (const Sequence s : sequences_) all += extent(s).size();
        if (all > INT32_MAX) throw std::bad_alloc{}; // of the 32 bits in which kernels count
        return all;
    }

    /// Calls f(begin, end) for the places in the row of s whose entries changed since `note_copied`: at most two
    /// ranges.
    template <class F>
    void for_each_changed(Sequence s, F f) const {
        const RowExtent& now = row(s).own;
        const RowExtent& old = row(s).copied;
        if (old.begin >= old.end) return f(now.begin, now.end);
        if (now.begin < old.begin) f(now.begin, old.begin);
        if (old.end < now.end) f(old.end, now.end);
    }
    void note_copied(Sequence s) { copied(s) = own(s); }

    /// A batch without rows.
    void clear_batch() {
        sequences_.clear();
        is_compressed_ = false;
    }

    /// Room for rows of that many entries, which lose some at the front if the lists slide. May throw; all rows stay
    /// right.
    void reserve(std::int64_t entries, bool slides) {
        reserve_pitch(room_for(entries, slides));
        reserve_compressed(entries * batch_);
    }

protected:
    ~ListRows() = default;

    State& state(Sequence s) { return row(s).state; }

    /// The row of s is the next one of the batch. `more`: for the columns after `counts`.
    void add_to_batch(Sequence s, std::initializer_list<std::int32_t> more = {}) {
        std::int64_t at = std::ssize(sequences_);
        numbers_[at] = static_cast<std::int32_t>(place(s)) + extent(s).begin;
        numbers_[at += batch_] = extent(s).size();
        for (const std::int32_t n : more) numbers_[at += batch_] = n;
        sequences_.push_back(s);
    }

    /// The room of a row, in which places are counted.
    std::int32_t* room(Sequence s, std::size_t table) { return memory_[table].data() + place(s); }
    const std::int32_t* room(Sequence s, std::size_t table) const { return memory_[table].data() + place(s); }

    /// Takes off all entries.
    void clear(Sequence s) { own(s) = copied(s) = {}; }

    /// Takes off the entries from `end` on.
    void cut(Sequence s, std::int32_t end) {
        own(s).end = end;
        copied(s).end = std::min(copied(s).end, end);
    }

    /// Removes n entries after the first `kept`, which move up.
    void drop(Sequence s, std::int32_t n, std::int32_t kept = 0) {
        if (n == 0) return;
        for (std::size_t t = 0; t < Tables; ++t) {
            std::int32_t* const first = room(s, t) + own(s).begin;
            std::copy_backward(first, first + kept, first + kept + n);
        }
        own(s).begin += n;
        copied(s).begin = std::max(copied(s).begin, own(s).begin + kept);
    }

    /// The row has n more entries at its end, for which there is room, and which the caller wrote.
    void append(Sequence s, std::int32_t n) { own(s).end += n; }

    /// Room for `more` entries at the end of a row. A row that has lost entries at its front moves there, if it then
    /// has a quarter of its room free. May throw, with nothing changed.
    void make_room(Sequence s, std::int64_t more) {
        RowExtent& all = own(s);
        if (all.end + more <= pitch_) return;
        const std::int64_t needed = all.size() + more;
        if (needed > pitch_ - pitch_ / 4) reserve_pitch(std::max(needed, std::min(2 * needed, most_entries())));
        if (all.end + more <= pitch_) return;
        for (std::size_t t = 0; t < Tables; ++t) std::copy(room(s, t) + all.begin, room(s, t) + all.end, room(s, t));
        all = {0, all.size()};
        copied(s) = {};
    }

private:
    struct Row {
        RowExtent own;
        RowExtent copied; ///< the places whose entries are as in the copy
        State state;
    };

    static constexpr std::int64_t line_entries = 16; // in 64 bytes

    static constexpr std::int64_t whole_lines(std::int64_t entries) {
        return (entries + line_entries - 1) / line_entries * line_entries;
    }
    // A row that loses entries at its front moves once it reaches its end.
    static constexpr std::int64_t room_for(std::int64_t entries, bool slides) { return slides ? 2 * entries : entries; }

    // Of a row: all rows have at most INT32_MAX.
    std::int64_t most_entries() const { return INT32_MAX / std::ssize(rows_) / line_entries * line_entries; }

    // Gives rows at least this pitch. Copies of them are out of date then. May throw, with nothing changed.
    void reserve_pitch(std::int64_t pitch) {
        if (pitch <= pitch_) return;
        const std::int64_t wanted = whole_lines(pitch);
        const std::int64_t rows = std::ssize(rows_);
        if (wanted * rows > INT32_MAX) throw std::bad_alloc{};
        std::array<ZeroedArray<std::int32_t>, Tables> larger;
        for (ZeroedArray<std::int32_t>& table : larger) table = ZeroedArray<std::int32_t>{wanted * rows};
        for (std::size_t t = 0; t < Tables; ++t)
            for (Sequence s{0}; s.value < rows; ++s.value)
                std::copy(room(s, t) + own(s).begin, room(s, t) + own(s).end,
                          larger[t].data() + s.value * wanted + own(s).begin);
        memory_ = std::move(larger);
        pitch_ = static_cast<std::int32_t>(wanted);
        for (Row& row : rows_) row.copied = {};
    }

    void reserve_compressed(std::int64_t entries) {
        if (entries > indices_.size()) indices_ = ZeroedArray<std::int32_t>{std::max(entries, 2 * indices_.size())};
    }

    Row& row(Sequence s) { return rows_[static_cast<std::size_t>(s.value)]; }
    const Row& row(Sequence s) const { return rows_[static_cast<std::size_t>(s.value)]; }
    RowExtent& own(Sequence s) { return row(s).own; }
    RowExtent& copied(Sequence s) { return row(s).copied; }

    TrivialList<Row> rows_;
    std::array<ZeroedArray<std::int32_t>, Tables> memory_; // the tables
    std::int32_t pitch_ = 0;
    std::int64_t batch_;
    ZeroedArray<std::int32_t> numbers_; // the columns
    TrivialList<Sequence> sequences_;
    ZeroedArray<std::int32_t> indptr_; // of the compressed rows
    ZeroedArray<std::int32_t> indices_;
    bool is_compressed_ = false;
};

} // namespace cellar::detail
