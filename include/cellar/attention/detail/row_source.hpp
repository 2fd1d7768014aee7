// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/attention/detail/matrix_unit.hpp>
#include <cellar/attention/detail/tile.hpp>
#include <cellar/attention/detail/tile_kernels.hpp>
#include <cellar/attention/detail/tile_stream.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/scratch.hpp>
#include <cellar/element/convert.hpp>
#include <cellar/layout/mapping.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>

namespace cellar::detail {

/// One row. Only with contiguous heads.
template <class Source>
const auto* row_of(const Source& source, Cell cell, int head) {
    return source.data + source.mapping(cell, head, 0);
}

/// Copies a row to floats, and zeros after it up to a multiple of dim_unit.
template <class Source>
void read_row(const Source& source, Cell cell, int head, float* to) {
    if constexpr (contiguous_heads<typename Source::Mapping>) {
        convert_run(row_of(source, cell, head), to, source.dim);
    } else {
        for (std::int32_t d = 0; d < source.dim; ++d)
            to[d] = static_cast<float>(source.data[source.mapping(cell, head, d)]);
    }
    std::fill(to + source.dim, to + padded_dim(source.dim), 0.0F);
}

/// Pointers to the rows of a tile's cells, for kernels that read a few more than there are: the last one is repeated.
template <class E>
struct RowPointers {
    const E* rows[tile_cells + dim_unit];

    void repeat_last(int count) { std::fill(rows + count, std::end(rows), rows[count - 1]); }

    /// The rows of head 0.
    template <class Source>
    void find(const Source& source, const Cell* cells, int count) {
        for (int i = 0; i < count; ++i) rows[i] = row_of(source, cells[i], 0);
        repeat_last(count);
    }
};

/// Where the rows of a tile lie, and which ones are read after them. Only with contiguous heads.
template <class Source>
class RowPlaces {
    using E = typename Source::element_type;

public:
    explicit RowPlaces(const Source& source) : source_{source} {
        if (source.mapping.heads() > 1) next_head_ = source.mapping(0, 1, 0) - source.mapping(0, 0, 0);
    }

    /// The tile whose rows are found, and the one that follows it, or null.
    void start(const Tile& tile, const Tile* next) {
        first_.find(source_, tile.cells, tile.count);
        if (next != nullptr) first_of_next_.find(source_, next->cells, next->count);
    }

    HeadRows<E> rows(int head) const { return {first_.rows, head * next_head_}; }
    HeadRows<E> rows_of_next(int head) const { return {first_of_next_.rows, head * next_head_}; }

    /// What is read after a head's rows, if all heads go through the tile in turn, in the order of memory. `next`: null
    /// after the last tile.
    HeadRows<E> rows_after(const Tile* next, int head) {
        if constexpr (!contiguous_rows<typename Source::Mapping>) {
            if (head + 1 < source_.mapping.heads()) return rows(head + 1);
            if (next != nullptr) return rows_of_next(0);
        } else {
            if (next != nullptr) return share_of(*next, head);
        }
        return rows(head);
    }

    /// Of cells first, first + 1, ...
    FetchedRows fetched(HeadRows<E> rows, int count, int first = 0) {
        rows = rows + first;
        std::int64_t bytes = source_.dim * static_cast<std::int64_t>(sizeof(E));
        // Then they follow each other in memory, most likely. If not, other rows are prefetched.
        if (count > 0 && rows[count - 1] - rows[0] == (count - 1) * source_.dim) {
            bytes *= count;
            count = 1;
        }
        const std::byte** const list = fetched_ + first; // other cells' rows stay
        for (int i = 0; i < count; ++i) list[i] = reinterpret_cast<const std::byte*>(rows[i]);
        const auto lines = static_cast<int>((bytes + line_bytes - 1) / line_bytes);
        return {.rows = list, .row_bytes = bytes, .lines = count * lines};
    }

private:
    // The head's share of the rows of a tile, in the order of memory.
    HeadRows<E> share_of(const Tile& next, int head) {
        const int heads = source_.mapping.heads();
        int of_cell = head * next.count / heads;
        int of_head = head * next.count % heads;
        for (int i = 0; i < next.count; ++i) {
            share_.rows[i] = first_of_next_.rows[of_cell] + of_head * next_head_;
            if (++of_head == heads) {
                of_head = 0;
                ++of_cell;
            }
        }
        share_.repeat_last(next.count);
        return {share_.rows, 0};
    }

    const Source& source_;
    std::ptrdiff_t next_head_ = 0;   // from a row to that of the next head
    RowPointers<E> first_{};         // of the tile, head 0
    RowPointers<E> first_of_next_{}; // of the next one
    RowPointers<E> share_{};         // a head's share of the next one
    const std::byte* fetched_[tile_cells];
};

/// In place of them, where heads are not contiguous.
template <class Source>
    requires(!contiguous_heads<typename Source::Mapping>)
class RowPlaces<Source> {
    using E = typename Source::element_type;

public:
    explicit RowPlaces(const Source&) {}

    void start(const Tile&, const Tile*) {}
    HeadRows<E> rows(int) const { return {}; }
    HeadRows<E> rows_of_next(int) const { return {}; }
    HeadRows<E> rows_after(const Tile*, int) { return {}; }
    FetchedRows fetched(HeadRows<E>, int, int = 0) { return {}; }
};

/// Rows that kernels read where they lie.
template <class E>
struct PlacedRows {
    const RowKernels<E>& read_by;
    std::int64_t dim;    ///< the elements of a row that kernels read
    std::int64_t stride; ///< of queries and results, in floats: multiple of dim_unit
    HeadRows<E> at{};
    HeadRows<E> after{}; ///< as many, which are read later

    void dot(const float* q, int queries, int count, float* scores) const {
        read_by.dot(q, stride, queries, dim, at, after, count, scores);
    }
    void add_values(const float* weights, int queries, int count, float* out) const {
        read_by.add_values(weights, queries, count, at, after, dim, out, stride);
    }
    void pack_keys(int count, float* out) const { read_by.pack_keys(at, count, dim, out); }
    bool pack_values(int count, float* out) const { return read_by.pack_values(at, count, dim, out); }
    bool split_keys(int count, std::byte* out) const { return read_by.split_keys(at, count, dim, out); }
    bool split_values(int count, std::byte* out) const { return read_by.split_values(at, count, dim, out); }
    static constexpr int pieces() { return pieces_of<E>; }
};

/// Rows that are converted to floats, or decoded, before kernels read them.
class FloatRows : public PlacedRows<float> {
public:
    FloatRows(const RowKernels<float>& of_floats, std::int64_t elements, ScratchArrays& arrays)
        : PlacedRows<float>{of_floats, padded_dim(elements), padded_dim(elements)},
          floats_{arrays.take<float>(tile_cells * stride)} {}
    FloatRows(const FloatRows&) = delete; // `at` points to its list
    FloatRows& operator=(const FloatRows&) = delete;

    /// The elements of a row: a multiple of dim_unit.
    std::int64_t wide() const { return stride; }

    /// The rows of so many cells, [count, wide], to be written.
    float* room_for(int count) {
        for (int i = 0; i < count; ++i) pointers_.rows[i] = floats_ + i * stride;
        pointers_.repeat_last(count);
        at = after = {pointers_.rows, 0};
        return floats_;
    }
    float* data() const { return floats_; }

    template <class Source>
    void read(const Source& source, const Cell* cells, int count, int head) {
        float* const to = room_for(count);
        for (int i = 0; i < count; ++i) read_row(source, cells[i], head, to + i * stride);
    }

private:
    float* floats_; // [tile_cells, wide]
    RowPointers<float> pointers_{};
};

/// Gives the rows of some cells to the kernels: in place, where these can load them there, else as floats. `Source`:
/// `StoredRows`.
template <class Source>
class TileRows {
    using E = typename Source::element_type;

public:
    struct Kernels {
        RowKernels<E> own;
        RowKernels<float> floats;

        explicit Kernels(Instructions instructions)
            : own{row_kernels<E>(instructions)}, floats{row_kernels<float>(instructions)} {}
        Kernels(const RowKernels<E>& of_own, const RowKernels<float>& of_floats) : own{of_own}, floats{of_floats} {}
    };

    /// `rows`: of queries, at most. Without memory, `arrays` count what is needed.
    TileRows(const Source& source, const Kernels& kernels, std::int64_t /*rows*/, ScratchArrays& arrays)
        : source_{source},
          in_place_{is_in_place(source, kernels.own)},
          placed_{kernels.own, source.dim, padded_dim(source.dim)},
          floats_{kernels.floats, source.dim, arrays},
          places_{source} {}

    static bool is_in_place(const Source& source, const RowKernels<E>& own) {
        return contiguous_heads<typename Source::Mapping> && own.dot != nullptr && source.dim % row_unit == 0;
    }

    /// The elements of a row that is converted to floats: a multiple of dim_unit.
    std::int64_t wide() const { return floats_.wide(); }

    /// For formats that rotate heads.
    static void rotate_queries(float* /*q*/, int /*rows*/) {}
    static void undo_rotation(float* /*values*/, int /*rows*/) {}

    /// Queries [rows, wide] that `dot` multiplies, those of a head together.
    void start_queries(const float* q, int /*rows*/, int /*rows_of_head*/) { q_ = q; }

    /// The tile whose rows `find` and `fetch_*` find, and the one that follows it, or null.
    void start(const Tile& tile, const Tile* next) {
        if (in_place_) places_.start(tile, next);
    }

    /// The tile's rows of one head. None are fetched ahead.
    void find(const Tile& tile, int head) {
        if (!in_place_) return floats_.read(source_, tile.cells, tile.count, head);
        placed_.at = placed_.after = places_.rows(head);
    }
    /// The same, for `pack_*` and `split_*`.
    void find_to_pack(const Tile& tile, int head) { find(tile, head); }
    /// The same for some of its cells.
    void find_some(const Cell* cells, int count, int head) {
        if (!in_place_) return floats_.read(source_, cells, count, head);
        if constexpr (contiguous_heads<typename Source::Mapping>) {
            for (int i = 0; i < count; ++i) some_.rows[i] = row_of(source_, cells[i], head);
            some_.repeat_last(count);
            placed_.at = placed_.after = {some_.rows, 0};
        }
    }

    /// The rows of some cells as floats, which may be changed.
    FloatRows& read_floats(const Cell* cells, int count, int head) {
        floats_.read(source_, cells, count, head);
        return floats_;
    }
    /// What follows the rows of a head, to be fetched while they are worked on. `next`: null after the last tile.
    FetchedRows fetched_after(const Tile* next, int head) {
        if (!in_place_ || next == nullptr) return {};
        return places_.fetched(places_.rows_after(next, head), next->count);
    }

    /// What the next kernel fetches while it works. `next`: null after the last tile.
    void fetch_after(const Tile* next, int head) {
        if (in_place_) placed_.after = places_.rows_after(next, head);
    }

    /// Of queries first, first + 1, ...
    void dot(int first, int rows, int count, float* scores) const {
        const float* const q = q_ + first * wide();
        in_place_ ? placed_.dot(q, rows, count, scores) : floats_.dot(q, rows, count, scores);
    }
    /// What the softmax fetches for `add_values`.
    void fetch_in(SoftmaxStep& step) {
        if (in_place_) step.fetched = places_.fetched(placed_.after, fetched_by_softmax(step.cells));
    }
    /// What kernels of packed rows fetch: the rows of the next tile, for the same head. `next`: null at the end.
    FetchedRows fetched(const Tile* next, int head) {
        if (!in_place_ || next == nullptr) return {};
        return places_.fetched(places_.rows_of_next(head), next->count);
    }
    void add_values(const float* weights, int rows, int count, float* out) const {
        in_place_ ? placed_.add_values(weights, rows, count, out) : floats_.add_values(weights, rows, count, out);
    }
    void pack_keys(int count, float* out) const {
        in_place_ ? placed_.pack_keys(count, out) : floats_.pack_keys(count, out);
    }
    bool pack_values(int count, float* out) const {
        return in_place_ ? placed_.pack_values(count, out) : floats_.pack_values(count, out);
    }

    /// Of the elements that the kernels read.
    int pieces() const { return in_place_ ? placed_.pieces() : FloatRows::pieces(); }
    bool split_keys(int count, std::byte* out) const {
        return in_place_ ? placed_.split_keys(count, out) : floats_.split_keys(count, out);
    }
    bool split_values(int count, std::byte* out) const {
        return in_place_ ? placed_.split_values(count, out) : floats_.split_values(count, out);
    }

private:
    const Source& source_;
    bool in_place_;
    PlacedRows<E> placed_; // if they are in place
    FloatRows floats_;     // if they are not
    const float* q_ = nullptr;
    RowPlaces<Source> places_;
    RowPointers<E> some_{}; // of some cells of the tile
};

} // namespace cellar::detail
