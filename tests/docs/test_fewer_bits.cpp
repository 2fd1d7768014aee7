// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The code and the table of docs/how-to/store-in-fewer-bits.md.
#include "format/heads.hpp"
#include "paths.hpp"
#include <cellar/attention/attend.hpp>
#include <cellar/attention/attend_residual.hpp>
#include <cellar/cache/channel_calibration.hpp>
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
#include <cstdio>
#include <fstream>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace test_fewer_bits {

using namespace cellar_test;

// [own]
/// Signs, and one scale for each 64 values: a bit a value, and a half.
struct Signs {
    struct unit {
        cellar::half scale;
        std::uint8_t signs[8];
    };
    static constexpr int values_per_unit = 64;
    static constexpr std::string_view name = "signs";

    static void encode(std::span<const float> values, std::span<unit> units) {
        for (std::size_t i = 0; i < values.size(); i += 64) {
            unit block{};
            float sum = 0;
            for (std::size_t k = 0; k < 64; ++k) {
                sum += std::abs(values[i + k]);
                if (values[i + k] < 0) block.signs[k / 8] |= static_cast<std::uint8_t>(1 << k % 8);
            }
            block.scale = static_cast<cellar::half>(sum / 64);
            units[i / 64] = block;
        }
    }
    static void decode(std::span<const unit> units, std::span<float> values) {
        for (std::size_t i = 0; i < values.size(); ++i) {
            const auto scale = static_cast<float>(units[i / 64].scale);
            values[i] = (units[i / 64].signs[i % 64 / 8] >> i % 8 & 1) != 0 ? -scale : scale;
        }
    }
};
// [/own]

// [matrix]
/// The rotation of an orthogonal matrix: one that was trained, for example.
struct Trained {
    static constexpr int values_per_rotation = 64;
    static constexpr std::string_view name = "trained";
    static inline float matrix[64][64] = {};

    static void rotate(std::span<float> head) { // matrix * part
        multiply(head, [](std::size_t i, std::size_t k) { return matrix[i][k]; });
    }
    static void undo(std::span<float> head) { // the transposed matrix is the inverse
        multiply(head, [](std::size_t i, std::size_t k) { return matrix[k][i]; });
    }

    static void multiply(std::span<float> head, float (*entry)(std::size_t, std::size_t)) {
        for (std::size_t begin = 0; begin < head.size(); begin += 64) {
            float rotated[64] = {};
            for (std::size_t i = 0; i < 64; ++i)
                for (std::size_t k = 0; k < 64; ++k) rotated[i] += entry(i, k) * head[begin + k];
            std::copy(rotated, rotated + 64, head.begin() + static_cast<std::ptrdiff_t>(begin));
        }
    }
};
// [/matrix]

namespace {

/// The root of the mean squared error of normally distributed values, relative to theirs, in percent.
template <cellar::StorageFormat F>
std::string error_of() {
    std::mt19937 random{1};
    std::normal_distribution<float> normal;
    double errors = 0;
    double values = 0;
    for (int n = 0; n < 400; ++n) {
        const Head head = make_head("normal", 128, [&](int) { return normal(random); });
        const std::vector<float> decoded = StoredHead<F>{head.values}.decoded();
        for (std::size_t i = 0; i < 128; ++i) {
            errors += (double{decoded[i]} - head.values[i]) * (double{decoded[i]} - head.values[i]);
            values += double{head.values[i]} * head.values[i];
        }
    }
    char text[16];
    std::snprintf(text, sizeof text, "%.2g", 100 * std::sqrt(errors / values));
    return text;
}

template <cellar::StorageFormat F>
std::string row(const char* name, const char* header, const char* bound, const char* what) {
    using Format = cellar::detail::format_of<F>;
    const int bytes = 128 / Format::values_per_unit * static_cast<int>(sizeof(typename Format::unit))
                      + (cellar::detail::has_scale_plane<F>
                             ? cellar::detail::scales_in<F>(128) * static_cast<int>(sizeof(cellar::detail::scale_of<F>))
                             : 0);
    char bits[16];
    std::snprintf(bits, sizeof bits, "%.4g", bytes * 8 / 128.0);
    return "| `" + std::string{name} + "` | `" + header + "` | " + bits + " | " + error_of<F>() + " | " + bound + " | "
           + what + " |\n";
}

std::string table() {
    using namespace cellar;
    return "| format | header in `cellar/format/` | bits a value | error in % | at most | what it is |\n"
           "|---|---|--:|--:|---|---|\n"
           + row<q8_0>("q8_0", "blocks.hpp", "a / 254", "bytes, a scale for 32 values")
           + row<int8_per_head>("int8_per_head", "int8.hpp", "a / 253",
                                "bytes, a scale for a head in a plane of its own")
           + row<fp8_e4m3>("fp8_e4m3", "fp8.hpp", "x / 16, or 2^-10", "floats of 8 bits, up to 448, no scale")
           + row<fp8_e5m2>("fp8_e5m2", "fp8.hpp", "x / 8, or 2^-17", "floats of 8 bits, up to 57344, no scale")
           + row<Affine<8>>("Affine<8>", "affine.hpp", "r / 255", "MLX's 8 bits, scale and bias for 64 values")
           + row<Affine<6>>("Affine<6>", "affine.hpp", "r / 63", "6 bits, the same")
           + row<q5_1>("q5_1", "blocks.hpp", "r / 62", "5 bits, scale and minimum for 32 values")
           + row<q5_0>("q5_0", "blocks.hpp", "a / 16", "5 bits, a scale for 32 values")
           + row<q4_1>("q4_1", "blocks.hpp", "r / 30", "4 bits, scale and minimum for 32 values")
           + row<iq4_nl>("iq4_nl", "blocks.hpp", "0.21 a", "16 levels, a scale for 32 values")
           + row<q4_0>("q4_0", "blocks.hpp", "a / 8", "4 bits, a scale for 32 values")
           + row<nvfp4_four_over_six>("nvfp4_four_over_six", "fp4.hpp", "0.18 a",
                                      "floats of 4 bits, the better of two scales for 16 values")
           + row<nvfp4>("nvfp4", "fp4.hpp", "0.18 a", "the same, with the usual scale")
           + row<Affine<4>>("Affine<4>", "affine.hpp", "r / 15", "MLX's 4 bits, scale and bias for 64 values")
           + row<mxfp4>("mxfp4", "fp4.hpp", "a / 4", "floats of 4 bits, a power of two for 32 values")
           + row<Affine<3>>("Affine<3>", "affine.hpp", "r / 7", "3 bits")
           + row<Affine<2>>("Affine<2>", "affine.hpp", "r / 3", "2 bits");
}

} // namespace

TEST_CASE("keys and values in fewer bits") {
    // [formats]
    using Layout = cellar::StandardV<cellar::q8_0>; // or StandardV<q8_0, q4_0>: keys and values apart
    cellar::Cache<Layout> cache{cellar::CacheShape{.layers = 32, .kv_heads = 8, .head_dim = 128}, {.capacity = 4096}};
    // [/formats]
    CHECK(cache.bytes() == std::int64_t{4096} * 32 * 8 * 2 * 128 / 32 * 34);
    CHECK(cache.bytes()
          == cellar::Cache<Layout>::bytes_for({.layers = 32, .kv_heads = 8, .head_dim = 128}, {.capacity = 4096}).data);
}

TEST_CASE("some layers stay exact") {
    constexpr int layers = 6;
    const cellar::CacheLimits limits{.sequences = 2, .capacity = 16, .batch = 8};
    // [layers]
    using Exact = cellar::Cache<cellar::StandardV<cellar::half>>;
    using Small = cellar::Cache<cellar::StandardV<cellar::q8_0, cellar::q4_0>>;
    std::vector<int> cache_of(layers, 1); // Small
    cache_of[0] = cache_of[1] = 0;        // the first two layers: Exact
    cellar::Hybrid<cellar::RunTimePattern, Exact, Small> memory{
        cache_of, Exact{{.layers = 2, .kv_heads = 1, .head_dim = 64}, limits},
        Small{{.layers = layers - 2, .kv_heads = 1, .head_dim = 64}, limits}};
    // [/layers]
    auto pass = memory.begin(cellar::BatchBuilder{cellar::Sequence{0}, cellar::Position{0}, 2}).value();
    std::vector<float> rows(2 * 64, 0.3F);
    rows[0] = 1;
    for (int layer = 0; layer < layers; ++layer) {
        std::vector<float> out(rows.size());
        pass.visit(layer, [&](auto& own, int index) {
            if constexpr (requires { own.history(); }) {
                own.put(index, rows, rows);
                cellar::attend(own, index, rows, out);
            }
        });
        CHECK(std::abs(out[1] - 0.3F) < (layer < 2 ? 1e-3F : 0.07F));
        CHECK((std::abs(out[1] - 0.3F) < 1e-3F) == (layer < 2));
    }
    pass.commit();
}

TEST_CASE("the newest tokens are exact") {
    constexpr int layers = 2, tokens = 80;
    const cellar::CacheShape shape{.layers = layers, .kv_heads = 1, .head_dim = 64};
    const cellar::CacheLimits limits{.sequences = 2, .capacity = 100, .batch = 80};
    std::vector<float> k(std::size_t{tokens} * 64, 0.3F), q(k), out(k.size());
    for (std::size_t token = 0; token < tokens; ++token) k[64 * token] = 1; // the largest of its block
    const std::vector<float>& v = k;
    // [residual]
    using Coarse = cellar::Cache<cellar::StandardV<cellar::q4_0>>;
    using Exact = cellar::Cache<cellar::StandardV<cellar::half>, cellar::SlidingWindow<>>;
    cellar::Hybrid<cellar::WithResidual, Coarse, Exact> memory{
        layers, Coarse{shape, limits}, Exact{shape, limits, cellar::SlidingWindow<>{64, {.sinks = 4}}}};
    auto pass = memory.begin(cellar::Sequence{0}, tokens).value();
    for (int layer = 0; layer < layers; ++layer) {
        pass.put(layer, k, v);               // in both
        cellar::attend(pass, layer, q, out); // <cellar/attention/attend_residual.hpp>
    }
    pass.commit();
    // [/residual]
    CHECK(std::abs(out[std::size_t{67} * 64 + 1] - 0.3F) < 1e-3F); // sees the first 4 and the newest 64
    const float coarser = std::abs(out[std::size_t{79} * 64 + 1] - 0.3F);
    CHECK((coarser > 1e-3F && coarser < 0.02F)); // sees 12 others
}

TEST_CASE("offloaded snapshots have fewer bits") {
    // [tiers]
    using Cache = cellar::Cache<cellar::StandardV<cellar::half>>;
    Cache cache{{.layers = 2, .kv_heads = 2, .head_dim = 64},
                {.sequences = 2, .cells = 64, .offload_as = cellar::stored_as<cellar::q8_0, cellar::q4_0>}};
    // [/tiers]
    auto pass = cache.begin(cellar::Sequence{0}, 10).value();
    const std::vector<float> rows(std::size_t{10} * 2 * 64, 0.25F);
    for (const int layer : {0, 1}) pass.put(layer, rows, rows);
    pass.commit();
    auto parked = cellar::park(cache, cellar::Sequence{0}).value();
    CHECK(parked.bytes() == std::int64_t{10} * 2 * 2 * 2 * (34 + 18));
    CHECK(cellar::unpark(cache, cellar::Sequence{1}, parked));
    CHECK(cache.tokens(cellar::Sequence{1}) == 10);
}

TEST_CASE("a rotation before four bits") {
    // [rotated]
    using Key = cellar::Rotated<cellar::Hadamard<128>, cellar::q4_0>;
    using Value = cellar::Rotated<cellar::Hadamard<64>, cellar::q4_0>;
    using Cache = cellar::Cache<cellar::StandardV<Key, Value>, cellar::FullCausal, cellar::RopeShift<>>;
    // [/rotated]
    static_assert(std::is_same_v<Key::stored, cellar::q4_0> && sizeof(Key::unit) == 18);
    Cache cache{cellar::CacheShape{.layers = 1, .kv_heads = 1, .head_dim = 128},
                {.capacity = 8},
                {},
                cellar::RopeShift<>{cellar::rope_frequencies(128)}};
    CHECK(cache.bytes() == 8 * 2 * 4 * 18);
}

TEST_CASE("channels are divided by factors") {
    using Format = cellar::Rotated<cellar::Hadamard<64>, cellar::q4_0>;
    using Cache = cellar::Cache<cellar::StandardV<Format>, cellar::FullCausal, cellar::RopeShift<>>;
    const cellar::CacheLimits limits{.capacity = 64, .batch = 64};
    const cellar::RopeShift<> rope{cellar::rope_frequencies(64)};
    cellar::CacheShape shape{.each_layer = {{2, 64, 64}}};
    std::mt19937 random{3};
    std::normal_distribution<float> normal;
    std::vector<float> k(40 * 2 * 64); // of 40 tokens
    for (std::size_t i = 0; i < k.size(); ++i) k[i] = (i % 64 == 9 ? 20.0F : 1.0F) * normal(random);
    const std::vector<float> v(k.size(), 1.0F), q(k.size(), 1.0F);
    const int layer = 0;
    // [factors]
    cellar::ChannelCalibration calibration{shape.each_layer};
    // For some text, in each layer of a pass over a cache that exists, beside put and attend:
    calibration.add(layer, q, k, v);
    // Once:
    shape.factors = calibration.factors({}, rope);
    Cache cache{shape, limits, {}, rope};
    // [/factors]
    const auto error = [&](Cache own) {
        auto pass = own.begin(cellar::BatchBuilder{cellar::Sequence{0}, cellar::Position{0}, 40}).value();
        pass.put(0, k, v);
        std::vector<float> keys(k.size());
        std::vector<float> values(v.size());
        pass.gather(0, pass.cells(), cellar::contiguous_view(keys.data(), 40, 2, 64),
                    cellar::contiguous_view(values.data(), 40, 2, 64));
        double sum = 0;
        for (std::size_t i = 0; i < k.size(); ++i) sum += i % 64 == 9 ? 0 : std::abs(double{keys[i]} - k[i]);
        return sum;
    };
    CHECK(error(std::move(cache)) < error(Cache{{.each_layer = shape.each_layer}, limits, {}, rope}) / 1.3);
}

TEST_CASE("a format and a rotation of one's own are stored, moved and attended to like any other") {
    for (std::size_t i = 0; i < 64; ++i) { // a mirror: orthogonal, and its own inverse
        for (std::size_t k = 0; k < 64; ++k) Trained::matrix[i][k] = (i == k ? 1.0F : 0.0F) - 1.0F / 32;
    }
    using Format = cellar::Rotated<Trained, Signs>;
    cellar::Cache<cellar::StandardV<Format, cellar::half>> cache{
        cellar::CacheShape{.layers = 1, .kv_heads = 1, .head_dim = 64}, {.sequences = 2, .capacity = 4}};
    std::vector<float> k(64);
    for (std::size_t i = 0; i < 64; ++i) k[i] = i % 3 == 0 ? -2.0F : 2.0F;
    Trained::undo(k); // so that rotating it gives a value that is stored exactly
    const std::vector<float> v(64, 0.5F);
    auto pass = cache.begin(cellar::BatchBuilder{cellar::Sequence{0}, cellar::Position{0}, 1}).value();
    pass.put(0, k, v);
    std::vector<float> keys(64);
    std::vector<float> values(64);
    pass.gather(0, pass.cells(), cellar::contiguous_view(keys.data(), 1, 1, 64),
                cellar::contiguous_view(values.data(), 1, 1, 64));
    for (std::size_t i = 0; i < 64; ++i) CHECK(keys[i] == doctest::Approx(k[i]).epsilon(1e-3));
    CHECK(values == v);
    std::vector<float> out(64);
    cellar::attend(pass, 0, k, out);
    CHECK(out == v); // the only token
    pass.commit();
}

TEST_CASE("the table of docs/how-to/store-in-fewer-bits.md is up to date") {
    std::ifstream file{source_dir() + "/docs/how-to/store-in-fewer-bits.md"};
    const std::string page{std::istreambuf_iterator<char>{file}, {}};
    if (page.find(table()) == std::string::npos) FAIL_CHECK("the page lacks this table:\n", table());
}

} // namespace test_fewer_bits
