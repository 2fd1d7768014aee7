// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "../format/heads.hpp"
#include "matrix.hpp"
#include <cellar/format/affine.hpp>
#include <cellar/format/blocks.hpp>
#include <cellar/format/fp4.hpp>
#include <cellar/format/fp8.hpp>
#include <cellar/format/int8.hpp>
#include <cellar/format/rotated.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

// Formats of several values a unit, and of two planes: every operation keeps the bits of what was put. Only a shift that
// rotates encodes again, and then errors are bounded.

namespace test_host_formats {

namespace {

using namespace cellar;

/// The error of encoding, relative to the largest magnitude. Where several shifts let keys grow, with room for that.
template <class F>
constexpr double error_of = 0;
template <>
constexpr double error_of<q8_0> = 1.6 / 254;
template <>
constexpr double error_of<int8_per_head> = 1.6 / 254;
template <>
constexpr double error_of<Affine<8, 32>> = 1.0 / 60;
template <>
constexpr double error_of<fp8_e4m3> = 1.0 / 10;
template <>
constexpr double error_of<q5_1> = 1.0 / 20;
template <>
constexpr double error_of<q4_0> = 1.0 / 5;
template <>
constexpr double error_of<Rotated<Hadamard<32>, q4_0>> = 1.0; // of all values of a head together

template <cellar::StorageFormat F>
void store(std::span<float> head) {
    const std::vector<float> stored = cellar_test::StoredHead<F>{head}.decoded();
    std::copy(stored.begin(), stored.end(), head.begin());
}

const std::vector<property::Layer> layers{{2, 64, 64}, {1, 64, 64}, {2, 64, 64, 0}, {1, 64, 0}};

/// Of a head: from 1/2 to 2, equal for the elements that `Rotating` turns as pairs.
std::vector<float> factors_of_head() {
    std::vector<float> factors;
    for (int d = 0; d < 64; ++d) factors.push_back(d < 8 ? 0.7F : 0.5F + 0.25F * static_cast<float>(d % 7));
    return factors;
}
template <cellar::StorageFormat F>
void store_divided(std::span<float> head) {
    const std::vector<float> factors = factors_of_head();
    for (std::size_t d = 0; d < head.size(); ++d) head[d] /= factors[d];
    store<F>(head);
    for (std::size_t d = 0; d < head.size(); ++d) head[d] *= factors[d];
}

/// The same cache as `check` has, but with factors.
template <class Layout, class Shift>
void check_divided() {
    using Key = typename Layout::key_format;
    using Value = typename Layout::value_format;
    auto combination =
        property::combination<Layout, property::Full, Shift, HostBackend>("divided", layers, 4 * error_of<Key>);
    combination.rows.stored_as({store_divided<Key>, store_divided<Value>});
    combination.make = [](const property::Setting& setting) -> std::unique_ptr<property::Subject> {
        using Cache = cellar::Cache<Layout, FullCausal, typename Shift::type, HostBackend>;
        CacheShape shape = property::shape_of(layers);
        for (const LayerShape& layer : shape.each_layer) {
            ChannelFactors& factors = shape.factors.emplace_back();
            const std::vector<float> head = factors_of_head();
            for (int h = 0; h < layer.kv_heads; ++h) {
                factors.keys.insert(factors.keys.end(), head.begin(), head.end());
                if (layer.value_dim != 0) factors.values.insert(factors.values.end(), head.begin(), head.end());
            }
        }
        return std::make_unique<property::CacheSubject<Cache>>(
            Cache{shape, property::limits_of(setting), FullCausal{}, Shift::make()});
    };
    CHECK(property::agrees_with_model(combination));
}

template <class Layout, class Window, class Shift>
void check() {
    using Key = typename Layout::key_format;
    using Value = typename Layout::value_format;
    const std::string name =
        "HostBackend, " + std::string{Key::name} + " beside " + std::string{detail::format_of<Value>::name};
    auto combination = property::combination<Layout, Window, Shift, HostBackend>(name, layers, error_of<Key>);
    combination.rows.stored_as({store<Key>, store<Value>});
    CHECK(property::agrees_with_model(combination));
}

using Neox = property::Rotating<cellar::Neox>;
using Interleaved = property::Rotating<cellar::Interleaved>;

} // namespace

TEST_CASE("q8_0 and q4_0 agree with the naive model") {
    check<StandardV<q8_0>, property::Full, Neox>();
    check<StandardV<q4_0, q8_0>, property::Chunked<0>, Interleaved>();
}

TEST_CASE("channels that are divided by factors agree with the naive model") {
    check_divided<StandardV<q8_0>, Neox>();
}

TEST_CASE("rows of two planes agree with the naive model") {
    check<Blocked<int8_per_head, 4, q4_0>, property::Sliding<3>, Interleaved>();
    check<StandardV<Affine<8, 32>, Affine<4, 32>>, property::Full, Neox>();
}

TEST_CASE("keys of two planes beside values along cells agree with the naive model") {
    check<PermutedV<int8_per_head, half>, property::Full, Neox>();
}

TEST_CASE("keys that are rotated on read keep the bits that were put") {
    check<StandardV<q4_0, q8_0>, property::Sliding<3>, property::OnRead>();
}

TEST_CASE("rotated formats agree with the naive model") {
    check<StandardV<Rotated<Hadamard<32>, q4_0>, Rotated<Hadamard<64>, int8_per_head>>, property::Full, Neox>();
}

TEST_CASE("floats of 8 and of 4 bits agree with the naive model") {
    check<StandardV<fp8_e4m3, nvfp4>, property::Sliding<0>, Neox>();
    check<StandardV<mxfp4, fp8_e5m2>, property::Chunked<4>, property::Unrotated>();
}

TEST_CASE("blocks of 5 bits, and of levels, agree with the naive model") {
    check<StandardV<q5_1, iq4_nl>, property::Full, Neox>();
    check<StandardV<q5_0, q4_1>, property::Sliding<3>, property::Unrotated>();
}

} // namespace test_host_formats
