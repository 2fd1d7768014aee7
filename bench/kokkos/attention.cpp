// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "layers.hpp"
#include <cellar/attention/attend.hpp>
#include <cellar/cache/cache.hpp>
#include <cellar/shift/disabled_shift.hpp>
#include <cellar/window/full_causal.hpp>

#include <algorithm>
#include <stdexcept>

/// `attend` in all layers, 32 query heads over 8 heads of keys and values. A batch is one token of each sequence, and for
/// `attend_prefill` 512 tokens of one. The counter `read` is the time of plainly reading the same keys and values in all
/// layers. In place of cells stands the length of a sequence.
namespace cellar::bench {
namespace {

constexpr int heads = 32;

struct Case {
    int sequences;
    std::int32_t length;     ///< of each sequence, before the batch
    std::int32_t tokens = 1; ///< of each sequence, in the batch

    std::int32_t cells() const { return sequences * (length + tokens); }
};

// Eight times 16 bytes of each tensor a thread, neighbouring ones in neighbouring threads.
struct Read {
    struct alignas(16) Words {
        std::uint64_t first, second;
    };
    const Words* keys;
    const Words* values;
    std::int64_t threads;
    std::uint64_t* never; // written, so that the compiler leaves the loads

    KOKKOS_FUNCTION void operator()(std::int64_t thread) const {
        std::uint64_t sum = 0;
        for (int i = 0; i < 8; ++i) {
            const Words& k = keys[i * threads + thread];
            const Words& v = values[i * threads + thread];
            sum += k.first + k.second + v.first + v.second;
        }
        if (sum == 1) *never = sum;
    }
};

// Halves and bfloat16 between 1/8 and 1, of random bits.
template <class E>
struct Fill {
    std::uint16_t* bits;

    KOKKOS_FUNCTION void operator()(std::int64_t i) const {
        auto x = static_cast<std::uint32_t>(i) * 2654435761U;
        x ^= x >> 15U;
        constexpr bool is_half = std::is_same_v<E, half>;
        bits[i] = static_cast<std::uint16_t>((is_half ? 0x3000U : 0x3E00U) + x % (is_half ? 0x0C00U : 0x0180U));
    }
};

template <class Layout>
class Scene {
    using E = typename Layout::key_format;

public:
    explicit Scene(const Case& what)
        : what_{what},
          layers_{layers_of<E>(what.cells())},
          cache_{CacheShape{.layers = layers_, .kv_heads = kv_heads, .head_dim = head_dim},
                 {.sequences = what.sequences,
                  .cells = what.cells(),
                  .batch = std::max(max_batch, what.tokens * what.sequences)}} {
        const std::int32_t step = std::min(max_batch, what.length);
        for (int s = 0; s < what.sequences; ++s)
            for (std::int32_t p = 0; p < what.length; p += step)
                put(BatchBuilder{Sequence{s}, Position{p}, step}).commit();
    }

    auto begin() {
        BatchBuilder batch;
        for (int s = 0; s < what_.sequences; ++s)
            for (std::int32_t i = 0; i < what_.tokens; ++i) batch.add(Sequence{s}, Position{what_.length + i});
        return put(batch);
    }

    template <class Pass>
    void read(Pass& pass) {
        const Space& space = cache_.backend().space();
        const std::int64_t threads =
            what_.cells() * row * std::int64_t{sizeof(E)} / std::int64_t{8 * sizeof(Read::Words)};
        for (int layer = 0; layer < layers_; ++layer) {
            const auto rows = pass.in_place(layer);
            Kokkos::parallel_for(Kokkos::RangePolicy<Space>(space, 0, threads),
                                 Read{words(rows.keys.pointer), words(rows.values.pointer), threads, never_.data()});
        }
    }

    void fence() { cache_.fence(); }
    int layers() const { return layers_; }

private:
    static constexpr std::int32_t max_batch = 1024;

    static const Read::Words* words(const E* first) { return reinterpret_cast<const Read::Words*>(first); }

    auto put(const BatchBuilder& batch) {
        auto pass = cache_.begin(batch).value();
        Rows<E> rows{backend_, 1, pass.tokens()};
        for (auto& memory : rows.memory)
            Kokkos::parallel_for(Kokkos::RangePolicy<Space>(cache_.backend().space(), 0, pass.tokens() * row),
                                 Fill<E>{reinterpret_cast<std::uint16_t*>(memory.data())});
        for (int layer = 0; layer < layers_; ++layer) pass.put(layer, rows.keys(0), rows.values(0));
        cache_.fence();
        return pass;
    }

    Case what_;
    int layers_;
    Backend backend_;
    Cache<Layout, FullCausal, DisabledShift, Backend> cache_;
    Kokkos::View<std::uint64_t, Space> never_{"never"};
};

template <class Layout>
void measure_attend(benchmark::State& state, const Case& what) {
    using E = typename Layout::key_format;
    using Elements = Kokkos::View<E***, Kokkos::LayoutRight, Space>;
    Scene<Layout> scene{what};
    auto pass = scene.begin();
    const auto tokens = static_cast<std::size_t>(pass.tokens());
    const Elements queries{"queries", tokens, heads, head_dim};
    const Elements results{"results", tokens, heads, head_dim};
    Kokkos::parallel_for(Kokkos::RangePolicy<Space>(0, queries.size()),
                         Fill<E>{reinterpret_cast<std::uint16_t*>(queries.data())});
    Stopwatch read;
    measure(state, [&](Stopwatch& watch) {
        read.start();
        scene.read(pass);
        scene.fence();
        read.stop();
        watch.start();
        for (int layer = 0; layer < scene.layers(); ++layer) attend(pass, layer, queries, results);
        scene.fence();
        watch.stop();
    });
    const auto found = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, results);
    for (std::size_t i = 0; i < found.size(); ++i) {
        const auto x = static_cast<float>(found.data()[i]);
        if (!(x > 0.125F && x < 1)) throw std::runtime_error{"attend: not an average of the values"};
    }
    state.counters["read"] = read.median();
    state.counters["layers"] = scene.layers();
}

template <class Layout>
void add_layout(const std::string& element) {
    const auto add_case = [&](const std::string& job, const Case& what) {
        const std::string length =
            what.length < 1024 ? std::to_string(what.length) : std::to_string(what.length / 1024) + "k";
        add(job + "/" + element + "/" + std::to_string(what.sequences) + "/" + length + "/cellar",
            [what](benchmark::State& state) { measure_attend<Layout>(state, what); });
    };
    for (const std::int32_t length : {4096, 32768}) add_case("attend_decode", {.sequences = 1, .length = length});
    add_case("attend_decode", {.sequences = 8, .length = 4096});
    add_case("attend_decode", {.sequences = 64, .length = 1024});
    add_case("attend_prefill", {.sequences = 1, .length = 4096, .tokens = 512});
}

} // namespace

void add_attention() {
    add_layout<StandardV<half>>("half");
    add_layout<StandardV<bfloat16>>("bfloat16");
    add_layout<Blocked<half>>("half_blocked");
}

} // namespace cellar::bench
