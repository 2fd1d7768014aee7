// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/base/head_parts.hpp>
#include <cellar/base/view.hpp>
#include <cellar/element/storage_format.hpp>
#include <cellar/kernel/divisor.hpp>
#include <cellar/kernel/kernel.hpp>
#include <cellar/layout/stored_units.hpp>

#include <cstdint>

// Heads in units, by teams of threads: each has the values of some heads in its shared memory.

namespace cellar::detail::kernel {

/// The heads of a launch, and how a team encodes and decodes some of them.
template <class Units>
class UnitHeads {
    using Format = typename Units::Format;
    using Stored = unrotated_format<Format>;
    static constexpr std::int32_t values_per_unit = Stored::values_per_unit;
    static constexpr std::int32_t most_values = 4096; ///< of a team
    static constexpr std::int32_t many_teams = 256;

public:
    static constexpr bool rotates = rotates_heads<Format>;

    /// `cells`: those of the launch, `count` in all.
    UnitHeads(const Units& units, CellList cells, std::int32_t count)
        : units_{units},
          cells_{cells},
          heads_of_cell_{units.mapping.heads()},
          dim_{units.head_dim()},
          part_{part_of(units.head_dim())},
          group_{values_of_group<Stored>(units.head_dim())},
          heads_{count * units.mapping.heads()},
          at_once_{at_once(heads_, units.head_dim())} {}

    std::int32_t teams() const { return (heads_ + at_once_ - 1) / at_once_; }

    /// Of shared memory.
    CELLAR_FUNCTION std::int64_t bytes() const { return (rotates ? 8 : 4) * floats(); }

    CELLAR_FUNCTION std::int32_t dim() const { return dim_.value(); }

    /// A head of a team's.
    struct Head {
        std::int64_t row; ///< index of its cell in the list
        Cell cell;
        std::int32_t head;
    };
    CELLAR_FUNCTION std::int32_t count(std::int32_t team) const {
        const std::int32_t left = heads_ - team * at_once_;
        return left < at_once_ ? left : at_once_;
    }
    CELLAR_FUNCTION Head head(std::int32_t team, std::int32_t i) const {
        const auto [row, head] = heads_of_cell_.divide(team * at_once_ + i);
        return {row, static_cast<Cell>(cells_(row)), head};
    }

    /// Where the value of a team's heads is in shared memory: after each part is a gap, so that threads with one part
    /// each use different banks.
    CELLAR_FUNCTION float& value(float* shared, std::int32_t head, std::int32_t d) const {
        const std::int32_t at = head * dim_.value() + d;
        return shared[at + part_.divide(at).quotient];
    }

    /// Between barriers. All threads of the team decode all units into shared memory.
    template <class Team>
    CELLAR_FUNCTION void decode(const Team& team, float* shared) const {
        const std::int32_t rank = team.league_rank();
        const std::int32_t values = count(rank) * dim_.value();
        for (std::int32_t at = team.team_rank() * values_per_unit; at < values;
             at += team.team_size() * values_per_unit) {
            const auto [i, d] = dim_.divide(at);
            const Head of = head(rank, i);
            units_.decode(of.cell, of.head, d, &value(shared, i, d));
        }
        team.team_barrier();
        if constexpr (rotates) Format::rotation::undo(team, parts(shared, rank), parts(shared + floats(), rank));
    }
    /// After a barrier.
    template <class Team>
    CELLAR_FUNCTION void encode(const Team& team, float* shared) const {
        const std::int32_t rank = team.league_rank();
        if constexpr (rotates) Format::rotation::rotate(team, parts(shared, rank), parts(shared + floats(), rank));
        const std::int32_t values = count(rank) * dim_.value();
        for (std::int32_t at = team.team_rank() * group_; at < values; at += team.team_size() * group_) {
            const auto [i, d] = dim_.divide(at);
            const Head of = head(rank, i);
            auto* const units = units_.units(of.cell, of.head) + d / values_per_unit;
            const float* const from = &value(shared, i, d);
            if constexpr (has_scale_plane<Format>) {
                Stored::encode_group(from, group_, units, units_.scale(of.cell, of.head, d));
            } else {
                Stored::encode_unit(from, *units);
            }
        }
    }

private:
    static std::int32_t at_once(std::int32_t heads, std::int32_t dim) {
        const std::int32_t few = heads / many_teams;
        const std::int32_t most = most_values / dim;
        return few > most ? most : few < 1 ? 1 : few;
    }

    // Those that are encoded together, but not single values.
    static std::int32_t part_of(std::int32_t dim) {
        const std::int32_t part = values_of_part<Format>(dim);
        return part == 1 ? dim : part;
    }

    // Of a team's heads, with the gaps.
    CELLAR_FUNCTION std::int64_t floats() const {
        const std::int32_t values = at_once_ * dim_.value();
        return values + part_.divide(values).quotient;
    }
    CELLAR_FUNCTION HeadParts parts(float* shared, std::int32_t rank) const {
        constexpr std::int32_t size = values_per_rotation<Format>;
        return {shared, count(rank) * dim_.value() / size, part_.value() / size, part_.value() + 1, size};
    }

    Units units_;
    CellList cells_;
    Divisor heads_of_cell_;
    Divisor dim_;
    Divisor part_;
    std::int32_t group_;
    std::int32_t heads_;
    std::int32_t at_once_; // heads of a team
};

/// Encodes row i, divided by the factors, into cell cells(i). All cells are different.
template <class Units, class Team>
struct EncodeHeads {
    UnitHeads<Units> heads;
    StridedView<const float, 3> rows; ///< [tokens, heads, dim]
    const float* factors;             ///< [heads, dim]; null: none

    CELLAR_FUNCTION void operator()(const Team& team) const {
        auto* const shared = static_cast<float*>(team.team_shmem().get_shmem(heads.bytes()));
        const std::int32_t rank = team.league_rank();
        for (std::int32_t i = 0; i < heads.count(rank); ++i) {
            const auto of = heads.head(rank, i);
            const float* const own = factors == nullptr ? nullptr : factors + std::int64_t{of.head} * heads.dim();
            for (std::int32_t d = team.team_rank(); d < heads.dim(); d += team.team_size())
                heads.value(shared, i, d) =
                    own == nullptr ? rows(of.row, of.head, d) : rows(of.row, of.head, d) / own[d];
        }
        team.team_barrier();
        heads.encode(team, shared);
    }
};

/// Decodes cell cells(i) into row i, multiplied by the factors.
template <class Units, class Team>
struct DecodeHeads {
    UnitHeads<Units> heads;
    StridedView<float, 3> rows; ///< [cells, heads, dim]
    const float* factors;       ///< [heads, dim]; null: none

    CELLAR_FUNCTION void operator()(const Team& team) const {
        auto* const shared = static_cast<float*>(team.team_shmem().get_shmem(heads.bytes()));
        const std::int32_t rank = team.league_rank();
        heads.decode(team, shared);
        for (std::int32_t i = 0; i < heads.count(rank); ++i) {
            const auto of = heads.head(rank, i);
            const float* const own = factors == nullptr ? nullptr : factors + std::int64_t{of.head} * heads.dim();
            for (std::int32_t d = team.team_rank(); d < heads.dim(); d += team.team_size())
                rows(of.row, of.head, d) =
                    own == nullptr ? heads.value(shared, i, d) : heads.value(shared, i, d) * own[d];
        }
    }
};

/// Decodes keys, rotates them in float, and encodes them again.
template <class Units, class Rotation, class Factor, class Team>
struct RotateHeads {
    UnitHeads<Units> heads;
    Rotation rotation;
    const Factor* factors; ///< of all pairs

    CELLAR_FUNCTION void operator()(const Team& team) const {
        auto* const shared = static_cast<float*>(team.team_shmem().get_shmem(heads.bytes()));
        heads.decode(team, shared);
        for (std::int32_t i = 0; i < heads.count(team.league_rank()); ++i)
            for (int pair = team.team_rank(); pair < rotation.pairs(); pair += team.team_size())
                rotation.rotate(heads.value(shared, i, rotation.first(pair)),
                                heads.value(shared, i, rotation.second(pair)), factors[pair]);
        team.team_barrier();
        heads.encode(team, shared);
    }
};

} // namespace cellar::detail::kernel
