// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "../stopwatch.hpp"
#include "../team.hpp"
#include "peer.hpp"
#include <cellar/attention/attend.hpp>
#include <cellar/cellar.hpp>
#include <cellar/format/blocks.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

/// `attend` beside the attention of other libraries over the same keys and values, with as many threads: 32 query heads
/// over 8 heads of 128 elements. `peers_decode` is one token of one sequence, `peers_prefill` 512 tokens after 4k
/// others. So many layers are called in turn that caches do not hold them. Counters:
///   ggml        ggml_flash_attn_ext, keys and values as llama.cpp keeps them
///   ggml_heads  the same with the rows of a head together, its best layout
///   torch       scaled_dot_product_attention of PyTorch with enable_gqa
///   torch_grouped  bmm, softmax, bmm over the heads of keys, each for the queries of its group
/// All are in real time, and take turns: a call that is not measured, so that a library's threads are awake, then those
/// that are, then a pause, in which these threads go to sleep. Before that, the results are compared.
namespace cellar::bench {
namespace {

/// What the keys and values of all libraries are made of.
template <class Layout>
using NumberOf = std::conditional_t<Element<typename Layout::key_format>, typename Layout::key_format, float>;

template <class Layout>
class Cellar final : public Peer {
    using E = NumberOf<Layout>;

public:
    Cellar(const Shape& shape, const Numbers<E>& numbers)
        : shape_{shape},
          memory_{CacheShape{.layers = shape.layers, .kv_heads = kv_heads, .head_dim = dim},
                  {.sequences = 1, .cells = shape.length, .batch = std::max(chunk, shape.tokens)}},
          q_{numbers.queries()},
          out_(q_.size()) {
        for (std::int32_t at = 0; at < shape.before(); at += chunk)
            put(numbers, at, std::min(chunk, shape.before() - at)).commit();
        pass_.emplace(put(numbers, shape.before(), shape.tokens));
    }

    std::string name() const override { return "cellar"; }

    /// The threads of a team spin until it is destroyed.
    void wake() override { team_ = std::make_unique<Team>(shape_.threads); }
    void rest() override { team_.reset(); }

    void attend(int layer) override {
        cellar::attend(*pass_, layer, contiguous_view(q_.data(), shape_.tokens, query_heads, dim),
                       contiguous_view(out_.data(), shape_.tokens, query_heads, dim), {.scale = attention_scale},
                       *team_);
    }

    std::vector<float> result() const override { return out_; }

private:
    static constexpr std::int32_t chunk = 512;

    auto put(const Numbers<E>& numbers, std::int32_t first, std::int32_t count) {
        auto pass = memory_.begin(BatchBuilder{Sequence{0}, Position{first}, count}).value();
        std::vector<E> k(static_cast<std::size_t>(count * Numbers<E>::row));
        std::vector<E> v(k.size());
        for (int layer = 0; layer < shape_.layers; ++layer) {
            for (std::int32_t i = 0; i < count; ++i) {
                std::copy_n(numbers.key(layer, first + i), Numbers<E>::row, k.data() + i * Numbers<E>::row);
                std::copy_n(numbers.value(layer, first + i), Numbers<E>::row, v.data() + i * Numbers<E>::row);
            }
            pass.put(layer, k, v);
        }
        return pass;
    }

    Shape shape_;
    Cache<Layout> memory_;
    std::optional<PassOf<Cache<Layout>>> pass_;
    std::vector<float> q_;
    std::vector<float> out_;
    std::unique_ptr<Team> team_;
};

/// The length of the difference, relative to that of the expected vector.
double relative_difference(const std::vector<float>& a, const std::vector<float>& expected) {
    double difference = 0;
    double length = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        difference += std::pow(static_cast<double>(a[i]) - expected[i], 2);
        length += std::pow(static_cast<double>(expected[i]), 2);
    }
    return a.size() == expected.size() ? std::sqrt(difference / length) : 1;
}

template <class Format>
void expect_agreement(const Peers& all, int layers, const std::string& what) {
    // ggml adds up values in half, PyTorch rounds weights to the elements, and formats of fewer bits round queries.
    const double allowed = std::is_same_v<Format, float> ? 1e-5 : 0.03;
    for (const int layer : {0, layers - 1}) {
        std::vector<float> expected;
        for (const auto& peer : all) {
            peer->wake();
            peer->attend(layer);
            peer->rest();
            if (expected.empty()) expected = peer->result();
            const double difference = relative_difference(peer->result(), expected);
            if (difference <= allowed) continue;
            std::fprintf(stderr, "cellar_bench_peers: %s: the result of %s differs by %.2g of its length\n",
                         what.c_str(), peer->name().c_str(), difference);
            std::exit(1);
        }
    }
}

template <class Layout>
void measure_shape(benchmark::State& state, const Shape& shape, const std::string& what) {
    using Format = typename Layout::key_format;
    const Numbers<NumberOf<Layout>> numbers{shape};
    Peers all;
    all.push_back(std::make_unique<Cellar<Layout>>(shape, numbers));
    const auto add = [&](Peers peers) {
        for (auto& peer : peers) all.push_back(std::move(peer));
    };
#if defined(CELLAR_BENCH_GGML)
    add(ggml_peers<Format>(shape, numbers));
#endif
#if defined(CELLAR_BENCH_TORCH)
    if constexpr (Element<Format>) add(torch_peers(shape, numbers));
#endif
    expect_agreement<Format>(all, shape.layers, what);
    const int calls = shape.tokens > 1 || shape.length > 4096 ? 1 : shape.length > 512 ? 3 : 20;
    std::vector<Stopwatch> watches(all.size());
    int layer = 0;
    const auto next = [&] { return layer = (layer + 1) % shape.layers; };
    for (auto _ : state) {
        for (std::size_t i = 0; i < all.size(); ++i) {
            all[i]->wake();
            all[i]->attend(next());
            watches[i].start();
            for (int call = 0; call < calls; ++call) all[i]->attend(next());
            watches[i].stop(calls);
            all[i]->rest();
            std::this_thread::sleep_for(std::chrono::milliseconds{20});
        }
        state.SetIterationTime(watches[0].last_seconds());
    }
    watches[0].report(state);
    for (std::size_t i = 1; i < all.size(); ++i) state.counters[all[i]->name()] = watches[i].median();
}

template <class Layout>
void add_layout(const std::string& name) {
    const auto add_shape = [&](const std::string& job, std::int32_t length, std::int32_t tokens, int iterations) {
        for (const int threads : {1, 2}) {
            using Format = typename Layout::key_format;
            const std::int64_t bytes =
                2 * Numbers<float>::row
                / cellar::detail::values_per_unit<Format> * std::int64_t{sizeof(cellar::detail::unit_of<Format>)}
                * length;
            const Shape shape{length, tokens, static_cast<int>((std::int64_t{256} << 20) / bytes + 2), threads};
            const std::int32_t before = tokens == 1 ? length : length - tokens;
            const std::string row = job + "/" + name + "_" + std::to_string(threads) + "/1/"
                                    + (before < 1024 ? std::to_string(before) : std::to_string(before / 1024) + "k");
            add(
                row + "/cellar", [=](benchmark::State& state) { measure_shape<Layout>(state, shape, row); },
                iterations);
        }
    };
    add_shape("peers_decode", 512, 1, 20);
    add_shape("peers_decode", 4096, 1, 10);
    add_shape("peers_decode", 32768, 1, 5);
    add_shape("peers_prefill", 4096 + 512, 512, 2);
}

} // namespace
} // namespace cellar::bench

int main(int argc, char** argv) {
    using namespace cellar;
    bench::real_time_only = true; // the other libraries' threads work, too
    bench::add_layout<Blocked<half>>("half_blocked");
    bench::add_layout<Blocked<bfloat16>>("bfloat16_blocked");
    bench::add_layout<Blocked<float>>("float_blocked");
    bench::add_layout<Blocked<q8_0>>("q8_0_blocked");
    bench::add_layout<Blocked<q4_0>>("q4_0_blocked");
    bench::add_layout<StandardV<q8_0>>("q8_0");
    bench::add_layout<StandardV<q4_0>>("q4_0");
    bench::add_layout<StandardV<half>>("half");
    bench::add_layout<StandardV<bfloat16>>("bfloat16");
    bench::add_layout<StandardV<float>>("float");
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
}
