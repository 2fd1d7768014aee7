// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The products of kernels_for_codes.hpp for instructions that multiply four codes of each of 16 cells at a time. Codes
// of 4 bits and numbers of 8 bits are unpacked in registers. Included by kernels_for_codes.hpp, with the same macros.
#if defined(CELLAR_KERNELS) && defined(CELLAR_COLUMNS)

namespace cellar::detail::CELLAR_KERNELS {

using Columns = Products::Columns;

inline constexpr std::int32_t lower_four_bits = 0x0f0f0f0f; // of each byte

// Weights of up to four queries, in pairs of two cells: as integers of 16 bits in steps of their own, or as bfloat16.
struct RoundedWeights {
    static constexpr std::ptrdiff_t row = tile_cells / 2;
    std::int32_t pairs[4 * row];
    float steps[4];
};

/// How 16 cells are read, for keys: `values` of each are loaded together, as `steps` vectors with four bytes of each
/// cell. Each of these is unpacked to `parts` vectors, which queries are multiplied by. The values belong to `groups`,
/// 1 or 2, with a factor each.
///
/// And how two neighbouring cells are read, for values: as many of each become pairs, which their weights are
/// multiplied by. `width`: the values of these groups. `Rest`: for what is left of a group at its end.
///
/// Codes of keys become unsigned bytes, which are `Bias` larger, and those of values integers of 16 bits.
template <int Bias, int Groups>
struct CodeColumns {
    using Sums = Columns;
    using Pairs = Products::Pairs;
    using PairSums = Products::Pairs;
    static constexpr int groups = Groups;

    CELLAR_INLINE static Sums start(std::int32_t total) { return Columns{} - Bias * total; }
    CELLAR_INLINE static Sums add(Sums sum, Columns codes, const std::int8_t* q) {
        return Products::add(sum, codes, q);
    }
    CELLAR_INLINE static Floats finish(Sums sum) { return __builtin_convertvector(sum, Floats); }

    /// `weights`: of each group. Of two, the first eight bytes of both cells have the first one.
    CELLAR_INLINE static void add_pairs(const Pairs& codes, const RoundedWeights* weights, std::ptrdiff_t place,
                                        PairSums& sums) {
        Columns both = Columns{} + weights[0].pairs[place];
        if constexpr (groups == 2) both = Products::broadcast(weights[0].pairs + place, weights[1].pairs + place);
        sums.first = Products::add_words(sums.first, codes.first, both);
        sums.second = Products::add_words(sums.second, codes.second, both);
    }
};

/// Bytes.
template <int Values>
struct ByteColumns : CodeColumns<128, 1> {
    static constexpr int values = Values; // 16 or 32
    static constexpr int steps = values / 4;
    static constexpr int parts = 1;
    using Rest = ByteColumns<16>;

    CELLAR_INLINE static std::ptrdiff_t place(const CodeTile<std::int8_t>& tile, std::int64_t group, std::int64_t d) {
        return group * tile.next_group + d;
    }
    CELLAR_INLINE static void load(const std::int8_t* const* rows, std::ptrdiff_t at, Columns* to) {
        Products::columns<Values>(rows, at, to);
    }
    CELLAR_INLINE static void unpack(Columns bytes, Columns* to) {
        to[0] = bytes ^ static_cast<std::int32_t>(0x80808080);
    }

    CELLAR_INLINE static std::int64_t width(const CodeTile<std::int8_t>& tile, std::int64_t group) {
        return group + 1 == tile.groups ? padded_dim(tile.dim) - group * tile.group : tile.group;
    }
    CELLAR_INLINE static Products::Pairs load_pairs(const std::int8_t* const* rows, std::ptrdiff_t at) {
        return Products::pairs<Values>(rows[0] + at, rows[1] + at);
    }
    CELLAR_INLINE static void in_order(const Products::Pairs& sums, Floats* to) { Products::in_order(sums, to); }
    CELLAR_INLINE static void add_unrounded(const float* weights, int rows, int cells,
                                            const CodeTile<std::int8_t>& tile, std::int64_t g, std::int64_t width,
                                            float* scratch, float* out, std::ptrdiff_t stride, LinesAhead& ahead) {
        add_floats(weights, rows, cells, tile.factors + g * tile_cells, tile.rows, place(tile, g, 0), width, scratch,
                   out, stride, ahead);
    }
};

/// Codes of 4 bits: those in the lower and those in the upper bits of four bytes.
template <class Format>
struct NibbleColumns : CodeColumns<LevelsInVectors<Format::levels>::bias, values_per_factor<Format>() == 16 ? 2 : 1> {
    static_assert(Format::values_per_unit % 32 == 0
                      && (values_per_factor<Format>() % 32 == 0
                          || (values_per_factor<Format>() == 16 && Format::levels.run <= 8)),
                  "a format with `levels`: expected units of 32 values or a multiple, and a factor for as many, or for "
                  "16 in runs of 8");
    using Lookup = LevelsInVectors<Format::levels>;
    static constexpr int values = 32;
    static constexpr int steps = 4;
    static constexpr int parts = 2;
    using Rest = NibbleColumns;

    /// Of the byte with value d of a group.
    CELLAR_INLINE static std::ptrdiff_t place(const CodeTile<std::int8_t>& tile, std::int64_t group, std::int64_t d) {
        constexpr std::int64_t of_unit = Format::values_per_unit;
        d += group * tile.group;
        return d / of_unit * std::int64_t{sizeof(unit_of<Format>)} + d % of_unit / 2;
    }
    CELLAR_INLINE static void load(const std::int8_t* const* rows, std::ptrdiff_t at, Columns* to) {
        Products::columns<16>(rows, at, to);
    }
    CELLAR_INLINE static void unpack(Columns bytes, Columns* to) {
        to[0] = Lookup::look_up_unsigned(bytes & lower_four_bits);
        to[1] = Lookup::look_up_unsigned(bytes >> 4 & lower_four_bits);
    }

    CELLAR_INLINE static constexpr int width(const CodeTile<std::int8_t>& /*tile*/, std::int64_t /*group*/) {
        return std::max(values_per_factor<Format>(), 32);
    }
    CELLAR_INLINE static Products::Pairs load_pairs(const std::int8_t* const* rows, std::ptrdiff_t at) {
        const sums::Ints both = Products::zip_bytes(rows[0] + at, rows[1] + at);
        return {Products::words(Lookup::look_up(both & lower_four_bits)),
                Products::words(Lookup::look_up(both >> 4 & lower_four_bits))};
    }
    CELLAR_INLINE static void in_order(const Products::Pairs& sums, Floats* to) {
        Columns ordered[2];
        Lookup::in_order(sums.first, sums.second, ordered);
        to[0] = __builtin_convertvector(ordered[0], Floats);
        to[1] = __builtin_convertvector(ordered[1], Floats);
    }
    CELLAR_KERNEL static void add_unrounded(const float* weights, int rows, int cells,
                                            const CodeTile<std::int8_t>& tile, std::int64_t g, std::int64_t /*width*/,
                                            float* scratch, float* out, std::ptrdiff_t stride, LinesAhead& ahead) {
        constexpr int group = values_per_factor<Format>();
        constexpr int together = std::max(group, 32);
        std::int8_t unpacked[tile_cells + 1][std::size_t{together}];
        const std::int8_t* own[tile_cells + 1];
        for (int c = 0; c <= cells; ++c) {
            own[c] = unpacked[c];
            for (int d = 0; d < together; d += 32)
                CELLAR_LEVELS::unpack<Format::levels>(
                    reinterpret_cast<const std::uint8_t*>(tile.rows[c]) + place(tile, g, d), unpacked[c] + d);
        }
        for (int d = 0; d < together; d += group)
            add_floats(weights, rows, cells, tile.factors + (g + d / group) * tile_cells, own, d, group, scratch,
                       out + d, stride, ahead);
    }
};

/// Values that are numbers of 8 bits, as bfloat16.
template <class Format, int Values = 64>
struct NumberColumns {
    static constexpr int values = Values; // 32 or 64
    static constexpr int groups = 1;
    using Rest = NumberColumns<Format, 32>;
    using Pairs = Bfloat16Products::Zipped;
    struct PairSums {
        Floats of[4];
    };

    static std::ptrdiff_t place(const CodeTile<std::int8_t>& /*tile*/, std::int64_t /*group*/, std::int64_t d) {
        return d;
    }
    CELLAR_INLINE static Pairs load_pairs(const std::int8_t* const* rows, std::ptrdiff_t at) {
        return Bfloat16Products::zip<Format::numbers, Values>(rows[0] + at, rows[1] + at);
    }
    CELLAR_INLINE static void add_pairs(const Pairs& numbers, const RoundedWeights* weights, std::ptrdiff_t place,
                                        PairSums& sums) {
        const Columns both = Columns{} + weights->pairs[place];
        sums.of[0] = Bfloat16Products::add(sums.of[0], numbers.of[0], both);
        sums.of[1] = Bfloat16Products::add(sums.of[1], numbers.of[1], both);
        sums.of[2] = Bfloat16Products::add(sums.of[2], numbers.of[2], both);
        sums.of[3] = Bfloat16Products::add(sums.of[3], numbers.of[3], both);
    }
    CELLAR_INLINE static void in_order(const PairSums& sums, Floats* to) { Bfloat16Products::in_order(sums.of, to); }
};

// The four bytes of a query that a vector of codes is multiplied by: of codes with `Run` (see `Levels`), or bytes, with
// a run of 4.
template <int Run>
CELLAR_INLINE std::uint32_t bytes_of_step(const std::int8_t* row, std::int64_t step) {
    const std::int64_t byte = step / 2 * 4;
    if constexpr (Run == 1) {
        std::uint64_t eight = 0;
        std::memcpy(&eight, row + 2 * byte, sizeof(eight));
        eight = eight >> step % 2 * 8 & 0x00ff00ff00ff00ff;
        eight = (eight | eight >> 8) & 0x0000ffff0000ffff;
        return static_cast<std::uint32_t>(eight | eight >> 16);
    } else {
        std::uint32_t four = 0;
        std::memcpy(&four, row + byte / Run * 2 * Run + byte % Run + step % 2 * Run, sizeof(four));
        return four;
    }
}
template <int Run>
CELLAR_INLINE void store_steps(const std::int8_t* row, std::int64_t steps, std::int64_t next_step, std::int8_t* to) {
    for (std::int64_t s = 0; s < steps; ++s) {
        const std::uint32_t four = bytes_of_step<Run>(row, s);
        std::memcpy(to + s * next_step, &four, sizeof(four));
    }
}

/// See the one of kernels_for_codes.hpp. Rows that are taken together are in blocks, [steps, rows, 4].
CELLAR_KERNEL void round_in_steps(const float* q, std::ptrdiff_t stride, int rows, int together, std::int64_t dim,
                                  std::int64_t group, int run, const ByteQueries& to) {
    std::int8_t row[std::size_t{max_encoded_dim} + code_unit];
    for (int r = 0; r < rows; ++r) {
        round_row(q + r * stride, r, dim, group, code_unit, row, to);
        std::int8_t* const block =
            to.bytes + std::int64_t{r / together} * together * to.stride + std::int64_t{r % together} * 4;
        const std::int64_t steps = padded_dim(dim) / 4;
        const std::int64_t next = std::int64_t{together} * 4;
        if (run == 1) store_steps<1>(row, steps, next, block);
        if (run == 4) store_steps<4>(row, steps, next, block);
        if (run == 8) store_steps<8>(row, steps, next, block);
        if (run == 16) store_steps<16>(row, steps, next, block);
    }
}

/// The same to bfloat16: blocks of [rows, 2, 16], in the order of Bfloat16Products::widen.
CELLAR_KERNEL void round_to_bfloat16(const float* q, std::ptrdiff_t stride, int rows, int together, std::int64_t dim,
                                     std::int64_t /*group*/, int /*run*/, const ByteQueries& to) {
    for (int r = 0; r < rows; ++r) {
        std::int8_t* const row = to.bytes + std::int64_t{r / together} * together * to.stride;
        for (std::int64_t d = 0; d < dim; d += lanes) {
            std::int8_t numbers[2 * lanes];
            Bfloat16Products::store(numbers, load(q + r * stride + d));
            std::int8_t* const block = row + (d / code_unit * together + r % together) * 2 * code_unit + d % code_unit;
            std::memcpy(block, numbers, lanes);
            std::memcpy(block + code_unit, numbers + lanes, lanes);
        }
    }
}

template <class Codes, std::size_t Step, std::size_t Part, std::size_t... Row>
CELLAR_INLINE void add_part(Columns codes, const std::int8_t* q, typename Codes::Sums* sums,
                            std::index_sequence<Row...>) {
    constexpr std::size_t rows = sizeof...(Row);
    constexpr std::size_t first = Step * Codes::groups / Codes::steps * rows;
    constexpr std::size_t nth = Step * Codes::parts + Part;
    ((sums[first + Row] = Codes::add(sums[first + Row], codes, q + (nth * rows + Row) * 4)), ...);
}
template <class Codes, std::size_t Step, class Rows, std::size_t... Part>
CELLAR_INLINE void add_step(Columns bytes, const std::int8_t* q, typename Codes::Sums* sums, Rows rows,
                            std::index_sequence<Part...>) {
    Columns codes[sizeof...(Part)];
    Codes::unpack(bytes, codes);
    (add_part<Codes, Step, Part>(codes[Part], q, sums, rows), ...);
}
template <class Codes, class Rows, std::size_t... Step>
CELLAR_INLINE void add_steps(const Columns* bytes, const std::int8_t* q, typename Codes::Sums* sums, Rows rows,
                             std::index_sequence<Step...>) {
    constexpr std::make_index_sequence<std::size_t{Codes::parts}> parts;
    (add_step<Codes, Step>(bytes[Step], q, sums, rows, parts), ...);
}

template <class Codes, std::size_t... Row>
CELLAR_INLINE void start_group(const ByteQueries& q, std::int64_t groups, std::int64_t g, typename Codes::Sums* sums,
                               std::index_sequence<Row...>) {
    ((sums[Row] = Codes::start(q.totals[std::int64_t{Row} * groups + g])), ...);
}
template <class Codes, std::size_t... Row>
CELLAR_INLINE void finish_group(const ByteQueries& q, const CodeTile<std::int8_t>& keys, int first, std::int64_t g,
                                const typename Codes::Sums* of_group, Floats* sums, std::index_sequence<Row...>) {
    const Floats factor = load(keys.factors + g * tile_cells + first);
    ((sums[Row] += Codes::finish(of_group[Row]) * (factor * broadcast(q.steps[std::int64_t{Row} * keys.groups + g]))),
     ...);
    if (keys.offsets == nullptr) return;
    const Floats offset = load(keys.offsets + g * tile_cells + first);
    ((sums[Row] += offset * broadcast(q.sums[std::int64_t{Row} * keys.groups + g])), ...);
}

// Scores of some queries and of 16 cells.
template <class Codes, std::size_t... Row, std::size_t... Group>
CELLAR_INLINE void dot_columns(const ByteQueries& q, const CodeTile<std::int8_t>& keys, int first, LinesAhead& ahead,
                               float* scores, std::index_sequence<Row...> all, std::index_sequence<Group...>) {
    constexpr std::size_t r = sizeof...(Row);
    constexpr std::int64_t values = Codes::values;
    const std::int64_t of_groups = padded_dim(keys.group) * std::int64_t{sizeof...(Group)};
    const std::int8_t* query = q.bytes;
    Floats sums[r] = {};
    for (std::int64_t g = 0; g < keys.groups; g += std::int64_t{sizeof...(Group)}) {
        typename Codes::Sums of_group[r * sizeof...(Group)];
        (start_group<Codes>(q, keys.groups, g + std::int64_t{Group}, of_group + Group * r, all), ...);
        for (std::int64_t d = 0; d < of_groups; d += values) {
            const std::int8_t* const* rows = keys.rows + first;
            asm("" : "+r"(rows)); // so that pointers stay where they are: there are more than registers
            Columns bytes[Codes::steps];
            Codes::load(rows, Codes::place(keys, g, d), bytes);
            ahead.step();
            add_steps<Codes>(bytes, query, of_group, all, std::make_index_sequence<std::size_t{Codes::steps}>{});
            query += std::int64_t{Codes::steps * Codes::parts * 4} * std::int64_t{r};
        }
        (finish_group<Codes>(q, keys, first, g + std::int64_t{Group}, of_group + Group * r, sums, all), ...);
    }
    (store(scores + std::ptrdiff_t{Row} * tile_cells + first, sums[Row]), ...);
}
template <std::size_t R, class Codes>
CELLAR_KERNEL void dot_rows_in_columns(const ByteQueries& q, const CodeTile<std::int8_t>& keys, int cells,
                                       const FetchedRows& next, float* scores) {
    constexpr std::make_index_sequence<std::size_t{Codes::groups}> groups;
    LinesAhead ahead{next, (cells + lanes - 1) / lanes * (padded_dim(keys.dim) / Codes::values)};
    for (int c = 0; c < cells; c += lanes)
        dot_columns<Codes>(q, keys, c, ahead, scores, std::make_index_sequence<R>{}, groups);
}

/// See `dot_codes` of kernels_for_codes.hpp; `Codes` says what is behind the pointers. With codes of 4 bits, those are
/// the codes of the first unit.
template <class Codes>
CELLAR_KERNEL void dot_in_columns(const ByteQueries& q, int rows, const CodeTile<std::int8_t>& keys, int cells,
                                  float* /*weights*/, float* scores, const FetchedRows& next) {
    if (rows == 1) return dot_rows_in_columns<1, Codes>(q, keys, cells, next, scores);
    if (rows == 2) return dot_rows_in_columns<2, Codes>(q, keys, cells, next, scores);
    for (int r = 0; r < rows; r += 4)
        dot_rows_in_columns<4, Codes>(q.from_row(r, keys.groups), keys, cells, r == 0 ? next : FetchedRows{},
                                      scores + std::ptrdiff_t{r} * tile_cells);
}
/// The same for bytes, with factors for any groups.
CELLAR_KERNEL void dot_bytes(const ByteQueries& q, int rows, const CodeTile<std::int8_t>& keys, int cells,
                             float* weights, float* scores, const FetchedRows& next) {
    if (keys.group % 32 == 0) return dot_in_columns<ByteColumns<32>>(q, rows, keys, cells, weights, scores, next);
    dot_in_columns<ByteColumns<16>>(q, rows, keys, cells, weights, scores, next);
}

// 32 numbers of two cells, multiplied by some queries. `sums`: four for each, of different cells.
template <class Format, std::size_t... Row>
CELLAR_INLINE void add_two_rows(const std::int8_t* first, const std::int8_t* second, const Bfloat16Products::Pairs* q,
                                Floats* sums, std::index_sequence<Row...>) {
    using P = Bfloat16Products;
    const P::Pairs numbers = P::widen<Format::numbers>(P::load_two(first, second));
    ((sums[4 * Row] = P::add(sums[4 * Row], numbers.first, q[Row].first)), ...);
    ((sums[4 * Row] = P::add(sums[4 * Row], numbers.second, q[Row].second)), ...);
}
// Scores of some queries and of eight cells. Each vector holds one of the first four and one of the others.
template <class Format, std::size_t... Row, std::size_t... Cell>
CELLAR_INLINE void dot_eight(const std::int8_t* q, const CodeTile<std::int8_t>& keys, int first, float* scores,
                             std::index_sequence<Row...> all, std::index_sequence<Cell...>) {
    constexpr std::size_t r = sizeof...(Row);
    constexpr std::ptrdiff_t bytes = 2 * code_unit;
    Floats sums[4 * (r + r % 2)] = {};
    const std::int8_t* const* rows = keys.rows + first;
    for (std::int64_t d = 0; d < keys.dim; d += code_unit) {
        const Bfloat16Products::Pairs queries[] = {Bfloat16Products::load_twice(q + std::ptrdiff_t{Row} * bytes)...};
        (add_two_rows<Format>(rows[Cell] + d, rows[Cell + 4] + d, queries, sums + Cell, all), ...);
        q += std::ptrdiff_t{r} * bytes;
    }
    for (std::size_t i = 0; i < r; i += 2) {
        vectors::sum_lanes(sums + 4 * i, std::make_index_sequence<4>{});
        float out[4][4]; // the first four cells of two queries, then the next four
        store(out[0], sums[4 * i]);
        for (std::size_t k = 0; k < 4; ++k)
            if (i + k % 2 < r)
                std::memcpy(scores + (i + k % 2) * tile_cells + first + k / 2 * 4, out[k], sizeof(out[k]));
    }
}
template <std::size_t R, class Format>
CELLAR_KERNEL void dot_rows_of_numbers(const ByteQueries& q, const CodeTile<std::int8_t>& keys, int cells,
                                       const FetchedRows& next, float* scores) {
    constexpr std::make_index_sequence<R> rows;
    constexpr std::make_index_sequence<4> vectors_of_cells;
    LinesAhead ahead{next, (cells + 7) / 8};
    for (int c = 0; c < cells; c += 8) {
        ahead.step();
        dot_eight<Format>(q.bytes, keys, c, scores, rows, vectors_of_cells);
    }
}
/// The same for numbers of 8 bits, and queries that are rounded to bfloat16. Row by row: to order numbers by columns
/// takes longer than to add up lanes.
template <class Format>
CELLAR_KERNEL void dot_numbers(const ByteQueries& q, int rows, const CodeTile<std::int8_t>& keys, int cells,
                               float* /*weights*/, float* scores, const FetchedRows& next) {
    if (rows == 1) return dot_rows_of_numbers<1, Format>(q, keys, cells, next, scores);
    if (rows == 2) return dot_rows_of_numbers<2, Format>(q, keys, cells, next, scores);
    for (int r = 0; r < rows; r += 4)
        dot_rows_of_numbers<4, Format>(q.from_row(r, 0), keys, cells, r == 0 ? next : FetchedRows{},
                                       scores + std::ptrdiff_t{r} * tile_cells);
}

// The weights of a tile, and its factors, relative to the largest one of each row of tile_cells. They are prepared for
// all groups at once, which do not wait for each other.
struct RelativeWeights {
    static constexpr float largest_integer = 32767;
    float* weights; // [rows], in steps
    float* factors; // [groups]
    float* largest; // of each of these rows
    bool weights_fit;

    // `scratch`: see scratch_rows. Behind the cells, weights and factors are 0.
    CELLAR_INLINE static RelativeWeights of(const float* weights, int rows, int cells, const float* factors,
                                            std::int64_t groups, float* scratch) {
        float* const own = scratch + std::ptrdiff_t{max_rows_of_values} * tile_cells;
        float* const of_groups = own + std::ptrdiff_t{max_rows_of_values} * tile_cells;
        float* const largest = of_groups + groups * tile_cells;
        divide(weights, rows, cells, largest_integer, own, largest);
        divide(factors, groups, cells, 1, of_groups, largest + max_rows_of_values);
        bool all_fit = true;
        for (int r = 0; r < rows; ++r) all_fit = all_fit && fits(largest[r]);
        return {own, of_groups, largest, all_fit};
    }
    // False if a factor or a weight is not finite, or if all are so small that integers are no measure for them.
    CELLAR_INLINE bool fit(std::int64_t group) const {
        return weights_fit && fits(largest[max_rows_of_values + group]);
    }
    // To integers: the products of the weights of some rows and of the factors of a group.
    CELLAR_INLINE void round(int first, int rows, std::int64_t group, int cells, RoundedWeights& to) const {
        using Shorts = std::int16_t __attribute__((vector_size(32)));
        const float* const own = factors + group * tile_cells;
        for (int r = 0; r < rows; ++r) {
            to.steps[r] = largest[first + r] * (1 / largest_integer) * largest[max_rows_of_values + group];
            for (int c = 0; c < cells; c += lanes) {
                const Floats weight = load(weights + std::ptrdiff_t{first + r} * tile_cells + c);
                const Floats shifted = weight * load(own + c) + broadcast(12582912.0F);
                const Shorts rounded = __builtin_convertvector(reinterpret_cast<vectors::Ints>(shifted), Shorts);
                std::memcpy(to.pairs + r * RoundedWeights::row + c / 2, &rounded, sizeof(rounded));
            }
        }
    }

private:
    CELLAR_INLINE static bool fits(float largest) { return largest == 0 || (largest > 1e-30F && largest < 1e30F); }
    CELLAR_INLINE static void divide(const float* from, std::int64_t rows, int cells, float most, float* to,
                                     float* largest) {
        for (std::int64_t r = 0; r < rows; ++r) {
            const float* const row = from + r * tile_cells;
            largest[r] = largest_magnitude(row, cells);
            const Floats inverse = broadcast(largest[r] == 0 ? 0.0F : most / largest[r]);
            for (int c = 0; c < cells; c += lanes) store(to + r * tile_cells + c, load(row + c) * inverse);
        }
    }
};

// Weights as bfloat16. There are no factors.
struct Bfloat16Weights {
    const float* weights;

    CELLAR_INLINE void round(int first, int rows, std::int64_t /*group*/, int cells, RoundedWeights& to) const {
        for (int r = 0; r < rows; ++r) {
            to.steps[r] = 1;
            for (int c = 0; c < cells; c += lanes)
                Bfloat16Products::store(to.pairs + r * RoundedWeights::row + c / 2,
                                        load(weights + std::ptrdiff_t{first + r} * tile_cells + c));
        }
    }
};

template <class Codes>
CELLAR_INLINE void add_in_steps(const typename Codes::PairSums& sums, const RoundedWeights* weights, std::size_t row,
                                float* out) {
    Floats values[4];
    Codes::in_order(sums, values);
    store(out, load(out) + values[0] * broadcast(weights[0].steps[row]));
    for (int i = 1; i < Codes::values / lanes; ++i) {
        float* const to = out + std::ptrdiff_t{i} * lanes;
        store(to, load(to) + values[i] * broadcast(weights[Codes::groups - 1].steps[row]));
    }
}
// Of cells c and c + 1.
template <class Codes, std::size_t... Row>
CELLAR_INLINE void add_two(const RoundedWeights* weights, int c, const std::int8_t* const* rows, std::ptrdiff_t at,
                           typename Codes::PairSums* sums, std::index_sequence<Row...>) {
    const auto pairs = Codes::load_pairs(rows + c, at);
    (Codes::add_pairs(pairs, weights, std::ptrdiff_t{Row} * RoundedWeights::row + c / 2, sums[Row]), ...);
}
// `Codes::values` values of each cell. Behind the cells, weights are 0 up to a multiple of 16.
template <class Codes, std::size_t... Row>
CELLAR_INLINE void add_pairs(const RoundedWeights* weights, int cells, const std::int8_t* const* rows,
                             std::ptrdiff_t at, float* out, std::ptrdiff_t stride, LinesAhead& ahead,
                             std::index_sequence<Row...> all) {
    typename Codes::PairSums sums[sizeof...(Row)] = {};
    for (int c = 0; c < cells; c += 4) {
        ahead.step();
        add_two<Codes>(weights, c, rows, at, sums, all);
        add_two<Codes>(weights, c + 2, rows, at, sums, all);
    }
    (add_in_steps<Codes>(sums[Row], weights, Row, out + std::ptrdiff_t{Row} * stride), ...);
}
template <std::size_t R, class Codes>
CELLAR_KERNEL void add_group(const RoundedWeights* weights, int cells, const CodeTile<std::int8_t>& values,
                             std::int64_t g, std::int64_t width, float* out, std::ptrdiff_t stride, LinesAhead& ahead) {
    constexpr std::make_index_sequence<R> rows;
    std::int64_t d = 0;
    for (; d + Codes::values <= width; d += Codes::values)
        add_pairs<Codes>(weights, cells, values.rows, Codes::place(values, g, d), out + d, stride, ahead, rows);
    if constexpr (!std::is_same_v<Codes, typename Codes::Rest>)
        if (d < width)
            add_pairs<typename Codes::Rest>(weights, cells, values.rows, Codes::place(values, g, d), out + d, stride,
                                            ahead, rows);
}

// `width` values of group g, or of as many groups from g on as `Codes` takes together.
template <class Codes, class Weights>
CELLAR_INLINE void add_rounded(const Weights& weights, int rows, int cells, const CodeTile<std::int8_t>& values,
                               std::int64_t g, std::int64_t width, float* out, std::ptrdiff_t stride,
                               LinesAhead& ahead) {
    RoundedWeights rounded[std::size_t{Codes::groups}];
    for (int r = 0; r < rows; r += 4) {
        const int some = std::min(rows - r, 4);
        for (int i = 0; i < Codes::groups; ++i) weights.round(r, some, g + i, cells, rounded[i]);
        float* const to = out + r * stride;
        if (some == 1) add_group<1, Codes>(rounded, cells, values, g, width, to, stride, ahead);
        if (some == 2) add_group<2, Codes>(rounded, cells, values, g, width, to, stride, ahead);
        if (some == 4) add_group<4, Codes>(rounded, cells, values, g, width, to, stride, ahead);
    }
}
template <class Codes>
CELLAR_INLINE LinesAhead lines_ahead(const FetchedRows& next, int rows, int cells, std::int64_t dim) {
    const std::int64_t blocks = std::max<std::int64_t>(1, dim / Codes::values);
    const std::int64_t tiles = std::int64_t{(rows + 3) / 4} * ((cells + 3) / 4);
    return {next, std::max<std::int64_t>(1, tiles * blocks)};
}

/// See `add_codes` of kernels_for_codes.hpp, and `dot_in_columns`. With `ByteColumns<32>`, groups of any size.
///
/// The products of weights and factors are rounded to integers. The error of a sum of values is at most 2^-10 of the
/// largest magnitude that its codes have with the largest factor of the tile.
template <class Codes>
CELLAR_KERNEL void add_in_pairs(const float* weights, int rows, int cells, const CodeTile<std::int8_t>& values,
                                float* scratch, float* out, std::ptrdiff_t stride, const FetchedRows& next) {
    const std::int64_t dim = padded_dim(values.dim);
    LinesAhead ahead = lines_ahead<Codes>(next, rows, cells, dim);
    const RelativeWeights relative = RelativeWeights::of(weights, rows, cells, values.factors, values.groups, scratch);
    for (std::int64_t g = 0; g < values.groups; g += Codes::groups) {
        const std::int64_t first = g * values.group;
        const std::int64_t width = Codes::width(values, g);
        float* const to = out + first;
        if (relative.fit(g) && relative.fit(g + Codes::groups - 1))
            add_rounded<Codes>(relative, rows, cells, values, g, width, to, stride, ahead);
        else
            Codes::add_unrounded(weights, rows, cells, values, g, width, scratch, to, stride, ahead);
        for (std::int64_t i = 0; values.offsets != nullptr && i < Codes::groups; ++i)
            add_offsets(weights, rows, cells, values.offsets + (g + i) * tile_cells, width / Codes::groups,
                        to + i * values.group, stride);
    }
}
/// The same for numbers of 8 bits. Weights are rounded to bfloat16.
template <class Format>
CELLAR_KERNEL void add_numbers(const float* weights, int rows, int cells, const CodeTile<std::int8_t>& values,
                               float* /*scratch*/, float* out, std::ptrdiff_t stride, const FetchedRows& next) {
    using Codes = NumberColumns<Format>;
    LinesAhead ahead = lines_ahead<Codes>(next, rows, cells, values.dim);
    add_rounded<Codes>(Bfloat16Weights{weights}, rows, cells, values, 0, values.dim, out, stride, ahead);
}

} // namespace cellar::detail::CELLAR_KERNELS

#endif
