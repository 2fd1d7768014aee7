// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The code of docs/how-to/write-your-own-policy.md: policies as a user writes them, in a cache.
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace test_own_policies {

// [window]
/// A token sees its own block of positions and the one before (block-local attention).
class TwoBlocks {
public:
    explicit TwoBlocks(std::int32_t size) : size_{size} {}

    cellar::Position oldest_visible(cellar::Position p) const {
        return cellar::Position{std::max(0, (p.value / size_ - 1) * size_)};
    }
    cellar::Position oldest_kept(cellar::Position newest) const { return oldest_visible(newest); }
    std::int32_t sinks() const { return 0; }

    TwoBlocks resolved(std::int32_t, std::int32_t) const { return *this; }
    std::int64_t cells(std::int32_t sequences, std::int32_t, std::int32_t batch) const {
        return std::int64_t{sequences} * 2 * size_ + batch;
    }

private:
    std::int32_t size_;
};
static_assert(cellar::WindowPolicy<TwoBlocks>);
// [/window]

// [mapping]
/// [heads, cells, dim]: all rows of one head lie together.
class HeadsCellsDims {
public:
    static constexpr cellar::Segment segment = cellar::Segment::head; // the elements of a head are contiguous
    static constexpr std::int32_t segment_cells = cellar::all_cells;  // and cell follows cell

    CELLAR_FUNCTION constexpr HeadsCellsDims(std::int64_t cells, int heads, int dim)
        : cells_{cells}, heads_{heads}, dim_{dim} {}

    CELLAR_FUNCTION constexpr std::int64_t cells() const { return cells_; }
    CELLAR_FUNCTION constexpr int heads() const { return heads_; }
    CELLAR_FUNCTION constexpr int dim() const { return dim_; }
    CELLAR_FUNCTION constexpr std::int64_t required_size() const { return heads_ * cells_ * dim_; }

    CELLAR_FUNCTION constexpr std::int64_t operator()(std::int64_t cell, std::int64_t head, std::int64_t d) const {
        return (head * cells_ + cell) * dim_ + d;
    }

    /// [range.count, heads, dim]
    template <class T>
    CELLAR_FUNCTION constexpr cellar::StridedView<T, 3> view(T* data, cellar::CellRange range) const {
        return {data + std::int64_t{range.first} * dim_, {range.count, heads_, dim_}, {dim_, cells_ * dim_, 1}};
    }

private:
    std::int64_t cells_;
    int heads_;
    int dim_;
};
static_assert(cellar::LayoutMapping<HeadsCellsDims>);
// [/mapping]

// [layout]
template <cellar::StorageFormat Key, cellar::StorageFormat Value = Key>
struct ByHead {
    using key_format = Key;
    using value_format = Value;
    using key_mapping = HeadsCellsDims;
    using value_mapping = HeadsCellsDims;
};
static_assert(cellar::LayoutPolicy<ByHead<cellar::half>>);
// [/layout]

// [format]
/// A byte for each value. The scales are in a plane of their own, one for each head.
struct Bytes {
    using unit = std::int8_t;
    using scale = float;
    static constexpr int values_per_unit = 1;
    static constexpr int values_per_scale = cellar::whole_head;
    static constexpr std::string_view name = "bytes";

    static void encode(std::span<const float> values, std::span<unit> units, std::span<scale> scales) {
        float largest = 0;
        for (const float x : values) largest = std::max(largest, std::abs(x));
        scales[0] = largest / 127;
        for (std::size_t i = 0; i < values.size(); ++i)
            units[i] = static_cast<unit>(largest == 0 ? 0 : std::round(values[i] / scales[0]));
    }
    static void decode(std::span<const unit> units, std::span<const scale> scales, std::span<float> values) {
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = scales[0] * static_cast<float>(units[i]);
    }
};
static_assert(cellar::StorageFormat<Bytes>);
// [/format]

// [shift]
/// Rotary embeddings that pair the first element of a head with its last one, the second with the last but one, ...
class MirroredRope {
public:
    static constexpr bool possible = true;

    struct Factor {
        float cosine;
        float sine;
    };
    struct Rotation {
        int dim;

        CELLAR_FUNCTION int pairs() const { return dim / 2; }
        CELLAR_FUNCTION int first(int pair) const { return pair; }
        CELLAR_FUNCTION int second(int pair) const { return dim - 1 - pair; }
        CELLAR_FUNCTION void rotate(float& a, float& b, Factor factor) const {
            const float rotated = a * factor.cosine - b * factor.sine;
            b = a * factor.sine + b * factor.cosine;
            a = rotated;
        }
    };

    explicit MirroredRope(int dim) : dim_{dim} {}

    Rotation rotation(int /*layer*/) const { return {dim_}; }
    Factor factor(int /*layer*/, int pair, std::int32_t delta) const {
        const double angle = delta * std::pow(10000.0, -2.0 * pair / dim_);
        return {static_cast<float>(std::cos(angle)), static_cast<float>(std::sin(angle))};
    }

private:
    int dim_;
};
static_assert(cellar::ShiftPolicy<MirroredRope>);
// [/shift]

// [backend]
/// The host backend. It also counts the rows that are written.
class CountingBackend : public cellar::HostBackend {
public:
    template <cellar::LayoutMapping Mapping, cellar::Element E, class T>
    void scatter(const Mapping& mapping, Buffer<E>& buffer, std::span<const cellar::Cell> cells,
                 cellar::StridedView<const T, 3> rows) {
        rows_ += std::ssize(cells);
        HostBackend::scatter(mapping, buffer, cells, rows);
    }

    std::int64_t rows() const { return rows_; }

private:
    std::int64_t rows_ = 0;
};
static_assert(cellar::BackendPolicy<CountingBackend>);
// [/backend]

namespace {

// [cache]
using Mine = cellar::Cache<ByHead<float>, TwoBlocks, cellar::UnrotatedShift, CountingBackend>;
// [/cache]

void feed(Mine& cache, std::int32_t first, std::int32_t end) {
    std::vector<float> rows;
    for (std::int32_t p = first; p < end; ++p) rows.insert(rows.end(), 4, static_cast<float>(p));
    auto pass = cache.begin(cellar::BatchBuilder{cellar::Sequence{0}, cellar::Position{first}, end - first});
    REQUIRE(pass);
    pass->put(0, rows, rows);
    pass->commit();
}

} // namespace

TEST_CASE("a cache works with policies that a user wrote") {
    // [use]
    Mine cache{
        {.layers = 1, .kv_heads = 2, .head_dim = 2}, {.sequences = 1, .capacity = 100, .batch = 16}, TwoBlocks{4}};
    // [/use]
    CHECK(cache.cells() == 24);
    feed(cache, 0, 9);
    CHECK(cache.range(cellar::Sequence{0}) == cellar::PositionRange{cellar::Position{4}, cellar::Position{8}});
    feed(cache, 9, 11);
    CHECK(cache.backend().rows() == 2 * 11);
    REQUIRE(cache.remove(cellar::Sequence{0}, cellar::Position{5}, cellar::Position{7}));
    CHECK(cache.range(cellar::Sequence{0}) == cellar::PositionRange{cellar::Position{4}, cellar::Position{8}});

    auto pass = cache.begin(cellar::Sequence{0}, 1);
    REQUIRE(pass);
    pass->put(0, std::vector<float>(4, 9.0F), std::vector<float>(4, 9.0F));
    const auto [keys, values, mask] = pass->get<bool>(0);
    std::vector<float> seen;
    for (std::int64_t c = 0; c < mask.extent(1); ++c)
        if (mask(0, c)) seen.push_back(keys(c, 1, 1));
    std::sort(seen.begin(), seen.end());
    CHECK(seen == std::vector<float>{4, 7, 8, 9, 9, 10}); // put at 4 and 7 to 10, and the new token at 9
    CHECK(values.extent(1) == 2);
}

TEST_CASE("a shift that a user wrote rotates keys there and back") {
    using Cache = cellar::Cache<cellar::StandardV<float>, cellar::FullCausal, MirroredRope>;
    Cache cache{
        {.layers = 1, .kv_heads = 1, .head_dim = 4}, {.sequences = 1, .capacity = 4, .batch = 2}, {}, MirroredRope{4}};
    auto begun = cache.begin(cellar::BatchBuilder{cellar::Sequence{0}, cellar::Position{0}, 2});
    REQUIRE(begun);
    const std::vector<float> rows{0, 0, 0, 0, 1, 2, 3, 4};
    begun->put(0, rows, rows);
    begun->commit();
    REQUIRE(cache.remove(cellar::Sequence{0}, cellar::Position{0},
                         cellar::Position{1})); // the second token moves to position 0

    const auto pass = cache.reserve(1);
    const auto keys = pass.keys(0);
    const cellar::Cell cell = 1;
    const MirroredRope rope{4};
    for (int pair = 0; pair < 2; ++pair) {
        float a = keys(cell, 0, pair);
        float b = keys(cell, 0, 3 - pair);
        CHECK(a != doctest::Approx(rows[static_cast<std::size_t>(4 + pair)]));
        rope.rotation(0).rotate(a, b, rope.factor(0, pair, 1));
        CHECK(a == doctest::Approx(rows[static_cast<std::size_t>(4 + pair)]));
        CHECK(b == doctest::Approx(rows[static_cast<std::size_t>(7 - pair)]));
    }
}

TEST_CASE("a cache stores keys in a format that a user wrote") {
    // [bytes]
    using Small = cellar::Cache<cellar::StandardV<Bytes>, cellar::FullCausal, cellar::UnrotatedShift>;
    Small cache{{.layers = 1, .kv_heads = 1, .head_dim = 4}, {.sequences = 1, .capacity = 4}};
    auto pass = cache.begin(cellar::BatchBuilder{cellar::Sequence{0}, cellar::Position{0}});
    // [/bytes]
    REQUIRE(pass);
    const std::vector<float> rows{127, -63.5F, 1, 0};
    pass->put(0, rows, rows);
    // [gather]
    std::vector<float> keys(4);
    std::vector<float> values(4);
    pass->gather(0, pass->cells(), cellar::contiguous_view(keys.data(), 1, 1, 4),
                 cellar::contiguous_view(values.data(), 1, 1, 4)); // decodes them
    // [/gather]
    CHECK(keys == std::vector<float>{127, -64, 1, 0});
    CHECK(pass->values(0).scales(pass->cells()[0] - pass->history().first, 0, 0) == 1);
    pass->commit();
}

} // namespace test_own_policies
