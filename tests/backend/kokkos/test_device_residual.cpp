// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Attention on a device over a cache and its residual, compared with that of the host over the same tokens.
#include "backend/kokkos/attention.hpp"
#include "backend/kokkos/tools.hpp"
#include "violations.hpp"
#include <cellar/attention/attend_residual.hpp>
#include <cellar/format/blocks.hpp>

#include <string_view>

namespace test_device_residual {

using namespace cellar;
using cellar_test::Floats;
using cellar_test::LateDevice;
using cellar_test::not_a_number;
using cellar_test::OnDevice;
using cellar_test::RandomBatch;
using cellar_test::SmallLimits;
using cellar_test::TheDevice;
using cellar_test::WithLimits;

namespace {

constexpr int sequences = 3, group = 2;

struct Setup {
    std::vector<LayerShape> layers;
    SlidingWindow<> newest;
    std::vector<ChannelFactors> factors{}; ///< of the coarse cache
};

/// A coarse cache and an exact one, for any backend.
template <class Layout, class Window = FullCausal, class Shift = UnrotatedShift>
struct Kind {
    template <class Backend>
    using Coarse = Cache<Layout, Window, Shift, Backend>;
    template <class Backend>
    using Exact = Cache<StandardV<cellar::half>, SlidingWindow<>, Shift, Backend>;
    template <class Backend>
    using Memory = Hybrid<WithResidual, Coarse<Backend>, Exact<Backend>>;

    Window window{};
    Shift shift{};

    template <class Backend>
    Memory<Backend> memory(const Setup& setup, Backend of_coarse, Backend of_exact) const {
        const CacheLimits limits{.sequences = sequences, .cells = 2400, .batch = 300};
        return Memory<Backend>{
            static_cast<int>(setup.layers.size()),
            Coarse<Backend>{
                {.each_layer = setup.layers, .factors = setup.factors}, limits, window, shift, std::move(of_coarse)},
            Exact<Backend>{{.each_layer = setup.layers}, limits, setup.newest, shift, std::move(of_exact)}};
    }
    /// One instance does the work of both caches.
    template <class Backend>
    auto on_device(const Setup& setup) const {
        const typename Backend::execution_space space{};
        return memory(setup, Backend{space}, Backend{space});
    }
};

/// A memory on a device and one on the host, which do the same at random. The device is not waited for until several
/// passes are over.
template <class K, class Backend>
class Trial {
    using Device = typename K::template Memory<Backend>;
    using Host = typename K::template Memory<HostBackend>;

public:
    Trial(const K& kind, const Setup& setup, unsigned seed)
        : random_{seed},
          layers_{setup.layers},
          device_{kind.template on_device<Backend>(setup)},
          host_{kind.memory(setup, HostBackend{}, HostBackend{})} {}

    void run() {
        for (int i = 0; i < 12; ++i) {
            const Sequence s{draw(0, sequences - 1)};
            const int next = device_.next(s).value;
            if (draw_true(4)) copy(s, Sequence{draw(0, sequences - 1)}, Position{draw(0, next)});
            if (draw_true(5)) rewind(s, Position{draw(std::max(0, next - 3), next)});
            if (draw_true(3) && next > 1) {
                const int from = draw(0, next - 1);
                remove(s, Position{from}, Position{draw(from, next)});
            }
            if (!attend_to(i % 4 == 0 ? text(s, draw(60, 200)) : next_tokens())) remove(s, Position{0}, to_end);
            if (draw_true(3)) compare();
        }
        compare();
        if constexpr (!std::is_same_v<K, Kind<StandardV<float>, FullCausal, RopeShift<>>>) compare_rows();
    }

    /// Queries of a head that were compared.
    std::int64_t cases() const { return cases_; }

private:
    /// Results that a device may still be working on.
    struct Pending {
        OnDevice<Backend> out, sums;
        Floats expected, expected_sums;
        double allowed;
    };

    int draw(int from, int to) { return std::uniform_int_distribution<int>{from, to}(random_); }
    bool draw_true(int of = 2) { return draw(1, of) == 1; }
    Floats random(std::int64_t n, float size) {
        Floats floats(static_cast<std::size_t>(n));
        std::uniform_real_distribution<float> any{-size, size};
        for (float& x : floats) x = any(random_);
        return floats;
    }

    void copy(Sequence from, Sequence to, Position end) {
        if (from == to) return;
        CHECK(device_.copy_prefix(from, to, end).has_value() == host_.copy_prefix(from, to, end).has_value());
    }
    void rewind(Sequence s, Position to) {
        CHECK(device_.rewind(s, to).has_value() == host_.rewind(s, to).has_value());
    }
    void remove(Sequence s, Position begin, Position end) {
        CHECK(device_.remove(s, begin, end).has_value() == host_.remove(s, begin, end).has_value());
    }

    RandomBatch text(Sequence s, int count) const {
        RandomBatch tokens;
        for (int i = 0; i < count; ++i) {
            tokens.sequences.push_back(s);
            tokens.positions.push_back(device_.next(s) + i);
        }
        return tokens;
    }
    /// Of some sequences: in the order of positions, as groups, or as a tree.
    RandomBatch next_tokens() {
        RandomBatch tokens;
        std::vector<Position> next;
        for (int s = 0; s < sequences; ++s) next.push_back(device_.next(Sequence{s}));
        const bool grouped = draw_true(4);
        const bool tree = !grouped && draw_true(3);
        int s = draw(0, sequences - 1);
        for (int i = 0, count = draw_true() ? draw(1, 6) : draw(1, 40); i < count; ++i) {
            if (!tree && draw_true(5)) s = draw(0, sequences - 1);
            Position& end = next[static_cast<std::size_t>(s)];
            Position position = end;
            if (tree) {
                // A child of the token before it, or another child of that one's parent.
                const int parent = i == 0 || draw_true() ? i - 1 : tokens.parents.back();
                tokens.parents.push_back(parent);
                if (parent >= 0) position = tokens.positions[static_cast<std::size_t>(parent)] + 1;
            } else {
                end = end + 1;
            }
            tokens.sequences.push_back(Sequence{s});
            tokens.positions.push_back(position);
            const auto first = std::find(tokens.sequences.begin(), tokens.sequences.end(), Sequence{s});
            if (grouped) tokens.groups.push_back(draw_true() ? -1 : static_cast<int>(first - tokens.sequences.begin()));
        }
        return tokens;
    }

    /// False if they were refused.
    bool attend_to(const RandomBatch& tokens) {
        auto device = device_.begin(tokens.batch());
        auto host = host_.begin(tokens.batch());
        REQUIRE(device.has_value() == host.has_value());
        if (!device) return false;
        const int n = tokens.count();
        for (int layer = 0; layer < static_cast<int>(layers_.size()); ++layer) {
            const LayerShape& shape = layers_[static_cast<std::size_t>(layer)];
            const Floats k = random(std::int64_t{n} * shape.kv_heads * shape.key_dim, 1);
            const Floats v = random(std::int64_t{n} * shape.kv_heads * shape.value_dim, 1);
            device->put(layer, hold(k, n, shape.kv_heads, shape.key_dim), hold(v, n, shape.kv_heads, shape.value_dim));
            host->put(layer, contiguous_view(k.data(), n, shape.kv_heads, shape.key_dim),
                      contiguous_view(v.data(), n, shape.kv_heads, shape.value_dim));
            attend_in(*device, *host, layer, n);
        }
        if (!tokens.parents.empty()) return true; // a tree is not kept
        device->commit();
        host->commit();
        return true;
    }

    void attend_in(auto& device, auto& host, int layer, int n) {
        const LayerShape& shape = layers_[static_cast<std::size_t>(layer)];
        const int heads = shape.kv_heads * group;
        const int out_dim = shape.value_dim != 0 ? shape.value_dim : 40;
        const Floats q = random(std::int64_t{n} * heads * shape.key_dim, 1);
        const Floats slopes = random(draw_true(3) ? heads : 0, 0.1F), sinks = random(draw_true(3) ? heads : 0, 2);
        // A device does not round queries.
        AttentionOptions options{
            .soft_cap = draw_true(3) ? 1.5F : 0.0F, .slopes = slopes, .sinks = sinks, .exact_queries = true};
        const Floats nothing(static_cast<std::size_t>(n * heads * out_dim), not_a_number);
        const Floats no_sums(static_cast<std::size_t>(n * heads), not_a_number);
        const double product = 1.3 * std::sqrt(shape.key_dim);
        pending_.push_back({OnDevice<Backend>{nothing}, OnDevice<Backend>{no_sums}, nothing, no_sums,
                            2 * attention_test::bound(shape.key_dim, product, product, 0.1 * 2000, 1.3, 2000)});
        Pending& call = pending_.back();
        const bool sums = draw_true();
        if (sums) options.log_sum_exp = contiguous_view(call.sums.data(), n, heads);
        attend(device, layer, hold(q, n, heads, shape.key_dim), contiguous_view(call.out.data(), n, heads, out_dim),
               options);
        if (sums) options.log_sum_exp = contiguous_view(call.expected_sums.data(), n, heads);
        attend(host, layer, q, contiguous_view(call.expected.data(), n, heads, out_dim), options);
        cases_ += n * heads;
    }

    // On the device, until it was waited for.
    StridedView<const float, 3> hold(const Floats& floats, int n, int heads, int dim) {
        held_.emplace_back(floats);
        return contiguous_view(static_cast<const float*>(held_.back().data()), n, heads, dim);
    }

    void compare() {
        device_.fence();
        held_.clear();
        const auto is_near = [](float found, float expected, double allowed) {
            return std::abs(found - expected) <= allowed || found == expected
                   || (std::isnan(found) && std::isnan(expected));
        };
        for (const Pending& call : pending_) {
            const Floats found = call.out.read(), sums = call.sums.read();
            std::size_t wrong = 0;
            for (std::size_t i = 0; i < found.size(); ++i)
                wrong += std::abs(found[i] - call.expected[i]) <= call.allowed ? 0U : 1U;
            for (std::size_t i = 0; i < sums.size(); ++i)
                wrong += is_near(sums[i], call.expected_sums[i], 8 * call.allowed) ? 0U : 1U;
            CHECK(wrong == 0);
        }
        pending_.clear();
    }

    // Both caches hold the bits of the host's.
    void compare_rows() {
        compare_rows_of<typename K::template Coarse<Backend>, typename K::template Coarse<HostBackend>>();
        compare_rows_of<typename K::template Exact<Backend>, typename K::template Exact<HostBackend>>();
    }
    template <class OfDevice, class OfHost>
    void compare_rows_of() {
        auto& device = device_.template member<OfDevice>();
        auto& host = host_.template member<OfHost>();
        std::vector<Cell> cells;
        for (int s = 0; s < sequences; ++s)
            host.visit_cells(Sequence{s}, [&](Position, Cell cell, int n) {
                for (int i = 0; i < n; ++i) cells.push_back(cell + i);
            });
        const LayerShape& shape = layers_[0];
        const auto n = static_cast<std::int64_t>(cells.size());
        Floats k(static_cast<std::size_t>(n * shape.kv_heads * shape.key_dim)), v(k.size());
        const OnDevice<Backend> keys{k}, values{v};
        const auto view = [&](float* rows) { return contiguous_view(rows, n, shape.kv_heads, shape.key_dim); };
        host.reserve(1).gather(0, cells, view(k.data()), view(v.data()));
        device.reserve(1).gather(0, cells, view(keys.data()), view(values.data()));
        device.fence();
        CHECK(keys.read() == k);
        CHECK(values.read() == v);
    }

    std::mt19937 random_;
    std::vector<LayerShape> layers_;
    std::vector<Pending> pending_;
    std::vector<OnDevice<Backend>> held_;
    Device device_;
    Host host_;
    std::int64_t cases_ = 0;
};

template <class Backend, class K>
void check_residual(int trials, const K& kind, Setup setup) {
    std::int64_t cases = 0;
    for (unsigned seed = 0; seed < static_cast<unsigned>(trials); ++seed) {
        CAPTURE(seed);
        Trial<K, Backend> trial{kind, setup, seed};
        trial.run();
        cases += trial.cases();
    }
    MESSAGE(cases << " queries of a head were compared");
    CHECK(cases > 0);
}

} // namespace

TEST_CASE("device: a residual equals that of the host: 4 bits with factors, in windows with sinks") {
    Floats factors;
    for (int i = 0; i < 64; ++i) factors.push_back(1.0F + static_cast<float>(i % 5));
    const std::vector<LayerShape> layers{{2, 32, 32}, {1, 64, 32}};
    const Floats of_values(factors.begin(), factors.begin() + 32);
    check_residual<TheDevice>(8, Kind<StandardV<q4_0>>{},
                              {layers, SlidingWindow<>{24, {.sinks = 3}}, {{factors, factors}, {factors, of_values}}});
}

TEST_CASE("device: a residual equals that of the host: windows of both caches, divided into many parts") {
    using Small = WithLimits<TheDevice, SmallLimits>;
    const std::vector<LayerShape> layers{{2, 32, 32}, {1, 64, 0}};
    check_residual<Small>(8, Kind<Blocked<q8_0>, SlidingWindow<>>{SlidingWindow<>{150, {.retention = 250, .sinks = 4}}},
                          {layers, SlidingWindow<>{70, {.retention = 120}}});
    check_residual<Small>(8, Kind<PermutedV<bfloat16>, ChunkedAttention<>>{ChunkedAttention<>{90}},
                          {layers, SlidingWindow<>{1}});
}

TEST_CASE("device: a residual equals that of the host: keys that rotate, a residual that shows everything") {
    const RopeShift<> rope{rope_frequencies(32)};
    const Kind<StandardV<float>, FullCausal, RopeShift<>> kind{{}, rope};
    for (const int newest : {20, 2000}) check_residual<TheDevice>(8, kind, {{{2, 32, 32}}, SlidingWindow<>{newest}});
}

namespace {

constexpr int heads = 4, dim = 32, layers = 2;
const Kind<StandardV<float>> floats;
const Setup of_floats{std::vector<LayerShape>(std::size_t{layers}, LayerShape{heads / group, dim, dim}),
                      SlidingWindow<>{8}};

template <class T, class Backend>
auto rows(const OnDevice<Backend, T>& elements, int n, int of_heads = heads) {
    return contiguous_view(static_cast<const T*>(elements.data()), n, of_heads, dim);
}
template <class T, class Backend>
auto results(const OnDevice<Backend, T>& elements, int n) {
    return contiguous_view(elements.data(), n, heads, dim);
}

/// Waits, because the rows do not outlive the call.
template <class Backend>
void put(auto& memory, auto& pass, const Floats& k) {
    const OnDevice<Backend> both{k};
    for (int layer = 0; layer < layers; ++layer)
        pass.put(layer, rows(both, pass.tokens(), heads / group), rows(both, pass.tokens(), heads / group));
    memory.fence();
}

Floats wave(int n) {
    return attention_test::wave(n * heads * dim, 1);
}
Floats keys(int n) {
    return attention_test::wave(n * heads / group * dim, 2);
}

} // namespace

TEST_CASE("device: results of a residual are rounded once, and those of a reserved pass are zeros") {
    auto memory = floats.on_device<TheDevice>(of_floats);
    {
        auto pass = memory.reserve(5);
        const OnDevice<TheDevice> q{wave(5)}, out{Floats(std::size_t{5} * heads * dim, not_a_number)};
        attend(pass, 0, rows(q, 5), results(out, 5));
        memory.fence();
        CHECK(out.read() == Floats(std::size_t{5} * heads * dim));
    }
    auto pass = memory.begin(Sequence{0}, 30).value();
    put<TheDevice>(memory, pass, keys(30));
    const OnDevice<TheDevice> q{wave(30)}, out{Floats(std::size_t{30} * heads * dim, not_a_number)};
    const OnDevice<TheDevice, cellar::half> of_halves{std::vector<cellar::half>(std::size_t{30} * heads * dim)};
    attend(pass, 0, rows(q, 30), results(out, 30));
    attend(pass, 0, rows(q, 30), results(of_halves, 30));
    memory.fence();
    const Floats exact = out.read();
    const std::vector<cellar::half> found = of_halves.read();
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < exact.size(); ++i) wrong += found[i].bits == cellar::half{exact[i]}.bits ? 0U : 1U;
    CHECK(wrong == 0);
}

TEST_CASE("device: what a cache does not show does not get through a residual") {
    auto memory = floats.on_device<TheDevice>(of_floats);
    auto& coarse = memory.member<Kind<StandardV<float>>::Coarse<TheDevice>>();
    auto& exact = memory.member<Kind<StandardV<float>>::Exact<TheDevice>>();
    const Floats good(std::size_t{30} * heads / group * dim, 0.5F), bad(good.size(), not_a_number);
    const auto commit = [&](int n, const Floats& of_coarse, const Floats& of_exact) {
        auto a = coarse.begin(Sequence{0}, n).value();
        auto b = exact.begin(Sequence{0}, n).value();
        put<TheDevice>(memory, a, of_coarse);
        put<TheDevice>(memory, b, of_exact);
        a.commit(), b.commit();
    };
    commit(30, good, bad);
    commit(7, bad, good);
    auto pass = memory.begin(Sequence{0}, 1).value();
    put<TheDevice>(memory, pass, good);
    const OnDevice<TheDevice> q{Floats(std::size_t{heads} * dim, 0.5F)}, out{Floats(std::size_t{heads} * dim)};
    attend(pass, 0, rows(q, 1), results(out, 1));
    memory.fence();
    for (const float x : out.read()) CHECK(std::abs(x - 0.5F) < 1e-6F);
}

#if !defined(KOKKOS_ENABLE_CUDA) && !defined(KOKKOS_ENABLE_HIP)
TEST_CASE("device: a residual on another instance is a violation") {
    auto memory = floats.memory(of_floats, LateDevice{}, LateDevice{});
    auto pass = memory.begin(Sequence{0}, 1).value();
    put<LateDevice>(memory, pass, keys(1));
    const OnDevice<LateDevice> q{wave(1)}, out{Floats(std::size_t{heads} * dim)};
    CHECK(violation_of([&] { attend(pass, 0, rows(q, 1), results(out, 1)); })
          == "attend_residual: the memories have backends with different instances of the execution space, expected "
             "one, so that their work is done in order");
}

TEST_CASE("fences: attention with a residual waits for nothing, and uploads what each of two caches uploads") {
    auto memory = floats.on_device<LateDevice>(of_floats);
    {
        auto pass = memory.begin(Sequence{0}, 300).value();
        put<LateDevice>(memory, pass, keys(300));
        pass.commit();
    }
    const OnDevice<LateDevice> k{keys(1)}, q{wave(1)}, out{Floats(std::size_t{heads} * dim)};
    int fences = 0, kernels = 0, allocations = 0, copies = 0;
    for (int i = 0; i < 3; ++i) {
        fences = kernels = allocations = 0;
        auto pass = memory.begin(Sequence{0}, 1).value();
        const cellar_test::Listener listener{{.kernel = [&](std::string_view) { ++kernels; },
                                              .fence = [&](std::string_view) { ++fences; },
                                              .allocation = [&](std::string_view) { ++allocations; },
                                              .copy = [&](auto...) { ++copies; }}};
        for (int layer = 0; layer < layers; ++layer) {
            pass.put(layer, rows(k, 1, heads / group), rows(k, 1, heads / group));
            copies = 0;
            attend(pass, layer, rows(q, 1), results(out, 1));
            // Of each cache, tokens, blocks and runs; those of the coarse one once: then it goes on in its last run.
            CHECK(copies == (layer != 0 ? 0 : i == 0 ? 6 : 5));
        }
        pass.commit();
    }
    CHECK(fences == 0);
    CHECK(allocations == 0);
    // Keys and values are put in both caches; both are attended to, and the coarse one's history has two parts.
    CHECK(kernels == layers * (4 + 3));
    memory.fence();
}
#endif

} // namespace test_device_residual
