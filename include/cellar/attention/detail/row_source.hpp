// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/attention/detail/tile.hpp>
#include <cellar/attention/detail/tile_kernels.hpp>
#include <cellar/attention/detail/tile_stream.hpp>
#include <cellar/base/ids.hpp>
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

/// Copies a row to floats, and zeros behind it up to a multiple of dim_unit.
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

/// Gives the rows of some cells to the kernels: in place, where these can load them there, else as floats. `Source`:
/// `StoredRows`.
template <class Source>
class TileRows {
    using E = typename Source::element_type;

public:
    /// `floats`: room for tile_cells rows, unless `in_place`.
    TileRows(const Source& source, const RowKernels<E>& own, const RowKernels<float>& as_floats, float* floats)
        : source_{source}, own_{own}, as_floats_{as_floats}, floats_{floats}, in_place_{is_in_place(source, own)} {
        if constexpr (contiguous_heads<typename Source::Mapping>)
            if (source.mapping.heads() > 1) next_head_ = source.mapping(0, 1, 0) - source.mapping(0, 0, 0);
    }

    static bool is_in_place(const Source& source, const RowKernels<E>& own) {
        return contiguous_heads<typename Source::Mapping> && own.dot != nullptr && source.dim % row_unit == 0;
    }

    /// The elements of a row that is converted to floats: a multiple of dim_unit.
    std::int64_t wide() const { return padded_dim(source_.dim); }

    /// The tile whose rows `find` and `fetch_*` find, and the one that follows it, or null.
    void start(const Tile& tile, const Tile* next) {
        if constexpr (contiguous_heads<typename Source::Mapping>) {
            if (!in_place_) return;
            first_.find(source_, tile.cells, tile.count);
            if (next != nullptr) first_of_next_.find(source_, next->cells, next->count);
        }
    }

    /// The tile's rows of one head. None are fetched ahead.
    void find(const Tile& tile, int head) {
        if (!in_place_) return read(tile.cells, tile.count, head);
        rows_ = {first_.rows, head * next_head_};
        next_ = rows_;
    }
    /// The same for some of its cells.
    void find_some(const Cell* cells, int count, int head) {
        if (!in_place_) return read(cells, count, head);
        if constexpr (contiguous_heads<typename Source::Mapping>) {
            for (int i = 0; i < count; ++i) some_.rows[i] = row_of(source_, cells[i], head);
            some_.repeat_last(count);
            rows_ = {some_.rows, 0};
            next_ = rows_;
        }
    }

    /// What the next kernel fetches while it works: what is read next, if all heads go through the tile in turn, in the
    /// order of memory. `next`: null after the last tile.
    void fetch_after(const Tile* next, int head) {
        if (!in_place_) return;
        if constexpr (!contiguous_rows<typename Source::Mapping>) {
            if (head + 1 < source_.mapping.heads()) {
                next_ = {first_.rows, (head + 1) * next_head_};
            } else if (next != nullptr) {
                next_ = {first_of_next_.rows, 0};
            }
        } else if (next != nullptr) {
            fetch_share(*next, head);
        }
    }

    void dot(const float* q, int rows, int count, float* scores) const {
        if (in_place_) return own_.dot(q, wide(), rows, source_.dim, rows_, next_, count, scores);
        as_floats_.dot(q, wide(), rows, wide(), float_rows(), float_rows(), count, scores);
    }
    /// What the softmax fetches for `add_values`.
    void fetch_in(SoftmaxStep& step) {
        if (!in_place_) return;
        step.fetched = fetched(next_, fetched_by_softmax(step.cells));
    }
    /// What kernels of packed rows fetch: the rows of the next tile, for the same head. `next`: null at the end.
    FetchedRows fetched(const Tile* next, int head) {
        if (!in_place_ || next == nullptr) return {};
        return fetched({first_of_next_.rows, head * next_head_}, next->count);
    }
    void add_values(const float* weights, int rows, int count, float* out) const {
        if (in_place_) return own_.add_values(weights, rows, count, rows_, next_, source_.dim, out, wide());
        as_floats_.add_values(weights, rows, count, float_rows(), float_rows(), wide(), out, wide());
    }
    void pack_keys(int count, float* out) const {
        if (in_place_) return own_.pack_keys(rows_, count, source_.dim, out);
        as_floats_.pack_keys(float_rows(), count, wide(), out);
    }
    bool pack_values(int count, float* out) const {
        if (in_place_) return own_.pack_values(rows_, count, source_.dim, out);
        return as_floats_.pack_values(float_rows(), count, wide(), out);
    }

    /// Of the elements that the kernels read.
    int pieces() const { return in_place_ ? pieces_of<E> : pieces_of<float>; }
    bool split_keys(int count, std::byte* out) const {
        if (in_place_) return own_.split_keys(rows_, count, source_.dim, out);
        return as_floats_.split_keys(float_rows(), count, wide(), out);
    }
    bool split_values(int count, std::byte* out) const {
        if (in_place_) return own_.split_values(rows_, count, source_.dim, out);
        return as_floats_.split_values(float_rows(), count, wide(), out);
    }

private:
    HeadRows<float> float_rows() const { return {float_pointers_.rows, 0}; }

    FetchedRows fetched(HeadRows<E> rows, int count) {
        for (int i = 0; i < count; ++i) fetched_[i] = reinterpret_cast<const std::byte*>(rows[i]);
        const std::int64_t bytes = source_.dim * static_cast<std::int64_t>(sizeof(E));
        const auto lines = static_cast<int>((bytes + line_bytes - 1) / line_bytes);
        return {.rows = fetched_, .row_bytes = bytes, .lines = count * lines};
    }

    // The head's share of the rows of a tile, in the order of memory.
    void fetch_share(const Tile& next, int head) {
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
        next_ = {share_.rows, 0};
    }

    // Reads rows as floats.
    void read(const Cell* cells, int count, int head) {
        for (int i = 0; i < count; ++i) {
            read_row(source_, cells[i], head, floats_ + i * wide());
            float_pointers_.rows[i] = floats_ + i * wide();
        }
        float_pointers_.repeat_last(count);
    }

    const Source& source_;
    const RowKernels<E>& own_;
    const RowKernels<float>& as_floats_;
    float* floats_;
    bool in_place_;
    std::ptrdiff_t next_head_ = 0;   // from a row to that of the next head
    RowPointers<E> first_{};         // of the tile, head 0
    RowPointers<E> first_of_next_{}; // of the next one
    RowPointers<E> some_{};          // of some cells of the tile
    RowPointers<E> share_{};         // a head's share of the next one
    RowPointers<float> float_pointers_{};
    HeadRows<E> rows_{};
    HeadRows<E> next_{};
    const std::byte* fetched_[tile_cells];
};

} // namespace cellar::detail
