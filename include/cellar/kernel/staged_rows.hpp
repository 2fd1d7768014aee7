// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/kernel/pack.hpp>
#include <cellar/layout/mapping.hpp>
#include <cellar/layout/stored_units.hpp>

#include <cstddef>
#include <cstdint>

namespace cellar::detail::kernel {

/// `StoredRows`, and whether they are read in packs.
template <class Rows>
struct PackedRows : Rows {
    static constexpr int width = 16 / static_cast<int>(sizeof(typename Rows::element_type)); ///< of a pack

    bool in_packs; ///< rows consist of whole, aligned packs
};

template <class Rows>
PackedRows<Rows> packed_rows(const Rows& rows) {
    constexpr int width = PackedRows<Rows>::width;
    return {rows, contiguous_heads<typename Rows::Mapping> && rows.mapping.dim() % width == 0 && rows.dim % width == 0
                      && is_aligned_for_packs<width>(rows.data)};
}

/// Units need no such choice.
template <class F, class Mapping>
const StoredUnits<F, Mapping>& packed_rows(const StoredUnits<F, Mapping>& rows) {
    return rows;
}

/// True if rows are stored in units.
template <class Rows>
inline constexpr bool are_units = false;
template <class F, class Mapping>
inline constexpr bool are_units<StoredUnits<F, Mapping>> = true;

/// True if rows are read as heads that were rotated.
template <class Rows>
inline constexpr bool are_rotated = false;
template <class F, class Mapping>
inline constexpr bool are_rotated<StoredUnits<F, Mapping>> = rotates_heads<F>;

/// A part of the rows of some cells, as floats in the shared memory of a team.
struct StagedTile {
    static constexpr int cells = 64;
    static constexpr int dims = 64;
    static constexpr std::int64_t pitch = dims + 4; ///< so that fours of neighbouring rows lie in different banks

    /// What a thread loads from shared memory at once.
    struct alignas(16) Four {
        float v[4];
    };

    float* rows; ///< [cells, pitch]
    Cell* list;  ///< the cells

    CELLAR_FUNCTION Four four(int cell, int d) const { return *reinterpret_cast<const Four*>(rows + cell * pitch + d); }

    /// Copies elements [first, first + dims) of the `dim` ones of one head. Elements after the last one are zero, and
    /// so are cells after the first `count`. The team's threads divide the work; a barrier must follow.
    template <class Team, class F, class Mapping>
    CELLAR_FUNCTION void stage(const Team& team, const StoredUnits<F, Mapping>& from, std::int32_t dim, int head,
                               std::int32_t first, int count) const {
        constexpr std::int32_t unit = values_per_unit<F>;
        constexpr std::int32_t step = unit >= 4 ? unit : 4 / unit * unit; // so that a thread has some loads in flight
        const std::int32_t end = first + dims < dim ? first + dims : dim;
        const std::int32_t begin = first / step * step; // a unit may begin before, and end after
        const std::int32_t across = (end - begin + step - 1) / step;
        for (std::int32_t i = team.team_rank(); i < cells * across; i += team.team_size()) {
            const std::int32_t cell = i / across;
            const std::int32_t value = begin + i % across * step;
            float values[std::size_t{step}] = {};
            for (std::int32_t k = 0; k < step; k += unit)
                if (cell < count && value + k < end) from.decode(list[cell], head, value + k, values + k);
            for (std::int32_t k = 0; k < step; ++k)
                if (value + k >= first && value + k < end) rows[cell * pitch + value + k - first] = values[k];
        }
        const std::int32_t rest = first + dims - end;
        for (std::int32_t i = team.team_rank(); i < cells * rest; i += team.team_size())
            rows[i / rest * pitch + end - first + i % rest] = 0;
    }
    template <class Team, class Rows>
    CELLAR_FUNCTION void stage(const Team& team, const Rows& from, std::int32_t /*dim*/, int head, std::int32_t first,
                               int count) const {
        if constexpr (contiguous_heads<typename Rows::Mapping>)
            if (from.in_packs) return stage_packs(team, from, head, first, count);
        stage_elements(team, from, head, first, count);
    }

private:
    static constexpr int in_flight = 4; ///< loads of a thread before it stores

    template <class Team, class Rows>
    CELLAR_FUNCTION void stage_packs(const Team& team, const Rows& from, int head, std::int32_t first,
                                     int count) const {
        using E = typename Rows::element_type;
        constexpr int width = Rows::width;
        constexpr int across = dims / width;
        const int threads = team.team_size();
        for (int i = team.team_rank(); i < cells * across; i += in_flight * threads) {
            Pack<E, width> packs[std::size_t{in_flight}] = {};
            for (int k = 0; k < in_flight; ++k) {
                const int cell = (i + k * threads) / across;
                const std::int32_t d = first + (i + k * threads) % across * width;
                if (cell < count && d < from.dim)
                    packs[k] =
                        *reinterpret_cast<const Pack<E, width>*>(from.data + from.mapping(list[cell], head, 0) + d);
            }
            for (int k = 0; k < in_flight && i + k * threads < cells * across; ++k) {
                const std::int64_t of_cell = (i + k * threads) / across * pitch;
                const int at = (i + k * threads) % across * width;
                for (int e = 0; e < width; ++e) rows[of_cell + at + e] = static_cast<float>(packs[k].elements[e]);
            }
        }
    }

    // Neighbouring threads read neighbours of a row, or else neighbouring cells.
    template <class Team, class Rows>
    CELLAR_FUNCTION void stage_elements(const Team& team, const Rows& from, int head, std::int32_t first,
                                        int count) const {
        constexpr bool along_row = contiguous_heads<typename Rows::Mapping>;
        for (int i = team.team_rank(); i < cells * dims; i += team.team_size()) {
            const int cell = along_row ? i / dims : i % cells;
            const int d = along_row ? i % dims : i / cells;
            const bool exists = cell < count && first + d < from.dim;
            rows[cell * pitch + d] =
                exists ? static_cast<float>(from.data[from.mapping(list[cell], head, first + d)]) : 0.0F;
        }
    }
};

} // namespace cellar::detail::kernel
