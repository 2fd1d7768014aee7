// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "coded_formats.hpp"
#include <cellar/attention/attend.hpp>
#include <cellar/cellar.hpp>
#include <cellar/format/affine.hpp>
#include <cellar/format/blocks.hpp>
#include <cellar/format/fp4.hpp>
#include <cellar/format/fp8.hpp>
#include <cellar/format/int8.hpp>
#include <cellar/format/rotated.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

// Attention over codes: that by the definition, in double, over what the formats decode.

namespace test_codes {

using namespace cellar;
using cellar::detail::Instructions;
using cellar_test::BlocksOf32;
using cellar_test::CodedBlocks;
using cellar_test::CodedHalves;
using cellar_test::CodedHeads;
using cellar_test::CodedNibbles;
using cellar_test::Turned;

namespace {

constexpr int tokens = 150; // more than two tiles, of which the last one is not whole

struct Shape {
    int heads;
    int kv_heads;
    int key_dim;
    int value_dim;
    int window = tokens + 1;

    int out_dim() const { return value_dim == 0 ? key_dim / 2 : value_dim; }
};

/// What the processor has.
std::vector<Instructions> all_instructions() {
    std::vector<Instructions> all{Instructions::baseline};
    for (const Instructions some : {Instructions::avx2, Instructions::avx512})
        if (some <= detail::best_instructions()) all.push_back(some);
    return all;
}

std::vector<float> random_rows(std::mt19937& random, std::size_t n) {
    std::normal_distribution<float> normal;
    std::vector<float> rows(n);
    for (float& x : rows) x = normal(random);
    return rows;
}

/// Multiples of 1/64 up to 127/64, which one of every 16 is: bytes hold them.
std::vector<float> rows_of_bytes(std::mt19937& random, std::size_t n) {
    std::uniform_int_distribution<int> number{-127, 127};
    std::vector<float> rows(n);
    for (std::size_t i = 0; i < n; ++i) rows[i] = static_cast<float>(i % 16 == 7 ? 127 : number(random)) / 64;
    return rows;
}

/// What all tokens but the last one read in one pass, and the last one in the next.
template <class Layout>
std::vector<float> results(Instructions instructions, const Shape& shape, const std::vector<float>& q,
                           const std::vector<float>& k, const std::vector<float>& v,
                           std::vector<ChannelFactors> factors = {}, const AttentionOptions& options = {}) {
    Cache<Layout, SlidingWindow<>> cache{
        CacheShape{.each_layer = {{shape.kv_heads, shape.key_dim, shape.value_dim}}, .factors = std::move(factors)},
        {.capacity = tokens + 1, .batch = tokens},
        SlidingWindow<>{shape.window}};
    std::vector<float> out;
    const auto row = [&](int first, const std::vector<float>& rows) {
        return rows.data() + static_cast<std::size_t>(first) * (rows.size() / (tokens + 1));
    };
    int first = 0;
    for (const int n : {3, tokens - 3, 1}) {
        auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{first}, n}).value();
        const auto given = [&](const std::vector<float>& rows) {
            return std::span{row(first, rows), rows.size() / (tokens + 1) * static_cast<std::size_t>(n)};
        };
        pass.put(0, given(k), given(v));
        std::vector<float> some(static_cast<std::size_t>(n * shape.heads * shape.out_dim()));
        detail::attend_with(instructions, pass, 0, contiguous_view(row(first, q), n, shape.heads, shape.key_dim),
                            contiguous_view(some.data(), n, shape.heads, shape.out_dim()), options, CallingThread{});
        out.insert(out.end(), some.begin(), some.end());
        pass.commit();
        first += n;
    }
    return out;
}

struct Expected {
    std::vector<double> results;
    std::vector<double> bounds; ///< of the error, for queries that are rounded to bytes
    double largest_value = 0;   ///< its magnitude
};

/// By the definition. The bound: a query that is rounded to bytes is wrong by at most half a step, 1/254 of the largest
/// element of its head. So a score is wrong by at most e = scale / 254 * largest * (sum of the magnitudes of the key),
/// and with E the largest e of the cells, a weight by at most a factor of exp(2 E). `longer`: what a rotation may
/// multiply the first two by.
Expected expected_results(const Shape& shape, const std::vector<float>& q, const std::vector<float>& k,
                          const std::vector<float>& v, double longer) {
    Expected expected;
    const double scale = 1 / std::sqrt(shape.key_dim);
    const int group = shape.heads / shape.kv_heads;
    const auto row = [](const std::vector<float>& rows, int i, int dim) {
        return rows.data() + static_cast<std::size_t>(i) * static_cast<std::size_t>(dim);
    };
    const int stored_dim = shape.value_dim == 0 ? shape.key_dim : shape.value_dim;
    for (int t = 0; t <= tokens; ++t)
        for (int h = 0; h < shape.heads; ++h) {
            const float* const query = row(q, t * shape.heads + h, shape.key_dim);
            double largest_query = 0;
            for (int d = 0; d < shape.key_dim; ++d) largest_query = std::max(largest_query, std::abs(double{query[d]}));
            std::vector<double> scores;
            double wrong = 0;
            const int from = std::max(0, t + 1 - shape.window);
            for (int c = from; c <= t; ++c) {
                const float* const key = row(k, c * shape.kv_heads + h / group, shape.key_dim);
                double score = 0;
                double magnitudes = 0;
                for (int d = 0; d < shape.key_dim; ++d) {
                    score += double{query[d]} * key[d];
                    magnitudes += std::abs(double{key[d]});
                }
                scores.push_back(score * scale);
                wrong = std::max(wrong, longer * magnitudes * largest_query * scale / 254);
            }
            const double largest = *std::max_element(scores.begin(), scores.end());
            double sum = 0;
            for (double& x : scores) sum += x = std::exp(x - largest);
            for (int d = 0; d < shape.out_dim(); ++d) {
                double value = 0;
                double magnitude = 0;
                for (int c = from; c <= t; ++c) {
                    const double x = row(shape.value_dim == 0 ? k : v, c * shape.kv_heads + h / group, stored_dim)[d];
                    value += scores[static_cast<std::size_t>(c - from)] / sum * x;
                    magnitude += scores[static_cast<std::size_t>(c - from)] / sum * std::abs(x);
                    expected.largest_value = std::max(expected.largest_value, std::abs(x));
                }
                expected.results.push_back(value);
                expected.bounds.push_back((std::exp(2 * wrong) - 1) * magnitude);
            }
        }
    return expected;
}

template <class Layout>
void check(const Shape& shape, double longer = 1) {
    std::mt19937 random{1};
    const auto size = [](int heads, int dim) { return static_cast<std::size_t>((tokens + 1) * heads * dim); };
    const std::vector<float> k = random_rows(random, size(shape.kv_heads, shape.key_dim));
    const std::vector<float> v = random_rows(random, size(shape.kv_heads, shape.value_dim));
    const std::vector<float> stored_k = cellar_test::stored<typename Layout::key_format>(k, shape.key_dim);
    const std::vector<float> stored_v = cellar_test::stored<typename Layout::value_format>(v, shape.value_dim);
    constexpr double of_floats = 2e-5;
    // Of a tile's 64 weights, each is rounded by half a step, 2^-16 of the largest product of a weight and a factor. A
    // code times that is at most the weight times the distance of two values.
    constexpr double of_weights = 0x1p-9;
    CAPTURE(shape.key_dim);
    for (const bool rounds : {false, true}) {
        if (longer != 1 && !rounds) continue; // bytes do not hold turned queries
        const std::size_t n = size(shape.heads, shape.key_dim);
        const std::vector<float> q = rounds ? random_rows(random, n) : rows_of_bytes(random, n);
        const Expected expected = expected_results(shape, q, stored_k, stored_v, longer);
        for (const Instructions instructions : all_instructions()) {
            CAPTURE(static_cast<int>(instructions));
            for (const bool exact : {false, true}) { // AttentionOptions::exact_queries
                const std::vector<float> found =
                    results<Layout>(instructions, shape, q, k, v, {}, {.exact_queries = exact});
                REQUIRE(found.size() == expected.results.size());
                const bool rounds_weights = instructions == Instructions::avx512;
                double worst = 0;
                for (std::size_t i = 0; i < found.size(); ++i) {
                    const double bound = of_floats + (rounds_weights ? of_weights * expected.largest_value : 0)
                                         + (rounds && !exact ? expected.bounds[i] : 0);
                    worst = std::max(worst, std::abs(found[i] - expected.results[i]) / bound);
                }
                CAPTURE(rounds);
                CAPTURE(exact);
                CHECK(worst < 1);
            }
        }
    }
}

/// With factors, as without them over divided keys and values, with queries and results that are multiplied: to the bit.
template <class Layout>
void check_factors(const Shape& shape) {
    std::mt19937 random{2};
    std::uniform_real_distribution<float> exponent{-3, 3};
    const auto some = [&](int n) {
        std::vector<float> factors(static_cast<std::size_t>(n));
        for (float& x : factors) x = std::exp2(exponent(random));
        return factors;
    };
    const ChannelFactors factors{some(shape.kv_heads * shape.key_dim), some(shape.kv_heads * shape.value_dim)};
    const int group = shape.heads / shape.kv_heads;
    // Of element i of rows of query heads.
    const auto of_query = [&](const std::vector<float>& list, std::size_t i, int dim, int pitch) {
        const auto head = static_cast<int>(i) / dim % shape.heads / group;
        return list[static_cast<std::size_t>(head * pitch + static_cast<int>(i) % dim)];
    };
    const auto size = [](int heads, int dim) { return static_cast<std::size_t>((tokens + 1) * heads * dim); };
    const std::vector<float> q = random_rows(random, size(shape.heads, shape.key_dim));
    const std::vector<float> k = random_rows(random, size(shape.kv_heads, shape.key_dim));
    const std::vector<float> v = random_rows(random, size(shape.kv_heads, shape.value_dim));
    std::vector<float> multiplied_q = q;
    for (std::size_t i = 0; i < q.size(); ++i)
        multiplied_q[i] *= of_query(factors.keys, i, shape.key_dim, shape.key_dim);
    std::vector<float> divided_k = k;
    for (std::size_t i = 0; i < k.size(); ++i) divided_k[i] /= factors.keys[i % factors.keys.size()];
    std::vector<float> divided_v = v;
    for (std::size_t i = 0; i < v.size(); ++i) divided_v[i] /= factors.values[i % factors.values.size()];
    const bool keys_alone = shape.value_dim == 0;
    for (const Instructions instructions : all_instructions()) {
        std::vector<float> expected = results<Layout>(instructions, shape, multiplied_q, divided_k, divided_v);
        for (std::size_t i = 0; i < expected.size(); ++i)
            expected[i] *= keys_alone ? of_query(factors.keys, i, shape.out_dim(), shape.key_dim)
                                      : of_query(factors.values, i, shape.out_dim(), shape.value_dim);
        CHECK(results<Layout>(instructions, shape, q, k, v, {factors}) == expected);
    }
}

} // namespace

TEST_CASE("queries and results are multiplied by the factors that keys and values were divided by") {
    check_factors<StandardV<CodedBlocks, CodedNibbles<32>>>({4, 2, 64, 96});
    check_factors<Blocked<CodedHeads, 16>>({8, 4, 64, 96, 70});
    check_factors<StandardV<CodedBlocks>>({4, 1, 128, 0});
    check_factors<StandardV<Turned<CodedBlocks>, Turned<CodedNibbles<32>>>>({4, 2, 64, 32});
    check_factors<StandardV<Turned<CodedBlocks>>>({4, 2, 64, 0});
}

TEST_CASE("codes in blocks are multiplied as what they decode to") {
    check<StandardV<CodedBlocks>>({4, 2, 64, 32});
    check<Blocked<CodedBlocks, 16>>({2, 2, 96, 128});
    check<Blocked<CodedBlocks>>({3, 1, 32, 32});
}

TEST_CASE("codes with one factor for a head are multiplied as what they decode to") {
    check<Blocked<CodedHeads, 16>>({8, 4, 64, 96}); // in place
    check<StandardV<CodedHeads>>({4, 4, 40, 24});   // padded
}

TEST_CASE("codes with offsets are multiplied as what they decode to") {
    check<StandardV<CodedNibbles<32>>>({4, 2, 64, 32});
    check<Blocked<CodedNibbles<16>>>({4, 1, 48, 80});
    check<StandardV<CodedNibbles<64>>>({5, 1, 64, 128});
}

TEST_CASE("halves that units are unpacked to are multiplied as what they decode to") {
    check<StandardV<CodedHalves>>({4, 2, 64, 32});
    check<Blocked<CodedHalves>>({1, 1, 24, 40});
}

TEST_CASE("keys and values have formats of their own") {
    check<StandardV<CodedBlocks, CodedNibbles<32>>>({4, 2, 64, 96});
    check<StandardV<half, CodedHeads>>({4, 2, 64, 64});
    check<Blocked<CodedHalves, 64, BlocksOf32>>({2, 1, 64, 32});
    check<PermutedV<CodedNibbles<32>, half>>({4, 2, 32, 32});
}

TEST_CASE("tokens that do not see all of a tile see their own codes") {
    check<StandardV<CodedBlocks, CodedNibbles<32>>>({2, 1, 64, 32, 70});
    check<Blocked<CodedHeads>>({2, 2, 32, 32, 7});
    check<StandardV<CodedHalves>>({2, 2, 32, 32, 100});
}

TEST_CASE("values that are the beginning of keys are unpacked from these") {
    check<StandardV<CodedBlocks>>({4, 1, 128, 0});
    check<StandardV<CodedHeads>>({4, 1, 96, 0});
    check<StandardV<CodedNibbles<32>>>({4, 1, 96, 0}); // 48 elements, one and a half blocks
}

TEST_CASE("heads are rotated back") {
    // Turning pairs makes the largest element, and the sum of magnitudes, larger by up to the square root of 2 each.
    const auto check_turned = [](auto layout, const Shape& shape) { check<decltype(layout)>(shape, 2); };
    check_turned(StandardV<Turned<CodedBlocks>, Turned<CodedNibbles<32>>>{}, {4, 2, 64, 32});
    check_turned(Blocked<Turned<CodedNibbles<32>>, 64, CodedHeads>{}, {2, 1, 64, 32, 70});
    check_turned(StandardV<half, Turned<CodedBlocks>>{}, {4, 4, 32, 64});
    check_turned(StandardV<Turned<CodedBlocks>>{}, {4, 1, 64, 0});
}

TEST_CASE("formats that come with cellar are multiplied as what they decode to") {
    check<StandardV<q8_0, q4_0>>({4, 2, 64, 96});
    check<Blocked<iq4_nl, 64, nvfp4>>({4, 2, 32, 64});
    check<Blocked<Affine<4, 64>, 16, mxfp4>>({2, 2, 64, 64});
    check<StandardV<fp8_e4m3, q5_1>>({4, 1, 32, 32});
    check<StandardV<q4_1, q5_0>>({4, 1, 32, 32});
    check<StandardV<Rotated<Hadamard<2>, q4_0>, int8_per_head>>({4, 2, 64, 64, 100}, 2);
}

TEST_CASE("codes of 4 bits are multiplied as they are stored") {
    check<StandardV<q4_1, iq4_nl>>({4, 4, 64, 96});
    check<Blocked<nvfp4, 64, Affine<4, 64>>>({8, 1, 64, 128});
    check<StandardV<mxfp4, q4_1>>({4, 2, 96, 32, 70});
    check<Blocked<Affine<4, 32>, 16, nvfp4>>({4, 1, 32, 64, 7});
    check<StandardV<q4_0>>({4, 1, 128, 0});
    check<StandardV<q4_0>>({4, 1, 96, 0}); // 48 values, one and a half blocks
}

TEST_CASE("numbers of 8 bits are multiplied as they are stored") {
    check<StandardV<fp8_e4m3>>({8, 2, 96, 160}); // two and a half blocks of 64
    check<Blocked<fp8_e5m2, 16, fp8_e4m3>>({2, 1, 32, 64, 70});
    check<StandardV<fp8_e4m3, fp8_e5m2>>({3, 3, 64, 32, 7});
    check<StandardV<fp8_e4m3>>({3, 1, 64, 64}); // three queries of a head, and one of zeros
    check<StandardV<fp8_e4m3>>({8, 1, 128, 0});
}

TEST_CASE("kernels look up codes of 4 bits as formats unpack them, all 16 in each place") {
    const auto check_levels = []<class F>(F) {
        constexpr std::size_t values{F::values_per_unit};
        typename F::unit unit{};
        for (unsigned first = 0; first < 16; ++first) {
            for (unsigned i = 0; i < values / 2; ++i)
                (unit.*F::nibbles)[i] = static_cast<std::uint8_t>((first + i) % 16 | (first + 3 * i) % 16 << 4);
            std::vector<std::int8_t> expected(values);
            if constexpr (detail::has_scale_plane<F>) {
                detail::AffineGroup<4, 64>::unpack<true>(unit, expected.data());
            } else if constexpr (F::has_offsets) {
                typename F::factor factor[2];
                F::unpack_unit(unit, expected.data(), factor, factor + 1);
            } else {
                typename F::factor factors[4];
                F::unpack_unit(unit, expected.data(), factors);
            }
            std::vector<std::int8_t> looked_up(values);
            for (const auto unpack :
                 {&detail::BaselineLevels::unpack<F::levels>,
#ifdef CELLAR_HAS_X86_VECTORS
                  detail::best_instructions() >= Instructions::avx2 ? &detail::Avx2Levels::unpack<F::levels>
                                                                    : &detail::BaselineLevels::unpack<F::levels>
#endif
                 }) {
                for (std::size_t i = 0; i < values; i += 32) unpack(unit.*F::nibbles + i / 2, looked_up.data() + i);
                CHECK(looked_up == expected);
            }
        }
    };
    check_levels(q4_0{});
    check_levels(q4_1{});
    check_levels(iq4_nl{});
    check_levels(mxfp4{});
    check_levels(nvfp4{});
    check_levels(Affine<4>{});
}

TEST_CASE("one query that is not a number makes its own results numbers no more") {
    Cache<StandardV<CodedBlocks>> cache{{.layers = 1, .kv_heads = 1, .head_dim = 32}, {.capacity = 4, .batch = 4}};
    auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, 1}).value();
    const std::vector<float> rows(32, 1.0F);
    pass.put(0, rows, rows);
    std::vector<float> q(64, 1.0F);
    q[40] = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> out(64);
    for (const Instructions instructions : all_instructions()) {
        detail::attend_with(instructions, pass, 0, q, out, {}, CallingThread{});
        CHECK(out[0] == doctest::Approx(1).epsilon(1e-3));
        CHECK(std::isnan(out[32]));
    }
}

TEST_CASE("values that integers do not represent are weighted as floats") {
    const auto check_size = []<class F>(F, float size) {
        Cache<StandardV<F>> cache{{.layers = 1, .kv_heads = 1, .head_dim = 32}, {.capacity = 4, .batch = 4}};
        auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, 1}).value();
        const std::vector<float> keys(32, 1.0F);
        const std::vector<float> values(32, size);
        pass.put(0, keys, values);
        std::vector<float> out(32);
        for (const Instructions instructions : all_instructions()) {
            detail::attend_with(instructions, pass, 0, keys, out, {}, CallingThread{});
            CHECK(out[0] / size == doctest::Approx(1).epsilon(1e-2));
            CHECK(out[31] / size == doctest::Approx(1).epsilon(1e-2));
        }
    };
    for (const float size : {0x1p-122F, 0x1p122F}) {
        check_size(CodedHeads{}, size);
        check_size(mxfp4{}, size);
    }
}

TEST_CASE("a scale that is not a number makes the values that it serves numbers no more") {
    const auto check_format = []<class F>(F, std::size_t group) {
        Cache<StandardV<F>> cache{{.layers = 1, .kv_heads = 1, .head_dim = 64}, {.capacity = 4, .batch = 4}};
        auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, 1}).value();
        const std::vector<float> keys(64, 1.0F);
        std::vector<float> values(64, 1.0F);
        values[1] = std::numeric_limits<float>::quiet_NaN();
        pass.put(0, keys, values);
        std::vector<float> out(64);
        for (const Instructions instructions : all_instructions()) {
            detail::attend_with(instructions, pass, 0, keys, out, {}, CallingThread{});
            CHECK(std::isnan(out[1]));
            CHECK(std::isfinite(out[group]));
        }
    };
    check_format(q8_0{}, 32);
    check_format(q4_0{}, 32);
    check_format(iq4_nl{}, 32);
    check_format(nvfp4{}, 16);
    check_format(fp8_e4m3{}, 2);
    check_format(fp8_e5m2{}, 2);
}

/// fp8 with a factor for each head.
struct Scaled : fp8_e4m3 {
    using scale = float;
    static constexpr int values_per_scale = whole_head;
    static constexpr std::string_view name = "scaled";

    static void encode(std::span<const float> values, std::span<unit> units, std::span<scale> scales) {
        scales[0] = 1000;
        std::vector<float> divided(values.begin(), values.end());
        for (float& value : divided) value /= scales[0];
        fp8_e4m3::encode(divided, units);
    }
    static void decode(std::span<const unit> units, std::span<const scale> scales, std::span<float> values) {
        fp8_e4m3::decode(units, values);
        for (float& value : values) value *= scales[0];
    }
    static void unpack(std::span<const unit> units, std::span<const scale> scales, std::span<code> codes,
                       std::span<float> factors) {
        fp8_e4m3::unpack(units, codes, factors);
        factors[0] *= scales[0];
    }
};

/// The result of the last of some tokens whose keys are 1, for one of its values, with each set of instructions.
template <class Key, class Value, class Check>
void check_last(const std::vector<float>& values, std::size_t at, Check check) {
    const auto n = static_cast<int>(values.size() / 64);
    Cache<StandardV<Key, Value>> cache{{.layers = 1, .kv_heads = 1, .head_dim = 64}, {.capacity = 4, .batch = 4}};
    auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, n}).value();
    const std::vector<float> ones(values.size(), 1.0F);
    pass.put(0, ones, values);
    std::vector<float> out(values.size());
    for (const Instructions instructions : all_instructions()) {
        CAPTURE(static_cast<int>(instructions));
        detail::attend_with(instructions, pass, 0, ones, out, {}, CallingThread{});
        check(out[values.size() - 64 + at]);
    }
}

TEST_CASE("a format that adds scales to fp8 is read with its scales") {
    check_last<Scaled, Scaled>(std::vector<float>(64, 2000.0F), 5,
                               [](float found) { CHECK(found == doctest::Approx(2000).epsilon(0.01)); });
}

TEST_CASE("an infinity in the last of an odd number of cells stays one") {
    using Special = Fp8E5m2<Overflow::is_special>;
    for (const std::size_t cells : {1U, 2U, 3U}) {
        std::vector<float> values(cells * 64, 1.0F);
        values[(cells - 1) * 64 + 5] = std::numeric_limits<float>::infinity();
        check_last<Special, Special>(values, 5,
                                     [](float found) { CHECK(found == std::numeric_limits<float>::infinity()); });
    }
}

#ifdef CELLAR_HAS_X86_VECTORS
TEST_CASE("small scales of nvfp4 count also where denormal floats are taken for zeros") {
    const unsigned before = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(before | 0x8040);
    check_last<nvfp4, nvfp4>(std::vector<float>(64, 0.04F), 5, [](float found) { CHECK(found > 0.03F); });
    __builtin_ia32_ldmxcsr(before);
}
#endif

} // namespace test_codes
