// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The products of kernels_for_codes.hpp for instructions that multiply four codes of each of 16 cells at a time. Codes
// of 4 bits and numbers of 8 bits are unpacked in registers. Included by kernels_for_codes.hpp, with the same macros.
#if defined(CELLAR_KERNELS) && defined(CELLAR_COLUMNS)

namespace cellar::detail::CELLAR_KERNELS {

using Columns = Products::Columns;

inline constexpr std::int32_t lower_four_bits = 0x0f0f0f0f; // of each byte

/// How 16 cells are read: `values` of each are loaded together, as `steps` vectors with four bytes of each cell. Each
/// of these is unpacked to `parts` vectors, which queries are multiplied by. `steps_of_group` of them share a factor.
///
/// Codes become unsigned bytes, which are `Bias` larger.
template <int Bias>
struct CodeColumns {
    using Sums = Columns;

    CELLAR_INLINE static Sums start(std::int32_t total) { return Columns{} - Bias * total; }
    template <std::size_t Part>
    CELLAR_INLINE static Sums add(Sums sum, Columns codes, const std::int8_t* q) {
        return Products::add(sum, codes, q);
    }
    CELLAR_INLINE static Floats finish(Sums sum) { return __builtin_convertvector(sum, Floats); }
};

/// Bytes.
template <int Values>
struct ByteColumns : CodeColumns<128> {
    static constexpr int values = Values; // 16 or 32
    static constexpr int steps = values / 4;
    static constexpr int parts = 1;
    static constexpr int steps_of_group = steps;

    CELLAR_INLINE static std::ptrdiff_t place(const CodeTile<std::int8_t>& keys, std::int64_t group, std::int64_t d) {
        return group * keys.next_group + d;
    }
    CELLAR_INLINE static void load(const std::int8_t* const* rows, std::ptrdiff_t at, Columns* to) {
        Products::columns<Values>(rows, at, to);
    }
    CELLAR_INLINE static void unpack(Columns bytes, Columns* to) {
        to[0] = bytes ^ static_cast<std::int32_t>(0x80808080);
    }
};

/// Codes of 4 bits: those in the lower and those in the upper bits of four bytes.
template <class Format>
struct NibbleColumns : CodeColumns<LevelsInVectors<Format::levels>::bias> {
    static_assert(Format::values_per_unit % 32 == 0
                      && (values_per_factor<Format>() % 32 == 0
                          || (values_per_factor<Format>() == 16 && Format::levels.run <= 8)),
                  "a format with `levels`: expected units of 32 values or a multiple, and a factor for as many, or for "
                  "16 in runs of 8");
    using Lookup = LevelsInVectors<Format::levels>;
    static constexpr int values = 32;
    static constexpr int steps = 4;
    static constexpr int parts = 2;
    static constexpr int steps_of_group = values_per_factor<Format>() == 16 ? 2 : 4;

    /// Of the byte with value d of a head.
    static constexpr std::ptrdiff_t place(std::int64_t d) {
        constexpr std::int64_t of_unit = Format::values_per_unit;
        return d / of_unit * std::int64_t{sizeof(unit_of<Format>)} + d % of_unit / 2;
    }
    CELLAR_INLINE static std::ptrdiff_t place(const CodeTile<std::int8_t>& keys, std::int64_t group, std::int64_t d) {
        return place(group * keys.group + d);
    }
    CELLAR_INLINE static void load(const std::int8_t* const* rows, std::ptrdiff_t at, Columns* to) {
        Products::columns<16>(rows, at, to);
    }
    CELLAR_INLINE static void unpack(Columns bytes, Columns* to) {
        to[0] = Lookup::look_up_unsigned(bytes & lower_four_bits);
        to[1] = Lookup::look_up_unsigned(bytes >> 4 & lower_four_bits);
    }
};

/// Numbers of 8 bits as bfloat16, two of each cell: the first and the third one of four, and the others. These have
/// sums of their own, because each sum waits for the one before.
template <class Format>
struct NumberColumns {
    static constexpr int values = 32;
    static constexpr int steps = 8;
    static constexpr int parts = 2;
    static constexpr int steps_of_group = 8;
    struct Sums {
        Floats of_parts[2];
    };

    CELLAR_INLINE static Sums start(std::int32_t /*total*/) { return {}; }
    template <std::size_t Part>
    CELLAR_INLINE static Sums add(Sums sum, Columns numbers, const std::int8_t* q) {
        sum.of_parts[Part] = Bfloat16Products::add(sum.of_parts[Part], numbers, q);
        return sum;
    }
    CELLAR_INLINE static Floats finish(Sums sum) { return sum.of_parts[0] + sum.of_parts[1]; }

    static std::ptrdiff_t place(const CodeTile<std::int8_t>& /*keys*/, std::int64_t /*group*/, std::int64_t d) {
        return d;
    }
    CELLAR_INLINE static void load(const std::int8_t* const* rows, std::ptrdiff_t at, Columns* to) {
        Products::columns<32>(rows, at, to);
    }
    CELLAR_INLINE static void unpack(Columns bytes, Columns* to) {
        Bfloat16Products::look_up<Format::numbers>(bytes, to[0], to[1]);
    }
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

/// The same to bfloat16, in the order of NumberColumns.
CELLAR_KERNEL void round_to_bfloat16(const float* q, std::ptrdiff_t stride, int rows, int together, std::int64_t dim,
                                     std::int64_t /*group*/, int /*run*/, const ByteQueries& to) {
    for (int r = 0; r < rows; ++r) {
        bfloat16 row[std::size_t{max_encoded_dim}];
        for (std::int64_t d = 0; d < dim; d += lanes) Bfloat16Products::store(row + d, load(q + r * stride + d));
        std::int8_t* const block =
            to.bytes + std::int64_t{r / together} * together * to.stride + std::int64_t{r % together} * 4;
        for (std::int64_t step = 0; step < dim / 2; ++step) {
            const bfloat16* const from = row + step / 2 * 4 + step % 2;
            const bfloat16 pair[2] = {from[0], from[2]};
            std::memcpy(block + step * together * 4, pair, sizeof(pair));
        }
        to.steps[r] = 1;
        to.totals[r] = 0;
        to.sums[r] = 0;
    }
}

template <class Codes, std::size_t Step, std::size_t Part, std::size_t... Row>
CELLAR_INLINE void add_part(Columns codes, const std::int8_t* q, typename Codes::Sums* sums,
                            std::index_sequence<Row...>) {
    constexpr std::size_t rows = sizeof...(Row);
    constexpr std::size_t first = Step / Codes::steps_of_group * rows;
    constexpr std::size_t nth = Step * Codes::parts + Part;
    ((sums[first + Row] = Codes::template add<Part>(sums[first + Row], codes, q + (nth * rows + Row) * 4)), ...);
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
    constexpr std::make_index_sequence<std::size_t{Codes::steps / Codes::steps_of_group}> groups;
    LinesAhead ahead{next, (cells + lanes - 1) / lanes * (padded_dim(keys.dim) / Codes::values)};
    for (int c = 0; c < cells; c += lanes)
        dot_columns<Codes>(q, keys, c, ahead, scores, std::make_index_sequence<R>{}, groups);
}
template <class Codes>
CELLAR_INLINE void dot_in_columns(const ByteQueries& q, int rows, const CodeTile<std::int8_t>& keys, int cells,
                                  float* scores, const FetchedRows& next) {
    if (rows == 1) return dot_rows_in_columns<1, Codes>(q, keys, cells, next, scores);
    if (rows == 2) return dot_rows_in_columns<2, Codes>(q, keys, cells, next, scores);
    for (int r = 0; r < rows; r += 4)
        dot_rows_in_columns<4, Codes>(q.from_row(r, keys.groups), keys, cells, r == 0 ? next : FetchedRows{},
                                      scores + std::ptrdiff_t{r} * tile_cells);
}

/// See the one of kernels_for_codes.hpp.
CELLAR_KERNEL void dot_bytes(const ByteQueries& q, int rows, const CodeTile<std::int8_t>& keys, int cells,
                             float* /*weights*/, float* scores, const FetchedRows& next) {
    if (keys.group % 32 == 0) return dot_in_columns<ByteColumns<32>>(q, rows, keys, cells, scores, next);
    dot_in_columns<ByteColumns<16>>(q, rows, keys, cells, scores, next);
}
/// The same for units of codes of 4 bits, with pointers to the first one's codes.
template <class Format>
CELLAR_KERNEL void dot_nibbles(const ByteQueries& q, int rows, const CodeTile<std::int8_t>& keys, int cells,
                               float* /*weights*/, float* scores, const FetchedRows& next) {
    dot_in_columns<NibbleColumns<Format>>(q, rows, keys, cells, scores, next);
}

/// The same for numbers of 8 bits. Queries are rounded to bfloat16.
template <class Format>
CELLAR_KERNEL void dot_numbers(const ByteQueries& q, int rows, const CodeTile<std::int8_t>& keys, int cells,
                               float* /*weights*/, float* scores, const FetchedRows& next) {
    dot_in_columns<NumberColumns<Format>>(q, rows, keys, cells, scores, next);
}

// Weighted sums of the values in 16 bytes, for one query: of those in the lower bits of the bytes, and of those in the
// upper ones.
struct NibbleSums {
    Columns lower, upper;

    CELLAR_INLINE void add(Columns lower_codes, Columns upper_codes, Columns weights) {
        lower = Products::add_words(lower, lower_codes, weights);
        upper = Products::add_words(upper, upper_codes, weights);
    }
    template <class Lookup>
    CELLAR_INLINE void finish(float step, float step_of_upper, float* out) const {
        Columns values[2];
        Lookup::in_order(lower, upper, values);
        store(out, load(out) + __builtin_convertvector(values[0], Floats) * broadcast(step));
        store(out + lanes, load(out + lanes) + __builtin_convertvector(values[1], Floats) * broadcast(step_of_upper));
    }
};

// Of cells c and c + 1 and one query. `Groups`: 1 or 2, of the lists of weights.
template <int Groups>
CELLAR_INLINE Columns weights_of(const RoundedWeights* weights, std::size_t row, int c) {
    const std::ptrdiff_t place = static_cast<std::ptrdiff_t>(row) * RoundedWeights::row + c / 2;
    if constexpr (Groups == 1) return Columns{} + weights[0].pairs[place];
    return Products::broadcast(weights[0].pairs + place, weights[1].pairs + place);
}

// 32 values of each cell. `weights`: of one group, or of two, of which the first eight bytes have the first one.
template <class Lookup, int Groups, std::size_t... Row>
CELLAR_INLINE void add_nibbles(const RoundedWeights* weights, int cells, const std::int8_t* const* rows,
                               std::ptrdiff_t at, float* out, std::ptrdiff_t stride, LinesAhead& ahead,
                               std::index_sequence<Row...>) {
    NibbleSums all[sizeof...(Row)] = {};
    for (int c = 0; c < cells; c += 2) {
        ahead.step();
        const sums::Ints both = Products::zip_bytes(rows[c] + at, rows[c + 1] + at);
        const Columns low = Products::words(Lookup::look_up(both & lower_four_bits));
        const Columns high = Products::words(Lookup::look_up(both >> 4 & lower_four_bits));
        (all[Row].add(low, high, weights_of<Groups>(weights, Row, c)), ...);
    }
    (all[Row].template finish<Lookup>(weights[0].steps[Row], weights[Groups - 1].steps[Row],
                                      out + std::ptrdiff_t{Row} * stride),
     ...);
}
template <class Format, std::size_t R>
CELLAR_KERNEL void add_nibbles_of(const RoundedWeights* weights, int cells, const std::int8_t* const* rows,
                                  std::int64_t first, std::int64_t width, float* out, std::ptrdiff_t stride,
                                  LinesAhead& ahead) {
    using Codes = NibbleColumns<Format>;
    for (std::int64_t d = 0; d < width; d += 32)
        add_nibbles<typename Codes::Lookup, Codes::steps / Codes::steps_of_group>(
            weights, cells, rows, Codes::place(first + d), out + d, stride, ahead, std::make_index_sequence<R>{});
}

// Values [first, first + width) of group g, or of two groups from g on, by integers.
template <class Format>
CELLAR_INLINE void add_rounded_nibbles(const RelativeWeights& weights, int rows, int cells, std::int64_t g,
                                       const std::int8_t* const* codes, std::int64_t first, std::int64_t width,
                                       float* out, std::ptrdiff_t stride, LinesAhead& ahead) {
    constexpr int groups = NibbleColumns<Format>::steps / NibbleColumns<Format>::steps_of_group;
    RoundedWeights rounded[std::size_t{groups}];
    for (int r = 0; r < rows; r += 4) {
        const int some = std::min(rows - r, 4);
        for (int i = 0; i < groups; ++i) weights.round(r, some, g + i, cells, rounded[i]);
        float* const to = out + r * stride;
        if (some == 1) add_nibbles_of<Format, 1>(rounded, cells, codes, first, width, to, stride, ahead);
        if (some == 2) add_nibbles_of<Format, 2>(rounded, cells, codes, first, width, to, stride, ahead);
        if (some == 4) add_nibbles_of<Format, 4>(rounded, cells, codes, first, width, to, stride, ahead);
    }
}

// The same by floats.
template <class Format>
CELLAR_KERNEL void add_unpacked_nibbles(const float* weights, int rows, int cells, const float* factors,
                                        const std::int8_t* const* codes, std::int64_t first, float* scaled, float* out,
                                        std::ptrdiff_t stride, LinesAhead& ahead) {
    constexpr int group = values_per_factor<Format>();
    constexpr int width = std::max(group, 32);
    std::int8_t unpacked[tile_cells + 1][std::size_t{width}];
    const std::int8_t* own[tile_cells + 1];
    for (int c = 0; c <= cells; ++c) {
        own[c] = unpacked[c];
        for (int d = 0; d < width; d += 32)
            CELLAR_LEVELS::unpack<Format::levels>(reinterpret_cast<const std::uint8_t*>(codes[c])
                                                      + NibbleColumns<Format>::place(first + d),
                                                  unpacked[c] + d);
    }
    for (int d = 0; d < width; d += group)
        add_floats(weights, rows, cells, factors + std::ptrdiff_t{d / group} * tile_cells, own, d, group, scaled,
                   out + d, stride, ahead);
}

/// See `add_codes`, for units of codes of 4 bits, with pointers to the first one's codes.
template <class Format>
CELLAR_KERNEL void add_nibbles(const float* weights, int rows, int cells, const CodeTile<std::int8_t>& values,
                               float* scratch, float* out, std::ptrdiff_t stride, const FetchedRows& next) {
    constexpr int group = values_per_factor<Format>();
    constexpr int width = std::max(group, 32);
    LinesAhead ahead{next, std::int64_t{(rows + 3) / 4} * (values.dim / 32) * ((cells + 1) / 2)};
    const RelativeWeights relative = RelativeWeights::of(weights, rows, cells, values.factors, values.groups, scratch);
    for (std::int64_t d = 0; d < values.dim; d += width) {
        const std::int64_t g = d / group;
        const float* const factors = values.factors + g * tile_cells;
        if (relative.fit(g) && relative.fit(g + width / group - 1))
            add_rounded_nibbles<Format>(relative, rows, cells, g, values.rows, d, width, out + d, stride, ahead);
        else
            add_unpacked_nibbles<Format>(weights, rows, cells, factors, values.rows, d, scratch, out + d, stride,
                                         ahead);
        for (int own = 0; has_offsets<Format> && own < width; own += group)
            add_offsets(weights, rows, cells, values.offsets + (d + own) / group * tile_cells, group, out + d + own,
                        stride);
    }
}

CELLAR_INLINE void add_pair_of_numbers(Bfloat16Products::Pairs numbers, const std::int32_t* weights, Floats* sums) {
    sums[0] = Bfloat16Products::add(sums[0], numbers.first, weights);
    sums[1] = Bfloat16Products::add(sums[1], numbers.second, weights);
}
CELLAR_INLINE void add_in_order(const Floats* sums, float* out) {
    Floats values[2];
    Bfloat16Products::in_order(sums[0], sums[1], values);
    store(out, load(out) + values[0]);
    store(out + lanes, load(out + lanes) + values[1]);
}

// 32 numbers of each cell. `pairs`: weights of two neighbouring cells as bfloat16.
template <class Format, std::size_t... Row>
CELLAR_INLINE void add_some_numbers(const std::int32_t* pairs, int cells, const std::int8_t* const* rows,
                                    std::int64_t d, float* out, std::ptrdiff_t stride, LinesAhead& ahead,
                                    std::index_sequence<Row...>) {
    constexpr std::ptrdiff_t row = tile_cells / 2;
    static constexpr std::int8_t zeros[32] = {}; // beside the last of an odd number of cells
    Floats all[2 * sizeof...(Row)] = {};
    for (int c = 0; c < cells; c += 2) {
        ahead.step();
        const std::int8_t* const next = c + 1 < cells ? rows[c + 1] + d : zeros;
        const Bfloat16Products::Pairs numbers = Bfloat16Products::zip<Format::numbers>(rows[c] + d, next);
        (add_pair_of_numbers(numbers, pairs + std::ptrdiff_t{Row} * row + c / 2, all + 2 * Row), ...);
    }
    (add_in_order(all + 2 * Row, out + std::ptrdiff_t{Row} * stride), ...);
}
template <class Format, std::size_t R>
CELLAR_KERNEL void add_numbers_of(const std::int32_t* pairs, int cells, const std::int8_t* const* rows,
                                  std::int64_t dim, float* out, std::ptrdiff_t stride, LinesAhead& ahead) {
    for (std::int64_t d = 0; d < dim; d += 32)
        add_some_numbers<Format>(pairs, cells, rows, d, out + d, stride, ahead, std::make_index_sequence<R>{});
}

/// See `add_codes`, for numbers of 8 bits. Weights are rounded to bfloat16.
template <class Format>
CELLAR_KERNEL void add_numbers(const float* weights, int rows, int cells, const CodeTile<std::int8_t>& values,
                               float* /*scratch*/, float* out, std::ptrdiff_t stride, const FetchedRows& next) {
    constexpr std::ptrdiff_t row = tile_cells / 2;
    LinesAhead ahead{next, std::int64_t{(rows + 3) / 4} * (values.dim / 32) * ((cells + 1) / 2)};
    std::int32_t pairs[max_rows_of_values * row];
    for (int r = 0; r < rows; ++r)
        for (int c = 0; c < cells; c += lanes)
            Bfloat16Products::store(pairs + r * row + c / 2,
                                    load(weights + std::ptrdiff_t{r} * tile_cells + c) * load(values.factors + c));
    for (int r = 0; r < rows; r += 4) {
        const std::int32_t* const own = pairs + r * row;
        float* const to = out + r * stride;
        if (rows - r == 1) add_numbers_of<Format, 1>(own, cells, values.rows, values.dim, to, stride, ahead);
        if (rows - r == 2) add_numbers_of<Format, 2>(own, cells, values.rows, values.dim, to, stride, ahead);
        if (rows - r >= 4) add_numbers_of<Format, 4>(own, cells, values.rows, values.dim, to, stride, ahead);
    }
}

} // namespace cellar::detail::CELLAR_KERNELS

#endif
