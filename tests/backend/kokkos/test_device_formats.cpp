// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Formats of fewer bits on a device: bits, moves, rotations and attention are those of the host.
#include "backend/kokkos/attention.hpp"
#include "format/heads.hpp"
#include <cellar/format/affine.hpp>
#include <cellar/format/blocks.hpp>
#include <cellar/format/fp4.hpp>
#include <cellar/format/fp8.hpp>
#include <cellar/format/int8.hpp>
#include <cellar/format/rotated.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace test_device_formats {

using namespace cellar;
using cellar_test::Floats;
using cellar_test::OnDevice;
using cellar_test::TheDevice;
using SmallDevice = cellar_test::WithLimits<TheDevice, cellar_test::SmallLimits>;

namespace {

constexpr int heads = 3;

/// A format's planes in a backend's memory.
template <class F, class Mapping, class Backend>
class Planes {
    using U = detail::unit_of<F>;
    using S = detail::scale_of<F>;

public:
    Planes(Backend& backend, std::int64_t cells, int dim)
        : backend_{backend},
          units_{cells, heads, dim / detail::values_per_unit<F>},
          scales_{cells, heads, detail::scales_in<F>(dim)},
          unit_memory_{backend.template allocate<U>(units_.required_size())},
          scale_memory_{backend.template allocate<S>(scales_.required_size())} {}

    /// Calls f(planes...).
    template <class Function>
    void with(Function f) {
        const Plane<Mapping, typename Backend::template Buffer<U>> units{units_, unit_memory_};
        const Plane<Mapping, typename Backend::template Buffer<S>> scales{scales_, scale_memory_};
        if constexpr (detail::has_scale_plane<F>) {
            f(units, scales);
        } else {
            f(units);
        }
    }

    /// The bytes of all units and scales.
    std::vector<std::byte> bytes() {
        std::vector<U> units(static_cast<std::size_t>(unit_memory_.size()));
        std::vector<S> scales(static_cast<std::size_t>(scale_memory_.size()));
        backend_.copy_to_host(unit_memory_, 0, std::span{units});
        if constexpr (detail::has_scale_plane<F>) backend_.copy_to_host(scale_memory_, 0, std::span{scales});
        std::vector<std::byte> all(units.size() * sizeof(U) + scales.size() * sizeof(S));
        std::memcpy(all.data(), units.data(), units.size() * sizeof(U));
        std::memcpy(all.data() + units.size() * sizeof(U), scales.data(), scales.size() * sizeof(S));
        return all;
    }

private:
    Backend& backend_;
    Mapping units_;
    Mapping scales_;
    typename Backend::template Buffer<U> unit_memory_;
    typename Backend::template Buffer<S> scale_memory_;
};

/// Rows of heads that are hard to encode, and how many.
Floats hard_rows(int dim, int& rows) {
    std::vector<cellar_test::Head> all = cellar_test::finite_heads(dim, 30);
    Floats values;
    for (const auto& head : all) values.insert(values.end(), head.values.begin(), head.values.end());
    rows = static_cast<int>(all.size()) / heads;
    values.resize(static_cast<std::size_t>(rows * heads * dim));
    return values;
}

/// Every second cell.
std::vector<Cell> apart(int rows) {
    std::vector<Cell> cells;
    for (int i = 0; i < rows; ++i) cells.push_back(2 * i + 1);
    return cells;
}

/// From 1 to 8, so that no value becomes infinite; equal for elements that are half a head apart.
Floats some_factors(int dim) {
    Floats factors;
    for (int i = 0; i < heads * dim; ++i)
        factors.push_back(std::exp2(static_cast<float>((i / dim + i % (dim / 2)) % 10) / 3));
    return factors;
}

template <class F, class Mapping, class Backend>
void check_bits(int dim, const Floats& factors = {}) {
    CAPTURE(F::name);
    CAPTURE(dim);
    CAPTURE(factors.size());
    static_assert(StoresFormat<Backend, F>);
    int rows = 0;
    const Floats values = hard_rows(dim, rows);
    const std::vector<Cell> cells = apart(rows);
    Backend device;
    HostBackend host;
    Planes<F, Mapping, Backend> on_device{device, 2 * rows + 1, dim};
    Planes<F, Mapping, HostBackend> on_host{host, 2 * rows + 1, dim};
    const OnDevice<Backend> given{values};
    const OnDevice<Backend> read{Floats(values.size())};
    const OnDevice<Backend> device_factors{factors};
    const float* const by = factors.empty() ? nullptr : factors.data();
    const float* const device_by = factors.empty() ? nullptr : device_factors.data();
    on_device.with([&](const auto&... planes) {
        device.template encode<F>(cells, contiguous_view(static_cast<const float*>(given.data()), rows, heads, dim),
                                  device_by, planes...);
    });
    on_host.with([&](const auto&... planes) {
        host.template encode<F>(cells, contiguous_view(values.data(), rows, heads, dim), by, planes...);
    });
    CHECK(on_device.bytes() == on_host.bytes());

    Floats expected(values.size());
    on_device.with([&](const auto&... planes) {
        device.template decode<F>(cells, contiguous_view(read.data(), rows, heads, dim), device_by, planes...);
    });
    on_host.with([&](const auto&... planes) {
        host.template decode<F>(cells, contiguous_view(expected.data(), rows, heads, dim), by, planes...);
    });
    device.fence();
    CHECK(cellar_test::same_bits(read.read(), expected));
}

/// Rotations of keys differ by rounding, which may decide between two neighbouring codes.
template <class F, class Mapping, class Backend>
void check_rotation(int dim) {
    CAPTURE(F::name);
    constexpr int rows = 40;
    Floats values(std::size_t{rows} * heads * static_cast<std::size_t>(dim));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(0.37F * static_cast<float>(i));
    const std::vector<Cell> cells = apart(rows);
    const RopeShift<Neox> shift{rope_frequencies(dim)};
    const std::vector<KeyRotation> rotations{{1, 15, -7}, {20, 9, -7}, {31, 30, -123}};
    Backend device;
    HostBackend host;
    Planes<F, Mapping, Backend> on_device{device, 2 * rows + 1, dim};
    Planes<F, Mapping, HostBackend> on_host{host, 2 * rows + 1, dim};
    const OnDevice<Backend> given{values};
    const OnDevice<Backend> read{Floats(values.size())};
    Floats expected(values.size());
    on_device.with([&](const auto&... planes) {
        device.template encode<F>(cells, contiguous_view(static_cast<const float*>(given.data()), rows, heads, dim),
                                  nullptr, planes...);
        device.template rotate_encoded<F>(shift, 0, rotations, planes...);
        device.template decode<F>(cells, contiguous_view(read.data(), rows, heads, dim), nullptr, planes...);
    });
    on_host.with([&](const auto&... planes) {
        host.template encode<F>(cells, contiguous_view(static_cast<const float*>(values.data()), rows, heads, dim),
                                nullptr, planes...);
        host.template rotate_encoded<F>(shift, 0, rotations, planes...);
        host.template decode<F>(cells, contiguous_view(expected.data(), rows, heads, dim), nullptr, planes...);
    });
    device.fence();
    const Floats found = read.read();
    int different = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
        different += std::abs(found[i] - expected[i]) > 1e-6F ? 1 : 0;
        CHECK(std::abs(found[i] - expected[i]) < 0.3F); // a step of the coarsest of these formats
    }
    CHECK(different <= static_cast<int>(found.size()) / 100);
    CHECK(found != values);
}

/// Keys and values of some cells, as floats.
struct Rows {
    Floats keys, values;
};
/// Weighted values of a query, in double. Keys and values [cells, heads, dim].
std::vector<double> attended(const Rows& rows, const float* query, int head, int cells, int key_dim, int value_dim) {
    std::vector<double> scores;
    for (int cell = 0; cell < cells; ++cell) {
        double score = 0;
        for (int d = 0; d < key_dim; ++d)
            score += double{query[d]} * rows.keys[static_cast<std::size_t>((cell * heads + head) * key_dim + d)];
        scores.push_back(score / std::sqrt(key_dim));
    }
    const double largest = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    std::vector<double> found(static_cast<std::size_t>(value_dim));
    for (int cell = 0; cell < cells; ++cell) {
        const double weight = std::exp(scores[static_cast<std::size_t>(cell)] - largest);
        sum += weight;
        for (int d = 0; d < value_dim; ++d)
            found[static_cast<std::size_t>(d)] +=
                weight * rows.values[static_cast<std::size_t>((cell * heads + head) * value_dim + d)];
    }
    for (double& x : found) x /= sum;
    return found;
}

Floats some_floats(std::int64_t n, float by) {
    Floats floats(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < floats.size(); ++i)
        floats[i] = std::sin(by * static_cast<float>(i)) + (i % 97 == 0 ? 3.0F : 0.0F);
    return floats;
}

/// For one layer. Elements are not divided.
template <class Layout>
std::vector<ChannelFactors> factors_for(int dim, int value_dim) {
    ChannelFactors found;
    if (!Element<typename Layout::key_format>) found.keys = some_factors(dim);
    if (!Element<typename Layout::value_format>) found.values = some_factors(value_dim);
    return {found};
}

/// A cache whose cells are shared, copied, rotated, moved, snapshotted and read again: attention over what it holds
/// then equals the definition. `no_values`: values are the first elements of the keys.
template <class Layout, class Backend>
void check_cache(int dim, int value_dim, bool no_values = false, bool divides = false) {
    CAPTURE(detail::format_of<typename Layout::key_format>::name);
    CAPTURE(detail::format_of<typename Layout::value_format>::name);
    CAPTURE(divides);
    using Memory = Cache<Layout, FullCausal, RopeShift<Neox>, Backend>;
    constexpr int group = 2;
    constexpr int tokens = 150;
    Memory memory{
        {.layers = 1,
         .kv_heads = heads,
         .head_dim = dim,
         .value_dim = no_values ? 0 : value_dim,
         .factors = divides ? factors_for<Layout>(dim, no_values ? 0 : value_dim) : std::vector<ChannelFactors>{}},
        {.sequences = 3, .capacity = 400, .batch = tokens},
        FullCausal{},
        RopeShift<Neox>{rope_frequencies(dim)}};
    std::vector<OnDevice<Backend>> kept;
    const auto given = [&](std::int64_t n, int each, float by) {
        kept.emplace_back(some_floats(n * heads * each, by));
        return contiguous_view(static_cast<const float*>(kept.back().data()), n, heads, each);
    };
    const auto append = [&](Sequence s, int n) {
        auto pass = memory.begin(s, n).value();
        pass.put(0, given(n, dim, 0.1F), given(n, no_values ? 0 : value_dim, 0.23F));
        pass.commit();
    };
    append(Sequence{0}, tokens);
    REQUIRE(memory.copy_prefix(Sequence{0}, Sequence{1}, Position{tokens - 20}));
    append(Sequence{1}, 3);
    REQUIRE(memory.remove(Sequence{1}, Position{10}, Position{31})); // copies and rotates
    auto snapshot = memory.snapshot(Sequence{1}).value();
    memory.offload(snapshot);
    REQUIRE(memory.remove(Sequence{0}, Position{0}, to_end));
    REQUIRE(memory.remove(Sequence{1}, Position{0}, to_end));
    append(Sequence{2}, 40);
    REQUIRE(memory.restore(Sequence{1}, snapshot));
    REQUIRE(memory.remove(Sequence{2}, Position{0}, to_end));
    memory.defragment();

    constexpr int queries = 3;
    auto pass = memory.begin(Sequence{1}, queries).value();
    const Floats q = some_floats(std::int64_t{queries} * heads * group * dim, 0.31F);
    const OnDevice<Backend> on_device{q};
    const OnDevice<Backend> out{Floats(static_cast<std::size_t>(queries * heads * group * value_dim))};
    pass.put(0, given(queries, dim, 0.7F), given(queries, no_values ? 0 : value_dim, 0.8F));
    attend(pass, 0, contiguous_view(static_cast<const float*>(on_device.data()), queries, heads * group, dim),
           contiguous_view(out.data(), queries, heads * group, value_dim));
    std::vector<Cell> cells;
    memory.visit_cells(Sequence{1}, [&](Position, Cell cell, std::int32_t n) {
        for (std::int32_t i = 0; i < n; ++i) cells.push_back(cell + i);
    });
    const auto n = static_cast<std::int64_t>(cells.size());
    REQUIRE(n == tokens - 20 + 3 - 21 + queries);
    const OnDevice<Backend> keys{Floats(static_cast<std::size_t>(n * heads * dim))};
    const OnDevice<Backend> values{Floats(static_cast<std::size_t>(n * heads * value_dim))};
    pass.gather(0, cells, contiguous_view(keys.data(), n, heads, dim),
                contiguous_view(values.data(), n, heads, no_values ? 0 : value_dim));
    memory.fence();
    Rows rows{keys.read(), values.read()};
    for (std::int64_t i = 0; no_values && i < n * heads; ++i)
        std::copy_n(rows.keys.begin() + i * dim, value_dim, rows.values.begin() + i * value_dim);
    const Floats found = out.read();
    pass.commit();
    double largest = 0;
    double error = 0;
    for (int token = 0; token < queries; ++token)
        for (int head = 0; head < heads * group; ++head) {
            const int seen = static_cast<int>(n) - queries + token + 1;
            const auto row = static_cast<std::size_t>(token * heads * group + head);
            const std::vector<double> exact =
                attended(rows, q.data() + row * static_cast<std::size_t>(dim), head / group, seen, dim, value_dim);
            for (std::size_t d = 0; d < exact.size(); ++d) {
                largest = std::max(largest, std::abs(exact[d]));
                error = std::max(error, std::abs(found[row * exact.size() + d] - exact[d]));
            }
        }
    CHECK(largest > 0.1);
    CHECK(error < 1e-5 * largest);
}

/// What a cache reads of rows that it divided.
template <class Layout, class Backend>
Floats stored_divided(const std::vector<LayerShape>& layers, int tokens) {
    std::vector<ChannelFactors> factors;
    for (const LayerShape& layer : layers)
        factors.push_back({some_factors(layer.key_dim), some_factors(layer.value_dim)});
    Cache<Layout, FullCausal, DisabledShift, Backend> memory{{.each_layer = layers, .factors = factors},
                                                             {.capacity = 64, .batch = tokens}};
    auto pass = memory.begin(BatchBuilder{Sequence{0}, Position{0}, tokens}).value();
    std::vector<OnDevice<Backend>> kept;
    const auto given = [&](int each, float by) {
        kept.emplace_back(some_floats(std::int64_t{tokens} * heads * each, by));
        return contiguous_view(static_cast<const float*>(kept.back().data()), tokens, heads, each);
    };
    const auto read = [&](int each) {
        kept.emplace_back(Floats(static_cast<std::size_t>(tokens * heads * each)));
        return contiguous_view(kept.back().data(), tokens, heads, each);
    };
    std::vector<std::size_t> results;
    for (int i = 0; i < std::ssize(layers); ++i) {
        const LayerShape& layer = layers[static_cast<std::size_t>(i)];
        pass.put(i, given(layer.key_dim, 0.13F), given(layer.value_dim, 0.29F));
        const auto keys = read(layer.key_dim);
        const auto values = read(layer.value_dim);
        pass.gather(i, pass.cells(), keys, values);
        results.insert(results.end(), {kept.size() - 2, kept.size() - 1});
    }
    memory.fence();
    pass.commit();
    Floats found;
    for (const std::size_t i : results) {
        const Floats some = kept[i].read();
        found.insert(found.end(), some.begin(), some.end());
    }
    return found;
}

using Turned = Rotated<Hadamard<64>, q4_0>;
using TurnedGroups = Rotated<Hadamard<128>, Affine<4>>;
using TurnedHeads = Rotated<Hadamard<32>, int8_per_head>;
using TurnedValues = Rotated<Hadamard<2>, fp8_e4m3>;
using BytesAndNibbles = StandardV<q8_0, q4_0>;
using HalfAndFours = StandardV<cellar::half, mxfp4>;
using HeadsAndHalf = StandardV<int8_per_head, cellar::half>;
using TurnedAndFloats = StandardV<Turned, fp8_e4m3>;
using BlocksOfGroups = Blocked<Affine<3>, 16, Affine<8>>;
using BlocksOfFours = Blocked<nvfp4, 64, iq4_nl>;

} // namespace

TEST_CASE_TEMPLATE("device: units and their values have the bits of the host", F, q8_0, q4_0, q4_1, q5_0, q5_1, iq4_nl,
                   mxfp4, nvfp4, nvfp4_four_over_six, fp8_e4m3, fp8_e5m2, Fp8E4m3<Overflow::is_special>,
                   Fp8E5m2<Overflow::is_special>, int8_per_head, Affine<2>, Affine<3>, Affine<4>, Affine<6>, Affine<8>,
                   Turned, TurnedGroups, TurnedHeads, TurnedValues) {
    check_bits<F, CellsHeadsDims, TheDevice>(128);
    check_bits<F, CellsHeadsDims, TheDevice>(128, some_factors(128));
}

TEST_CASE_TEMPLATE("device: units in blocks of cells, in many launches, have the bits of the host", F, q8_0, q4_1,
                   fp8_e4m3, TurnedGroups) {
    check_bits<F, BlocksHeadsCellsDims<16>, SmallDevice>(256);
    check_bits<F, BlocksHeadsCellsDims<16>, SmallDevice>(256, some_factors(256));
}

TEST_CASE_TEMPLATE("device: keys in units are rotated", F, q8_0, q4_1, fp8_e4m3, int8_per_head, Affine<4>, Turned) {
    check_rotation<F, CellsHeadsDims, TheDevice>(64);
}

TEST_CASE_TEMPLATE("device: a cache of units is shared, copied, moved and restored, and attention reads it", Layout,
                   StandardV<q8_0>, BytesAndNibbles, HalfAndFours, HeadsAndHalf, TurnedAndFloats, Blocked<Turned>,
                   BlocksOfGroups, BlocksOfFours) {
    check_cache<Layout, TheDevice>(128, 64);
    check_cache<Layout, TheDevice>(128, 64, false, true);
}

TEST_CASE_TEMPLATE("device: a cache of units, in many launches and parts", Layout, BytesAndNibbles, HeadsAndHalf,
                   Blocked<Turned>) {
    check_cache<Layout, SmallDevice>(64, 192);
    check_cache<Layout, SmallDevice>(64, 192, false, true);
}

TEST_CASE_TEMPLATE("device: values that are the first elements of keys in units", F, q8_0, q5_1, int8_per_head,
                   Turned) {
    check_cache<StandardV<F>, TheDevice>(192, 64, true);
    check_cache<StandardV<F>, TheDevice>(192, 64, true, true);
}

TEST_CASE_TEMPLATE("device: channels are divided by factors as on the host", Layout, StandardV<q8_0>, BytesAndNibbles,
                   StandardV<int8_per_head>, Blocked<Turned>) {
    const std::vector<LayerShape> layers{{heads, 128, 64}, {heads, 192, 0}};
    using Host = KokkosBackend<cellar_test::HostSpace>;
    const Floats found = stored_divided<Layout, TheDevice>(layers, 40);
    CHECK(cellar_test::same_bits(found, stored_divided<Layout, Host>(layers, 40)));
    CHECK(cellar_test::same_bits(found, stored_divided<Layout, SmallDevice>(layers, 40)));
}

} // namespace test_device_formats
