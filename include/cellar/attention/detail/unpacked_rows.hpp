// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/attention/detail/code_kernels.hpp>
#include <cellar/attention/detail/code_tile.hpp>
#include <cellar/attention/detail/encoded_rows.hpp>
#include <cellar/attention/detail/row_source.hpp>
#include <cellar/attention/detail/tile.hpp>
#include <cellar/attention/detail/tile_kernels.hpp>
#include <cellar/base/attention_work.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/scratch.hpp>
#include <cellar/element/storage_format.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

namespace cellar::detail {

/// Rows in a format that can be unpacked. A tile of one head is unpacked to codes, which stay in the first cache, and
/// these are multiplied: bytes of keys by queries that are rounded to bytes. Codes that are stored as they are, are
/// read in place, and so are packed ones, of 4 bits or of fp8, if kernels unpack them in registers.
template <class Store>
    requires unpacks_codes<unrotated_format<typename Store::Format>>
class TileRows<EncodedRows<Store>> : public FloatRows {
    using Format = unrotated_format<typename Store::Format>;
    using Code = typename Format::code;
    using Factor = factor_of<Format>;
    using Mapping = std::remove_cvref_t<decltype(std::declval<const Store&>().mapping())>;
    using Units = StoredRows<Mapping, unit_of<Format>>;
    using Scales = StoredRows<Mapping, scale_of<Format>>;
    static constexpr bool of_bytes = std::same_as<Code, std::int8_t>;
    static_assert(values_per_factor<Format>() % dim_unit == 0 || values_per_factor<Format>() == whole_head,
                  "attend: values_per_factor of a format is a multiple of 16, or whole_head");
    static_assert(of_bytes || values_per_factor<Format>() == whole_head,
                  "attend: with codes of half, one factor serves a whole head");

public:
    struct Kernels {
        CodeKernels<Format> codes;
        RowKernels<half> halves;
        RowKernels<float> floats;

        explicit Kernels(Instructions instructions)
            : codes{code_kernels<Format>(instructions)},
              halves{row_kernels<half>(instructions)},
              floats{row_kernels<float>(instructions)} {}
    };

    /// See the one for `StoredRows`.
    TileRows(const EncodedRows<Store>& source, const Kernels& kernels, std::int64_t rows, ScratchArrays& arrays)
        : FloatRows{kernels.floats, source.dim, arrays},
          source_{source},
          kernels_{kernels},
          units_{source.store->mapping(), source.store->data(), source.store->mapping().dim()},
          scales_{scales_of(*source.store)},
          all_groups_{factors_in<Format>(source.store->dim())},
          stride_{padded_codes(source.store->dim())},
          unpacks_{kernels.codes.unpack != nullptr && (!rotates_heads<typename Store::Format> || is_whole(source))},
          in_place_{(stores_codes<Format> || stores_steps<Format>)&&unpacks_ && source.store->dim() % code_unit == 0},
          packed_{kernels.codes.dot_packed != nullptr && unpacks_ && has_whole_units(source.dim)
                  && !source.exact_queries},
          widens_{of_bytes && unpacks_ && source.exact_queries},
          codes_{arrays.take<Code>(in_place_ ? 0 : tile_cells * stride_)},
          scratch_{arrays.take<float>(scratch_rows(all_groups_) * tile_cells)},
          places_{units_},
          scale_places_{scales_} {
        const std::int64_t factors = (has_offsets<Format> ? 2 : 1) * all_groups_ * tile_cells;
        factors_ = arrays.take<float>(factors);
        if constexpr (std::same_as<Factor, float>)
            stored_factors_ = factors_;
        else
            stored_factors_ = arrays.take<Factor>(factors);
        if constexpr (of_bytes) {
            queries_ = {arrays.take<std::int8_t>(rows * stride_ + code_unit), stride_,
                        arrays.take<float>(rows * all_groups_), arrays.take<float>(rows * all_groups_),
                        arrays.take<std::int32_t>(rows * all_groups_)};
        } else if constexpr (looks_up_numbers<Format>) {
            queries_ = {.bytes = arrays.take<std::int8_t>(2 * rows * stride_ + code_unit), .stride = 2 * stride_};
        }
    }

    /// Queries [rows, wide], to where the keys that are found are.
    void rotate_queries(float* q, int rows) const {
        for_each_rotated(q, rows, [](auto rotation, std::span<float> head) { rotation.rotate(head); });
    }
    /// Weighted values [rows, wide], to where values are.
    void undo_rotation(float* values, int rows) const {
        for_each_rotated(values, rows, [](auto rotation, std::span<float> head) { rotation.undo(head); });
    }

    void start_queries(const float* q, int rows, int rows_of_head) {
        q_ = q;
        if ((of_bytes && !widens_) || packed_)
            kernels_.codes.round_queries(q, wide(), rows, std::min(rows_of_head, 4), source_.dim, group(), run(),
                                         queries_);
    }

    void start(const Tile& tile, const Tile* next) {
        places_.start(tile, next);
        if constexpr (has_scale_plane<Format>) scale_places_.start(tile, next);
    }

    void find(const Tile& tile, int head) {
        forget_next();
        if (!unpacks_ || widens_) return find_to_pack(tile, head);
        find_codes(places_.rows(head), scale_places_.rows(head), tile.count);
    }
    /// As floats.
    void find_to_pack(const Tile& tile, int head) {
        if (!unpacks_) return read(source_, tile.cells, tile.count, head);
        widen(places_.rows(head), scale_places_.rows(head), tile.count);
    }
    void find_some(const Cell* cells, int count, int head) {
        forget_next();
        if (!unpacks_) return read(source_, cells, count, head);
        list_rows(cells, count, head);
        widens_ ? widen({some_units_, 0}, {some_scales_, 0}, count)
                : find_codes({some_units_, 0}, {some_scales_, 0}, count);
    }

    FloatRows& read_floats(const Cell* cells, int count, int head) {
        if (unpacks_) {
            list_rows(cells, count, head);
            widen({some_units_, 0}, {some_scales_, 0}, count);
        } else {
            read(source_, cells, count, head);
        }
        undo_rotation(data(), count);
        return *this;
    }
    FetchedRows fetched_after(const Tile* next, int head) {
        const int count = next == nullptr ? 0 : next->count;
        return places_.fetched(places_.rows_after(next, head), count);
    }

    void fetch_after(const Tile* next, int head) {
        after_ = places_.rows_after(next, head);
        cells_after_ = next == nullptr ? 0 : next->count;
        next_ = places_.fetched(after_, cells_after_);
        if constexpr (has_scale_plane<Format>) // few lines
            LinesAhead{scale_places_.fetched(scale_places_.rows_after(next, head), cells_after_), 1}.step();
    }
    /// While there are many queries, unpacking waits for memory: nothing is fetched ahead.
    FetchedRows fetched(const Tile*, int) const { return {}; }
    void fetch_in(SoftmaxStep& step) {
        if (!unpacks_) return;
        const int some = fetched_by_softmax(cells_after_);
        step.fetched = places_.fetched(after_, some);
        next_ = places_.fetched(after_, cells_after_ - some, some);
    }

    void dot(int first, int rows, int count, float* scores) const {
        if (widens_) {
            FloatRows::dot(q_ + first * wide(), rows, count, scores);
        } else if (packed_) {
            const CodeTile<std::int8_t> keys = tile(packed_pointers_);
            kernels_.codes.dot_packed(queries_.from_row(first, of_bytes ? keys.groups : 0), rows, keys, count, scratch_,
                                      scores, next_);
        } else if constexpr (of_bytes) {
            CodeTile<Code> keys = tile(code_pointers_);
            if (keys.groups == 1) keys.dim = padded_codes(keys.dim);
            kernels_.codes.dot(queries_.from_row(first, keys.groups), rows, keys, count, scratch_, scores, next_);
        } else {
            const float* const q = q_ + first * wide();
            if (unpacks_) {
                const HeadRows<half> codes{code_pointers_.rows, 0};
                kernels_.halves.dot(q, wide(), rows, wide(), codes, codes, count, scores);
                kernels_.codes.scale_scores(scores, rows, count, factors_);
            } else {
                FloatRows::dot(q, rows, count, scores);
            }
        }
    }
    void add_values(const float* weights, int rows, int count, float* out) const {
        if (packed_)
            return kernels_.codes.add_packed_values(weights, rows, count, tile(packed_pointers_), scratch_, out, wide(),
                                                    next_);
        if (unpacks_)
            return kernels_.codes.add_values(weights, rows, count, tile(code_pointers_), scratch_, out, wide(), next_);
        FloatRows::add_values(weights, rows, count, out);
    }

private:
    static Scales scales_of(const Store& store) {
        if constexpr (has_scale_plane<Format>) {
            return {store.scales().mapping(), store.scales().data(), store.scales().mapping().dim()};
        } else {
            return {store.mapping(), nullptr, 0};
        }
    }

    // False for values that are the first elements of keys: a rotation mixes all of them, so they are decoded.
    static bool is_whole(const EncodedRows<Store>& source) { return source.dim == source.store->dim(); }

    template <class F>
    void for_each_rotated(float* rows, // NOLINT(readability-non-const-parameter): f writes to them
                          int count, F f) const {
        if constexpr (rotates_heads<typename Store::Format>) {
            if (!unpacks_) return;
            for (int r = 0; r < count; ++r)
                f(typename Store::Format::rotation{},
                  std::span{rows + r * wide(), static_cast<std::size_t>(source_.dim)});
        }
    }

    // False for values that are the first elements of keys and end within what kernels unpack together.
    static bool has_whole_units(std::int64_t dim) {
        return dim % code_unit == 0 && dim % Format::values_per_unit == 0
               && (values_per_factor<Format>() == whole_head || dim % values_per_factor<Format>() == 0);
    }

    // Of codes, as kernels read them: see `Levels`. Bytes have a run of 4.
    int run() const {
        if constexpr (looks_up_codes<Format>)
            if (packed_) return Format::levels.run;
        return 4;
    }

    std::int64_t group() const {
        return values_per_factor<Format>() == whole_head ? source_.dim : values_per_factor<Format>();
    }

    template <class Byte>
    CodeTile<Byte> tile(const RowPointers<Byte>& rows) const {
        return {.rows = rows.rows,
                .factors = looks_up_numbers<Format> && std::same_as<Byte, std::int8_t> ? nullptr : factors_,
                .offsets = has_offsets<Format> ? factors_ + all_groups_ * tile_cells : nullptr,
                .dim = source_.dim,
                .group = group(),
                .groups = (source_.dim + group() - 1) / group(),
                .next_group = in_place_ && stores_steps<Format> ? std::int64_t{sizeof(unit_of<Format>)} : group()};
    }
    void forget_next() {
        next_ = {};
        cells_after_ = 0;
    }
    void list_rows(const Cell* cells, int count, int head) {
        for (int i = 0; i < count; ++i) {
            some_units_[i] = row_of(units_, cells[i], head);
            if constexpr (has_scale_plane<Format>) some_scales_[i] = row_of(scales_, cells[i], head);
        }
    }

    void find_codes(HeadRows<unit_of<Format>> units, HeadRows<scale_of<Format>> scales, int count) {
        if constexpr (looks_up_codes<Format>) {
            if (packed_) return find_nibbles(units, scales, count);
        } else if constexpr (looks_up_numbers<Format>) {
            if (packed_) return find_numbers(units, count);
        }
        unpack(units, scales, count);
    }
    void find_numbers(HeadRows<unit_of<Format>> units, int count) {
        static constexpr std::int8_t zeros[std::size_t{max_encoded_dim}] = {};
        for (int i = 0; i < count; ++i) packed_pointers_.rows[i] = reinterpret_cast<const std::int8_t*>(units[i]);
        std::fill(packed_pointers_.rows + count, std::end(packed_pointers_.rows),
                  zeros); // not the last one again: 0 * infinity counts
    }
    void find_nibbles(HeadRows<unit_of<Format>> units, HeadRows<scale_of<Format>> scales, int count) {
        for (int i = 0; i < count; ++i)
            packed_pointers_.rows[i] = reinterpret_cast<const std::int8_t*>(units[i]->*Format::nibbles);
        packed_pointers_.repeat_last(count);
        constexpr int values = values_of_group<Format>(whole_head); // of a unit, or of a scale
        constexpr std::int64_t factors = factors_in<Format>(values);
        const std::int64_t parts = source_.store->dim() / values;
        for (int i = 0; i < count; ++i) {
            Factor* const to = stored_factors_ + i;
            Factor* const offsets = to + all_groups_ * tile_cells;
            for (std::int64_t part = 0; part < parts; ++part) {
                Factor own[std::size_t{2} * factors] = {};
                unpack_factors<Format>(units[i] + part * (values / Format::values_per_unit),
                                       has_scale_plane<Format> ? scales[i] + part : nullptr, values, own);
                const std::int64_t first = part * factors;
                for (std::int64_t f = 0; f < factors; ++f) to[(first + f) * tile_cells] = own[f];
                if constexpr (has_offsets<Format>)
                    for (std::int64_t f = 0; f < factors; ++f) offsets[(first + f) * tile_cells] = own[factors + f];
            }
        }
        widen_factors(count);
    }
    void unpack(HeadRows<unit_of<Format>> units, HeadRows<scale_of<Format>> scales, int count) {
        if (in_place_) {
            find_in_place(units, scales, count);
        } else {
            for (int i = 0; i < count; ++i) code_pointers_.rows[i] = codes_ + i * stride_;
            if constexpr (!has_scale_plane<Format>) scales = {nullptr, 0};
            Factor* const offsets = stored_factors_ + all_groups_ * tile_cells;
            kernels_.codes.unpack(units, scales, count, source_.store->dim(), codes_, stride_, stored_factors_,
                                  offsets);
        }
        code_pointers_.repeat_last(count);
        widen_factors(count);
    }
    void find_in_place(HeadRows<unit_of<Format>> units, HeadRows<scale_of<Format>> scales, int count) {
        for (int i = 0; i < count; ++i) {
            if constexpr (stores_steps<Format>) code_pointers_.rows[i] = units[i]->steps;
            if constexpr (stores_codes<Format>) code_pointers_.rows[i] = units[i];
        }
        const std::int64_t groups = values_per_factor<Format>() == whole_head ? 1 : all_groups_;
        for (int i = 0; i < count; ++i)
            for (std::int64_t g = 0; g < groups; ++g) {
                Factor& to = stored_factors_[g * tile_cells + i];
                if constexpr (stores_steps<Format>) to = units[i][g].scale;
                if constexpr (stores_codes<Format>) to = scales[i][g];
            }
    }
    // And zeros after those of the cells.
    void widen_factors(int count) {
        const std::int64_t rows = (has_offsets<Format> ? 2 : 1) * all_groups_;
        if (count % dim_unit != 0)
            for (std::int64_t i = 0; i < rows; ++i)
                std::fill_n(stored_factors_ + i * tile_cells + count, dim_unit - count % dim_unit, Factor{});
        if constexpr (!std::same_as<Factor, float>) kernels_.codes.widen_factors(stored_factors_, rows, factors_);
    }

    void widen(HeadRows<unit_of<Format>> units, HeadRows<scale_of<Format>> scales, int count) {
        unpack(units, scales, count);
        kernels_.codes.widen(tile(code_pointers_), count, room_for(count));
    }

    const EncodedRows<Store>& source_;
    const Kernels& kernels_;
    Units units_;
    Scales scales_;
    std::int64_t all_groups_; // of a head
    std::int64_t stride_;
    bool unpacks_;
    bool in_place_;
    bool packed_;                      // kernels unpack in registers
    bool widens_;                      // keys are floats for `dot`, too
    Code* codes_;                      // [tile_cells, stride]
    Factor* stored_factors_ = nullptr; // [groups, tile_cells], and the offsets
    float* factors_ = nullptr;         // the same
    float* scratch_;                   // of kernels
    const float* q_ = nullptr;
    ByteQueries queries_{};
    RowPlaces<Units> places_;
    RowPlaces<Scales> scale_places_;
    const unit_of<Format>* some_units_[tile_cells];
    const scale_of<Format>* some_scales_[tile_cells];
    RowPointers<Code> code_pointers_{};
    RowPointers<std::int8_t> packed_pointers_{};
    HeadRows<unit_of<Format>> after_{}; // what is read next
    int cells_after_ = 0;
    FetchedRows next_{}; // what of that the next kernel fetches
};

} // namespace cellar::detail
