// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Attention on a device in cases that say by themselves what must come out. Random histories are in
// test_device_attention.cpp.
#include "backend/kokkos/attention.hpp"
#include "backend/kokkos/tools.hpp"
#include "violations.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace test_device_attention_cases {

using namespace cellar;
using cellar_test::Floats;
using cellar_test::LateDevice;
using cellar_test::not_a_number;
using cellar_test::OnDevice;
using cellar_test::SmallLimits;
using cellar_test::TheDevice;
using cellar_test::WithLimits;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr int heads = 4, kv_heads = 2, dim = 32, layers = 2;
const CacheShape shape{.layers = layers, .kv_heads = kv_heads, .head_dim = dim};

/// Numbers between -1 and 1 that look random: the same ones for the same `first`.
Floats wave(int n, int first) {
    Floats floats(static_cast<std::size_t>(n));
    for (int i = 0; i < n; ++i)
        floats[static_cast<std::size_t>(i)] = static_cast<float>(std::sin(first + 1.7 * i + 0.3 * i * i));
    return floats;
}

/// Keys or values that depend on sequence and position alone.
Floats rows_of(int sequence, int first, int n, int kind) {
    Floats rows;
    for (int i = 0; i < n; ++i) {
        const Floats row = wave(kv_heads * dim, kind + 1000 * sequence + 7 * (first + i));
        rows.insert(rows.end(), row.begin(), row.end());
    }
    return rows;
}

/// Waits, because the rows do not outlive the call.
template <class Backend>
void put(auto& cache, auto& pass, int layer, const Floats& k, const Floats& v) {
    const OnDevice<Backend> keys{k}, values{v};
    pass.put(layer, contiguous_view(static_cast<const float*>(keys.data()), pass.tokens(), kv_heads, dim),
             contiguous_view(static_cast<const float*>(values.data()), pass.tokens(), kv_heads, dim));
    cache.fence();
}

template <class Backend>
auto begin(auto& cache, int sequence, int n) {
    const int first = cache.next(Sequence{sequence}).value;
    auto pass = cache.begin(BatchBuilder{Sequence{sequence}, Position{first}, n}).value();
    for (int layer = 0; layer < layers; ++layer)
        put<Backend>(cache, pass, layer, rows_of(sequence, first, n, 0), rows_of(sequence, first, n, 500));
    return pass;
}

/// Waits for the results.
template <class Backend>
Floats attended(auto& cache, auto& pass, const AttentionOptions& options = {}, Floats* sums = nullptr) {
    const OnDevice<Backend> q{wave(pass.tokens() * heads * dim, 3)};
    const OnDevice<Backend> out{Floats(static_cast<std::size_t>(pass.tokens() * heads * dim), not_a_number)};
    const OnDevice<Backend> log_sum_exp{Floats(static_cast<std::size_t>(pass.tokens() * heads), not_a_number)};
    AttentionOptions all = options;
    if (sums != nullptr) all.log_sum_exp = contiguous_view(log_sum_exp.data(), pass.tokens(), heads);
    attend(pass, 0, contiguous_view(static_cast<const float*>(q.data()), pass.tokens(), heads, dim),
           contiguous_view(out.data(), pass.tokens(), heads, dim), all);
    cache.fence();
    if (sums != nullptr) *sums = log_sum_exp.read();
    return out.read();
}

template <class Backend>
using CacheOn = Cache<StandardV<float>, FullCausal, DisabledShift, Backend>;

struct OneThread : SmallLimits {
    static constexpr int team_threads = 1;
};

} // namespace

TEST_CASE("device: attention depends neither on where tokens lie nor on the size of teams") {
    using Several = WithLimits<TheDevice, SmallLimits>;
    using One = WithLimits<TheDevice, OneThread>;
    CacheOn<Several> alone{shape, {.sequences = 1, .capacity = 600, .batch = 300}};
    CacheOn<Several> among{shape, {.sequences = 3, .capacity = 600, .batch = 300}};
    CacheOn<One> by_one{shape, {.sequences = 1, .capacity = 600, .batch = 300}};
    for (int i = 0; i < 300; i += 100) begin<Several>(alone, 0, 100).commit();
    begin<One>(by_one, 0, 300).commit();
    for (int i = 0; i < 300; ++i) { // every second cell, then every third one
        begin<Several>(among, 0, 1).commit();
        begin<Several>(among, 1, 1).commit();
        if (i % 2 == 0) begin<Several>(among, 2, 1).commit();
    }
    for (const int tokens : {1, 3, 40}) {
        auto a = begin<Several>(alone, 0, tokens);
        auto b = begin<Several>(among, 0, tokens);
        auto c = begin<One>(by_one, 0, tokens);
        const Floats expected = attended<Several>(alone, a);
        CHECK(attended<Several>(among, b) == expected);
        CHECK(attended<One>(by_one, c) == expected);
        CHECK(std::none_of(expected.begin(), expected.end(), [](float x) { return std::isnan(x); }));
    }
}

TEST_CASE("device: attention: what a later token of the batch holds does not reach an earlier one") {
    for (const float bad : {not_a_number, infinity}) {
        for (const int tokens : {2, 40}) {
            CacheOn<TheDevice> clean{shape, {.capacity = 200, .batch = 64}};
            CacheOn<TheDevice> dirty{shape, {.capacity = 200, .batch = 64}};
            auto expected = begin<TheDevice>(clean, 0, tokens);
            auto found = dirty.begin(BatchBuilder{Sequence{0}, Position{0}, tokens}).value();
            Floats k = rows_of(0, 0, tokens, 0), v = rows_of(0, 0, tokens, 500);
            std::fill(k.end() - kv_heads * dim, k.end(), bad);
            std::fill(v.end() - kv_heads * dim, v.end(), bad);
            for (int layer = 0; layer < layers; ++layer) put<TheDevice>(dirty, found, layer, k, v);
            const Floats a = attended<TheDevice>(clean, expected), b = attended<TheDevice>(dirty, found);
            const auto before = std::ptrdiff_t{tokens - 1} * heads * dim;
            CHECK(std::equal(a.begin(), a.begin() + before, b.begin()));
            CHECK(std::isnan(b[static_cast<std::size_t>(before)]));
        }
    }
}

TEST_CASE("device: attention: queries and results have any strides, and are float, half or bfloat16") {
    CacheOn<TheDevice> cache{shape, {.capacity = 100, .batch = 100}};
    begin<TheDevice>(cache, 0, 70).commit();
    auto pass = begin<TheDevice>(cache, 0, 3);
    const Floats expected = attended<TheDevice>(cache, pass);
    const Floats q = wave(3 * heads * dim, 3);
    const auto rows = contiguous_view(q.data(), 3, heads, dim);
    using Space = TheDevice::memory_space;
    const Kokkos::View<float***, Kokkos::LayoutLeft, Space> queries{"queries", 3, heads, dim};
    const auto host = Kokkos::create_mirror_view(queries);
    for (std::size_t t = 0; t < 3; ++t)
        for (std::size_t h = 0; h < heads; ++h)
            for (std::size_t d = 0; d < dim; ++d) host(t, h, d) = rows(t, h, d);
    Kokkos::deep_copy(queries, host);
    // [device]
    const Kokkos::View<float***, Kokkos::LayoutLeft, Space> results{"results", 3, heads, dim};
    cellar::attend(pass, 0, queries, results); // both on the device, [tokens, heads, dim]
    cache.fence();                             // before the host reads the results
    // [/device]
    Kokkos::deep_copy(host, results);
    const auto same = contiguous_view(expected.data(), 3, heads, dim);
    bool equal = true;
    for (std::size_t t = 0; t < 3; ++t)
        for (std::size_t h = 0; h < heads; ++h)
            for (std::size_t d = 0; d < dim; ++d) equal = equal && host(t, h, d) == same(t, h, d);
    CHECK(equal);
    // Halves of numbers with few bits are exact.
    Floats coarse(q.size());
    for (std::size_t i = 0; i < q.size(); ++i) coarse[i] = std::round(q[i] * 64) / 64;
    const OnDevice<TheDevice> floats{coarse}, of_floats{Floats(q.size())};
    const OnDevice<TheDevice, cellar::half> halves{{coarse.begin(), coarse.end()}},
        half_out{std::vector<cellar::half>(q.size())};
    const OnDevice<TheDevice, bfloat16> rounded{std::vector<bfloat16>(q.size())};
    const auto view = [](const auto& elements) { return contiguous_view(elements.data(), 3, heads, dim); };
    attend(pass, 0, view(floats), view(of_floats));
    attend(pass, 0, view(halves), view(half_out));
    attend(pass, 0, view(floats), view(rounded));
    cache.fence();
    const Floats a = of_floats.read();
    const std::vector<cellar::half> b = half_out.read();
    const std::vector<bfloat16> c = rounded.read();
    for (std::size_t i = 0; i < a.size(); ++i)
        equal = equal && b[i].bits == cellar::half{a[i]}.bits && c[i].bits == bfloat16{a[i]}.bits;
    CHECK(equal);
}

TEST_CASE("device: attention: keys alone, read by many heads, whose values are their first elements") {
    Cache<StandardV<float>, FullCausal, DisabledShift, TheDevice> cache{
        CacheShape{.each_layer = std::vector<LayerShape>{{1, 200, 0}}}, {.capacity = 90, .batch = 90}};
    Cache<StandardV<float>, FullCausal, DisabledShift, EigenBackend> exact{
        CacheShape{.each_layer = std::vector<LayerShape>{{1, 200, 0}}}, {.capacity = 90, .batch = 90}};
    auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, 70}).value();
    auto other = exact.begin(BatchBuilder{Sequence{0}, Position{0}, 70}).value();
    const Floats k = wave(70 * 200, 1), q = wave(70 * 7 * 200, 9);
    const OnDevice<TheDevice> keys{k}, queries{q}, out{Floats(70 * 7 * 130, not_a_number)};
    pass.put(0, contiguous_view(static_cast<const float*>(keys.data()), 70, 1, 200), StridedView<const float, 3>{});
    other.put(0, k, Floats{});
    attend(pass, 0, contiguous_view(static_cast<const float*>(queries.data()), 70, 7, 200),
           contiguous_view(out.data(), 70, 7, 130));
    Floats expected(70 * 7 * 130);
    attend(other, 0, q, contiguous_view(expected.data(), 70, 7, 130));
    cache.fence();
    const Floats found = out.read();
    for (std::size_t i = 0; i < found.size(); ++i) REQUIRE(std::abs(found[i] - expected[i]) < 1e-5F);
}

TEST_CASE("device: attention over an encoder's inputs: tokens that see none get zeros") {
    EncoderMemory<StandardV<float>, TheDevice> inputs{shape, {.sequences = 2, .capacity = 8, .batch = 4}};
    auto written = inputs.write(Sequence{0}, Position{1}, 3).value();
    for (int layer = 0; layer < layers; ++layer)
        put<TheDevice>(inputs, written, layer, rows_of(0, 0, 3, 0), rows_of(0, 0, 3, 500));
    written.commit();
    const std::vector<Position> positions{Position{0}, Position{1}, Position{5}};
    const std::vector<Sequence> sequences{Sequence{0}, Sequence{0}, Sequence{1}};
    auto pass = inputs.begin(Batch{positions, sequences}).value();
    Floats sums;
    const Floats out = attended<TheDevice>(inputs, pass, {}, &sums);
    const auto token = [&](std::ptrdiff_t i) {
        return Floats(out.begin() + i * heads * dim, out.begin() + (i + 1) * heads * dim);
    };
    CHECK(token(0) == Floats(std::size_t{heads} * dim));
    CHECK(token(2) == Floats(std::size_t{heads} * dim));
    CHECK(token(1) != Floats(std::size_t{heads} * dim));
    CHECK(sums[0] == -infinity);
    CHECK(std::isfinite(sums[heads]));
}

TEST_CASE("device: attention: a reserved pass gets zeros, and the pass after it does not") {
    CacheOn<TheDevice> cache{shape, {.capacity = 8, .batch = 8}};
    const Floats sinks(heads, 1.5F);
    {
        auto reserved = cache.reserve(5);
        Floats sums;
        CHECK(attended<TheDevice>(cache, reserved, {.sinks = sinks}, &sums) == Floats(std::size_t{5} * heads * dim));
        CHECK(sums == Floats(std::size_t{5} * heads, 1.5F));
    }
    auto pass = begin<TheDevice>(cache, 0, 1);
    const Floats out = attended<TheDevice>(cache, pass), v = rows_of(0, 0, 1, 500);
    for (std::size_t i = 0; i < out.size(); ++i) CHECK(out[i] == v[i / dim / 2 * dim + i % dim]); // two heads share one
}

TEST_CASE("device: attention: rows that no team has room for are a violation") {
    constexpr int many = 12000;
    Cache<StandardV<cellar::half>, FullCausal, DisabledShift, TheDevice> cache{
        {.layers = 1, .kv_heads = 1, .head_dim = many}, {.capacity = 2, .batch = 2}};
    auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, 1}).value();
    const OnDevice<TheDevice> k{Floats(many, 1.0F)}, out{Floats(many)};
    const auto rows = contiguous_view(static_cast<const float*>(k.data()), 1, 1, many);
    pass.put(0, rows, rows);
    const std::string why = violation_of([&] { attend(pass, 0, rows, contiguous_view(out.data(), 1, 1, many)); });
    CHECK(why.find("rows of 12000 and 12000 elements") != std::string::npos);
    cache.fence();
}

#if !defined(KOKKOS_ENABLE_CUDA) && !defined(KOKKOS_ENABLE_HIP)
TEST_CASE("fences: attention waits for nothing, and uploads what a pass sees once") {
    CacheOn<LateDevice> cache{shape, {.sequences = 3, .capacity = 600, .batch = 300}};
    begin<LateDevice>(cache, 0, 300).commit();
    begin<LateDevice>(cache, 1, 290).commit();
    const OnDevice<LateDevice> rows{wave(2 * kv_heads * dim, 1)}, q{wave(2 * heads * dim, 2)};
    const OnDevice<LateDevice> out{Floats(std::size_t{2} * heads * dim)};
    const auto token = contiguous_view(static_cast<const float*>(rows.data()), 2, kv_heads, dim);
    int fences = 0, copies = 0, kernels = 0, allocations = 0;
    for (int i = 0; i < 3; ++i) {
        fences = kernels = allocations = 0;
        BatchBuilder batch;
        batch.add(Sequence{0}, cache.next(Sequence{0})).add(Sequence{1}, cache.next(Sequence{1}));
        auto pass = cache.begin(batch).value();
        const cellar_test::Listener listener{{.kernel = [&](std::string_view) { ++kernels; },
                                              .fence = [&](std::string_view) { ++fences; },
                                              .allocation = [&](std::string_view) { ++allocations; },
                                              .copy = [&](auto...) { ++copies; }}};
        for (int layer = 0; layer < layers; ++layer) {
            pass.put(layer, token, token);
            copies = 0;
            attend(pass, layer, contiguous_view(static_cast<const float*>(q.data()), 2, heads, dim),
                   contiguous_view(out.data(), 2, heads, dim));
            // Tokens, blocks and, in the first pass, runs. Then each sequence goes on in its last run.
            CHECK(copies == (layer != 0 ? 0 : i == 0 ? 3 : 2));
        }
        pass.commit();
    }
    CHECK(fences == 0);
    CHECK(allocations == 0);
    CHECK(kernels == layers * 4); // keys and values are put; histories of two parts are joined
    cache.fence();
}
#endif

} // namespace test_device_attention_cases
