// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/attention_work.hpp>
#include <cellar/base/function.hpp>
#include <cellar/base/head_parts.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/last_where.hpp>
#include <cellar/base/score.hpp>
#include <cellar/kernel/attention.hpp>
#include <cellar/kernel/divisor.hpp>
#include <cellar/kernel/staged_rows.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace cellar::detail::kernel {

/// The sizes of a call of attention, and of the shared memory of its teams.
struct AttentionTileShape {
    std::int32_t key_dim;
    std::int32_t value_dim;
    std::int32_t rows; ///< the most of a block

    CELLAR_FUNCTION static constexpr std::int32_t in_fours(std::int32_t dim) { return (dim + 3) / 4 * 4; }

    // Four more, so that neighbouring rows begin in different banks.
    CELLAR_FUNCTION std::int64_t query_pitch() const { return in_fours(key_dim) + 4; }
    CELLAR_FUNCTION std::int64_t value_pitch() const { return in_fours(value_dim) + 4; }
    static constexpr std::int64_t score_pitch = StagedTile::cells + 4;

    /// Bytes of a team. The first 16 are for alignment.
    CELLAR_FUNCTION std::int64_t bytes() const { return fixed_bytes + rows * row_bytes(); }
    CELLAR_FUNCTION std::int64_t row_bytes() const {
        return 4 * (query_pitch() + value_pitch() + score_pitch + 4) + std::int64_t{sizeof(VisibleRange)};
    }
    static constexpr std::int64_t fixed_bytes =
        16 + std::int64_t{4} * StagedTile::cells * StagedTile::pitch + std::int64_t{12} * StagedTile::cells + 16;
};

/// Attention of a block of rows over a part of its cells, by a team of threads. The team goes through the cells a tile
/// at a time: it copies the tile's keys to its shared memory, multiplies them by all rows, and does the same with the
/// values. So each key and value is read once for all rows of the block. Every number is computed by one thread in a
/// fixed order, whatever the team's size.
///
/// A league has a team for each item and head of the keys. A block of one part goes to the results, other parts go to
/// partial results that `JoinParts` joins.
template <class Keys, class Values, class Q, class Out, class Team>
class AttendTiles {
public:
    Keys keys;
    Values values;
    AttentionRows<const Q> q;
    AttentionCall<Out> call;
    const VisibleRun* seen_runs;
    TokenTree tree;
    std::int32_t sinks; ///< positions that every token sees
    AttentionTileShape shape;
    RowFactors factors;

    CELLAR_FUNCTION void operator()(const Team& team) const {
        const auto [item, head] = call.heads.divide(team.league_rank());
        const AttentionBlock& block = block_of<&AttentionBlock::first_item>(call.blocks, call.block_count, item);
        const Shared shared = divide(team.team_shmem().get_shmem(shape.bytes()));
        const std::int32_t part = item - block.first_item;
        const std::int32_t begin = part * block.part_cells;
        const std::int32_t end = block.cells - begin < block.part_cells ? block.cells : begin + block.part_cells;
        read_queries(team, block, head, shared);
        if constexpr (are_rotated<Keys>) {
            team.team_barrier();
            rotate_rows<Keys, false>(team, shared.queries, block.rows, shape.query_pitch(), shape.key_dim, shared);
        }
        for (std::int32_t first = begin; first < end; first += tile_size) {
            find_cells(team, block, first, first == begin ? -1 : block.number(first - 1), end, shared);
            team.team_barrier();
            add_tile(team, block, head, end - first < tile_size ? end - first : tile_size, shared);
        }
        team.team_barrier();
        if constexpr (are_rotated<Values>)
            rotate_rows<Values, true>(team, shared.values, block.rows, shape.value_pitch(), shape.value_dim, shared);
        if (block.parts == 1) {
            write_results(team, block, head, shared);
        } else {
            write_part(team, block, part, head, shared);
        }
    }

private:
    static constexpr int tile_size = StagedTile::cells;
    static constexpr std::int64_t score_pitch = AttentionTileShape::score_pitch;
    static constexpr int few_rows = 16; ///< with which each thread takes one key, so that more threads work
    static constexpr float hidden = -1; ///< the weight of a cell that a row does not see
    using Four = StagedTile::Four;

    struct SeenTile {
        int count;   ///< of cells
        bool by_all; ///< all rows see all of them
    };

    struct Shared {
        StagedTile tile;
        float* queries;
        float* values;
        float* scores; ///< then the weights; hidden cells have a negative one
        float* largest;
        float* sums;
        float* factors; ///< by which a tile scales what was summed before
        HeadRule* of_rows;
        VisibleRange* rows;
        std::int32_t* positions;
        std::int32_t* in_batch;  ///< the token of the batch in a cell; -1: none. Only with a tree.
        std::int32_t* last_runs; ///< of the last cell of this tile and of the one before
    };

    CELLAR_FUNCTION Shared divide(void* memory) const {
        auto* next = static_cast<std::byte*>(memory);
        next += (16 - reinterpret_cast<std::uintptr_t>(memory) % 16) % 16;
        Shared shared;
        shared.tile.rows = take<float>(next, tile_size * StagedTile::pitch);
        shared.queries = take<float>(next, shape.rows * shape.query_pitch());
        shared.values = take<float>(next, shape.rows * shape.value_pitch());
        shared.scores = take<float>(next, shape.rows * score_pitch);
        shared.rows = take<VisibleRange>(next, shape.rows);
        shared.largest = take<float>(next, shape.rows);
        shared.sums = take<float>(next, shape.rows);
        shared.factors = take<float>(next, shape.rows);
        shared.of_rows = take<HeadRule>(next, shape.rows);
        shared.tile.list = take<Cell>(next, tile_size);
        shared.positions = take<std::int32_t>(next, tile_size);
        shared.in_batch = take<std::int32_t>(next, tile_size);
        shared.last_runs = take<std::int32_t>(next, 2);
        return shared;
    }
    template <class T>
    CELLAR_FUNCTION static T* take(std::byte*& next, std::int64_t n) {
        T* const first = reinterpret_cast<T*>(next);
        next += n * static_cast<std::int64_t>(sizeof(T));
        return first;
    }

    CELLAR_FUNCTION void read_queries(const Team& team, const AttentionBlock& block, int head,
                                      const Shared& shared) const {
        const int thread = team.team_rank();
        const int threads = team.team_size();
        for (int row = 0; row < block.rows; ++row) {
            const VisibleRange& token = call.token(block, row);
            const int of_query = call.query_head(block, head, row);
            float* const query = shared.queries + row * shape.query_pitch();
            for (int d = thread; d < shape.query_pitch(); d += threads)
                query[d] =
                    d < shape.key_dim ? static_cast<float>(q(token.token, of_query, d)) * key_factor(head, d) : 0;
            float* const sums = shared.values + row * shape.value_pitch();
            for (int d = thread; d < shape.value_pitch(); d += threads) sums[d] = 0;
            if (row % threads != thread) continue;
            shared.rows[row] = token;
            shared.largest[row] = no_score();
            shared.sums[row] = 0;
            shared.of_rows[row] = call.rule.of_head(of_query);
        }
    }

    // What an element of keys or values was divided by. Elements that are stored as they are were not.
    CELLAR_FUNCTION float key_factor(int head, std::int32_t d) const {
        return !are_units<Keys> || factors.keys == nullptr ? 1 : factors.keys[std::int64_t{head} * shape.key_dim + d];
    }
    CELLAR_FUNCTION float value_factor(int head, std::int32_t d) const {
        return !are_units<Values> || factors.values == nullptr ? 1 : factors.values[head * factors.value_pitch + d];
    }

    // Rotates queries to where the keys are, or undoes the rotation of weighted values: as many rows at a time as the
    // tile has room for.
    template <class Rows, bool Undoes>
    // NOLINTNEXTLINE(readability-non-const-parameter): rotates them in place
    CELLAR_FUNCTION void rotate_rows(const Team& team, float* floats, int count, std::int64_t pitch, std::int32_t dim,
                                     const Shared& shared) const {
        using Rotation = typename Rows::Format::rotation;
        constexpr std::int32_t size = Rotation::values_per_rotation;
        const int most = static_cast<int>(tile_size * StagedTile::pitch / pitch);
        for (int row = 0; row < count; row += most) {
            const int some = count - row < most ? count - row : most;
            HeadParts parts{floats + row * pitch, some * (dim / size), dim / size, static_cast<std::int32_t>(pitch),
                            size};
            HeadParts free = parts;
            free.values = shared.tile.rows;
            Undoes ? Rotation::undo(team, parts, free) : Rotation::rotate(team, parts, free);
        }
    }

    // Cells [first, first + tile_size) of those that the block visits, as far as `end`. The search begins with the run
    // of the cell before, whose number is `before`. A run has at least one cell.
    CELLAR_FUNCTION void find_cells(const Team& team, const AttentionBlock& block, std::int32_t first,
                                    std::int32_t before, std::int32_t end, const Shared& shared) const {
        const int tile = first / tile_size;
        const std::int32_t begun = before < 0 ? block.first_run : shared.last_runs[(tile + 1) % 2];
        const std::int32_t begun_at = before < 0 ? 0 : before;
        for (int i = team.team_rank(); i < tile_size && first + i < end; i += team.team_size()) {
            const std::int32_t number = block.number(first + i);
            const std::int32_t further = number - begun_at;
            const std::int32_t left = block.first_run + block.runs - begun;
            const auto begins = [&](std::int32_t run) { return seen_runs[begun + run].first <= number; };
            const std::int32_t run = begun + last_where(further + 1 < left ? further + 1 : left, begins);
            const Cell cell = seen_runs[run].cell + (number - seen_runs[run].first);
            shared.tile.list[i] = cell;
            shared.positions[i] = seen_runs[run].position + (number - seen_runs[run].first);
            if (tree.parents != nullptr) shared.in_batch[i] = tree.token_in(cell);
            if (i == tile_size - 1) shared.last_runs[tile % 2] = run;
        }
    }

    CELLAR_FUNCTION void add_tile(const Team& team, const AttentionBlock& block, int head, int count,
                                  const Shared& shared) const {
        const bool all_seen = tree.parents == nullptr && shared.positions[count - 1] < block.see_to
                              && (shared.positions[0] >= block.see_from || shared.positions[count - 1] < sinks);
        const SeenTile seen{count, all_seen};
        for (std::int32_t d = 0; d < shape.key_dim; d += StagedTile::dims) {
            shared.tile.stage(team, keys, shape.key_dim, head, d, count);
            team.team_barrier();
            const bool few = block.rows < few_rows;
            few ? add_scores<1>(team, block.rows, d, seen, shared) : add_scores<2>(team, block.rows, d, seen, shared);
            team.team_barrier();
        }
        find_largest(team, block.rows, shared);
        shared.tile.stage(team, values, shape.value_dim, head, 0, count);
        team.team_barrier();
        find_weights(team, block.rows, all_seen, shared);
        team.team_barrier();
        add_sums(team, block.rows, count, shared);
        for (std::int32_t d = 0; d < shape.value_dim; d += StagedTile::dims) {
            if (d != 0) {
                shared.tile.stage(team, values, shape.value_dim, head, d, count);
                team.team_barrier();
            }
            all_seen ? add_values<false>(team, block.rows, d, count, shared)
                     : add_values<true>(team, block.rows, d, count, shared);
            team.team_barrier();
        }
    }

    // Threads take four rows at a time, and the last ones singly.
    CELLAR_FUNCTION static int row_groups(int rows) { return rows / 4 + rows % 4; }
    CELLAR_FUNCTION static int first_row(int rows, int group) {
        return group < rows / 4 ? 4 * group : rows - row_groups(rows) + group;
    }

    // Adds the products of elements [d, d + dims) of queries and keys. With the last ones, sums become scores. Each
    // thread takes N keys at a time.
    template <int N>
    CELLAR_FUNCTION void add_scores(const Team& team, int rows, std::int32_t d, SeenTile seen,
                                    const Shared& shared) const {
        constexpr int across = tile_size / N;
        for (int i = team.team_rank(); i < row_groups(rows) * across; i += team.team_size()) {
            const int row = first_row(rows, i / across);
            i / across < rows / 4 ? add_scores_of<4, N>(row, i % across, d, seen, shared)
                                  : add_scores_of<1, N>(row, i % across, d, seen, shared);
        }
    }

    template <int M, int N>
    CELLAR_FUNCTION void add_scores_of(int row, int key, std::int32_t d, SeenTile seen, const Shared& shared) const {
        constexpr int across = tile_size / N;
        const std::int32_t left = shape.key_dim - d;
        const float* const queries = shared.queries + row * shape.query_pitch() + d;
        float* const scores = shared.scores + row * score_pitch + key;
        float sums[std::size_t{M}][std::size_t{N}];
        for (int m = 0; m < M; ++m)
            for (int n = 0; n < N; ++n) sums[m][n] = d == 0 ? 0 : scores[m * score_pitch + std::int64_t{n} * across];
        for (int at = 0; at < left && at < StagedTile::dims; at += 4) {
            Four of_keys[std::size_t{N}];
            for (int n = 0; n < N; ++n) of_keys[n] = shared.tile.four(key + n * across, at);
            for (int m = 0; m < M; ++m) {
                const Four query = four(queries + m * shape.query_pitch() + at);
                for (int n = 0; n < N; ++n)
                    for (int e = 0; e < 4; ++e) sums[m][n] += query.v[e] * of_keys[n].v[e];
            }
        }
        for (int m = 0; m < M; ++m)
            for (int n = 0; n < N; ++n)
                scores[m * score_pitch + std::int64_t{n} * across] =
                    left <= StagedTile::dims ? score(sums[m][n], row + m, key + n * across, seen, shared) : sums[m][n];
    }

    CELLAR_FUNCTION float score(float dot, int row, int cell, SeenTile seen, const Shared& shared) const {
        if (cell >= seen.count || !(seen.by_all || sees(row, cell, shared))) return no_score();
        return call.rule.score(dot, shared.rows[row].position - shared.positions[cell], shared.of_rows[row]);
    }

    CELLAR_FUNCTION bool sees(int row, int cell, const Shared& shared) const {
        const VisibleRange& token = shared.rows[row];
        if (!token.sees(shared.positions[cell], sinks)) return false;
        return tree.parents == nullptr || shared.in_batch[cell] < 0
               || tree.is_in_branch(shared.in_batch[cell], token.token);
    }

    CELLAR_FUNCTION void find_largest(const Team& team, int rows, const Shared& shared) const {
        for (int row = team.team_rank(); row < rows; row += team.team_size()) {
            const float* const scores = shared.scores + row * score_pitch;
            const float before = shared.largest[row];
            float largest = before;
            for (int i = 0; i < tile_size; ++i) largest = scores[i] > largest ? scores[i] : largest;
            shared.largest[row] = largest;
            shared.factors[row] = before == largest ? 1 : expf(before - largest);
        }
    }

    // A cell that is seen may have the score of a hidden one: with keys that are infinite, or with a steep slope.
    CELLAR_FUNCTION void find_weights(const Team& team, int rows, bool all_seen, const Shared& shared) const {
        const float unseen = all_seen ? 0 : hidden;
        for (int i = team.team_rank(); i < rows * tile_size; i += team.team_size()) {
            const int row = i / tile_size;
            float& score = shared.scores[row * score_pitch + i % tile_size];
            score = score == no_score() ? unseen : expf(score - shared.largest[row]);
        }
    }

    CELLAR_FUNCTION void add_sums(const Team& team, int rows, int count, const Shared& shared) const {
        for (int row = team.team_rank(); row < rows; row += team.team_size()) {
            const float* const weights = shared.scores + row * score_pitch;
            float sum = shared.sums[row] * shared.factors[row];
            for (int i = 0; i < count; ++i) sum += weights[i] < 0 ? 0 : weights[i];
            shared.sums[row] = sum;
        }
    }

    // Adds the weighted elements [d, d + dims) of values. If some cells are hidden from some rows, these do not touch
    // them: 0 * infinity is not a number.
    template <bool Hides>
    CELLAR_FUNCTION void add_values(const Team& team, int rows, std::int32_t d, int count, const Shared& shared) const {
        constexpr int across = StagedTile::dims / 4;
        for (int i = team.team_rank(); i < row_groups(rows) * across; i += team.team_size()) {
            const int at = i % across * 4;
            if (d + at >= shape.value_dim) continue;
            const int row = first_row(rows, i / across);
            i / across < rows / 4 ? add_values_of<4, Hides>(row, d, at, count, shared)
                                  : add_values_of<1, Hides>(row, d, at, count, shared);
        }
    }

    template <int M, bool Hides>
    CELLAR_FUNCTION void add_values_of(int row, std::int32_t d, int at, int count, const Shared& shared) const {
        const float* const weights = shared.scores + row * score_pitch;
        float* const sums = shared.values + row * shape.value_pitch() + d + at;
        Four sum[std::size_t{M}];
        for (int m = 0; m < M; ++m) {
            sum[m] = four(sums + m * shape.value_pitch());
            for (int e = 0; e < 4; ++e) sum[m].v[e] *= shared.factors[row + m];
        }
        for (int cell = 0; cell < count; ++cell) {
            const Four value = shared.tile.four(cell, at);
            for (int m = 0; m < M; ++m) {
                const float weight = weights[m * score_pitch + cell];
                if (Hides && weight < 0) continue;
                for (int e = 0; e < 4; ++e) sum[m].v[e] += weight * value.v[e];
            }
        }
        for (int m = 0; m < M; ++m) *reinterpret_cast<Four*>(sums + m * shape.value_pitch()) = sum[m];
    }

    CELLAR_FUNCTION static Four four(const float* at) { return *reinterpret_cast<const Four*>(at); }

    CELLAR_FUNCTION void write_results(const Team& team, const AttentionBlock& block, int head,
                                       const Shared& shared) const {
        for (int row = 0; row < block.rows; ++row) {
            const float* const weighted = shared.values + row * shape.value_pitch();
            call.write(team, shared.rows[row].token, call.query_head(block, head, row),
                       {shared.largest[row], shared.sums[row]},
                       [&](int d) { return weighted[d] * value_factor(head, d); });
        }
    }

    CELLAR_FUNCTION void write_part(const Team& team, const AttentionBlock& block, std::int32_t part, int head,
                                    const Shared& shared) const {
        for (int row = 0; row < block.rows; ++row) {
            const std::int64_t at = block.partial_row(part, head, call.heads.value(), row);
            const float* const sums = shared.values + row * shape.value_pitch();
            for (int d = team.team_rank(); d < shape.value_dim; d += team.team_size())
                call.partial.values[at * shape.value_dim + d] = sums[d] * value_factor(head, d);
            if (team.team_rank() == 0) call.partial.sums[at] = {shared.largest[row], shared.sums[row]};
        }
    }
};

} // namespace cellar::detail::kernel
