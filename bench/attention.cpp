// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "filled.hpp"
#include "jobs.hpp"
#include "stopwatch.hpp"
#include "team.hpp"
#include <cellar/attention/attend.hpp>
#include <cellar/cellar.hpp>
#include <cellar/format/affine.hpp>
#include <cellar/format/blocks.hpp>
#include <cellar/format/fp4.hpp>
#include <cellar/format/fp8.hpp>
#include <cellar/format/int8.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

/// `attend`: one layer of 32 query heads over 8 heads of keys and values, 128 elements each; `attend_mla` has one head
/// of 576 elements, whose first 512 are the values, for 128 query heads. A batch is one token of each sequence, and for
/// `attend_prefill` 512 tokens of one. The state names the element and the threads, and in place of cells stands the
/// length of a sequence. So many layers are called in turn that caches do not hold them, except in the state `held`,
/// which is one layer. In the state `on_read`, keys are stored without rotary positions and rotated as they are read
/// (`RotateOnRead`). In the state `scattered`, sequences took cells in turn, 16 at a time. The counter `read` is the
/// time of plainly reading the same keys and values with as many threads, and `peak` that of as many multiplications
/// and additions in registers. They alternate with `attend`.
namespace cellar::bench {
namespace {

#if defined(__x86_64__)
#define CELLAR_BENCH_TARGET(instructions) [[gnu::target(instructions), gnu::noinline]]
#else
#define CELLAR_BENCH_TARGET(instructions) [[gnu::noinline]]
#endif

using Vector = float __attribute__((vector_size(32)));
using Wide = float __attribute__((vector_size(64)));

CELLAR_BENCH_TARGET("avx2")
float read_all(const char* memory, std::int64_t bytes) {
    const auto* const from = reinterpret_cast<const Vector*>(memory);
    Vector a{}, b{}, c{}, d{};
    for (std::int64_t i = 0; i + 4 <= bytes / std::int64_t{sizeof(Vector)}; i += 4) {
        a += from[i];
        b += from[i + 1];
        c += from[i + 2];
        d += from[i + 3];
    }
    return (a + b + c + d)[0];
}

// `steps` times twelve multiplications and additions of a vector.
#define CELLAR_BENCH_COMPUTE(name, V)                                                                                  \
    float name(std::int64_t steps, float value) {                                                                      \
        const V x = V{} + value;                                                                                       \
        V a = x, b = x + 1, c = x + 2, d = x + 3, e = x + 4, f = x + 5; /* or the compiler joins equal chains */       \
        V g = x + 6, h = x + 7, i = x + 8, j = x + 9, k = x + 10, l = x + 11;                                          \
        for (std::int64_t n = 0; n < steps; ++n) {                                                                     \
            a = a * x + x, b = b * x + x, c = c * x + x, d = d * x + x, e = e * x + x, f = f * x + x;                  \
            g = g * x + x, h = h * x + x, i = i * x + x, j = j * x + x, k = k * x + x, l = l * x + x;                  \
        }                                                                                                              \
        return (a + b + c + d + e + f + g + h + i + j + k + l)[0];                                                     \
    }
// clang-format off
CELLAR_BENCH_TARGET("avx2,fma") CELLAR_BENCH_COMPUTE(compute, Vector)
CELLAR_BENCH_TARGET("avx512f") CELLAR_BENCH_COMPUTE(compute_wide, Wide)
    // clang-format on

    float compute_at_peak(double operations) {
    const volatile float half = 0.5F; // volatile: unknown to the compiler
    const bool wide = detail::best_instructions() >= detail::Instructions::avx512;
    const auto steps = static_cast<std::int64_t>(operations / (wide ? 12 * 32 : 12 * 16));
    return wide ? compute_wide(steps, half) : compute(steps, half);
}

/// What is measured.
struct Case {
    int sequences;
    std::int32_t length;     ///< of each sequence, before the batch
    std::int32_t tokens = 1; ///< of each sequence, in the batch
    int threads = 1;
    bool held = false;
    bool scattered = false;
    bool shared = false; ///< all sequences begin with the same cells
    int heads = 32, kv_heads = 8, key_dim = 128, value_dim = 128;

    std::int64_t read_tokens() const { return std::int64_t{sequences} * (length + tokens); }
    int out_dim() const { return value_dim == 0 ? 512 : value_dim; }
    double operations() const {
        const double seen = sequences * static_cast<double>(tokens) * (length + (tokens + 1) / 2.0);
        return 2.0 * heads * (key_dim + out_dim()) * seen;
    }
};

/// The bytes of the units of one head. Scales in a plane of their own do not count.
template <class Format>
constexpr std::int64_t bytes_of(std::int64_t dim) {
    return dim / detail::values_per_unit<Format> * std::int64_t{sizeof(detail::unit_of<Format>)};
}

/// The first unit.
template <class View>
const char* first_of(const View& rows) {
    if constexpr (requires { rows.units; }) {
        return first_of(rows.units);
    } else {
        return reinterpret_cast<const char*>(rows.pointer);
    }
}

template <class Shift>
Shift shift_for(const Case& what) {
    if constexpr (rotates_on_read<Shift>) {
        return RopeShift<>{rope_frequencies(what.key_dim, 500000)};
    } else {
        return {};
    }
}

template <class Layout, class Shift>
class Scene {
public:
    using Key = typename Layout::key_format;
    using Value = typename Layout::value_format;

    explicit Scene(const Case& what)
        : what_{what},
          layers_{what.held ? 1 : static_cast<int>((std::int64_t{512} << 20) / layer_bytes(what) + 2)},
          memory_{CacheShape{.each_layer = std::vector<LayerShape>(static_cast<std::size_t>(layers_),
                                                                   {what.kv_heads, what.key_dim, what.value_dim})},
                  {.sequences = what.sequences,
                   .cells = static_cast<std::int32_t>(what.read_tokens()),
                   .batch = std::max(max_batch, what.tokens * what.sequences),
                   .placement = what.scattered ? Placement::scattered : Placement::blocks},
                  {},
                  shift_for<Shift>(what)} {
        const std::int32_t step = what.scattered ? 16 : std::min(max_batch, what.length);
        for (std::int32_t p = 0; p < what.length; p += step)
            for (int s = 0; s < (what.shared ? 1 : what.sequences); ++s)
                put(BatchBuilder{Sequence{s}, Position{p}, step}).commit();
        for (int s = 1; what.shared && s < what.sequences; ++s)
            expect(memory_.copy_prefix(Sequence{0}, Sequence{s}, Position{what.length}).has_value(),
                   "attend: the prefix cannot be shared");
    }

    auto begin() {
        BatchBuilder batch;
        for (int s = 0; s < what_.sequences; ++s)
            for (std::int32_t i = 0; i < what_.tokens; ++i) batch.add(Sequence{s}, Position{what_.length + i});
        return put(batch);
    }

    int layers() const { return layers_; }

    /// Reads what a layer holds of the sequences.
    template <class Pass>
    void read(Pass& pass, int layer, const Team& team) const {
        const auto rows = pass.in_place(layer);
        const std::int64_t heads = what_.read_tokens() * what_.kv_heads;
        read(first_of(rows.keys), heads * bytes_of<Key>(what_.key_dim), team);
        if (what_.value_dim != 0) read(first_of(rows.values), heads * bytes_of<Value>(what_.value_dim), team);
    }

private:
    static constexpr std::int32_t max_batch = 1024;

    static std::int64_t layer_bytes(const Case& what) {
        return what.read_tokens() * what.kv_heads * (bytes_of<Key>(what.key_dim) + bytes_of<Value>(what.value_dim));
    }

    auto put(const BatchBuilder& batch) {
        auto pass = memory_.begin(batch).value();
        // 6 times powers of two, which all formats hold, also those whose scales are rounded.
        const std::vector<float> k(static_cast<std::size_t>(pass.tokens() * what_.kv_heads * what_.key_dim), 0.09375F);
        const std::vector<float> v(static_cast<std::size_t>(pass.tokens() * what_.kv_heads * what_.value_dim), 0.1875F);
        for (int layer = 0; layer < layers_; ++layer) pass.put(layer, k, v);
        return pass;
    }

    static void read(const char* first, std::int64_t bytes, const Team& team) {
        const std::int64_t part = bytes / team.count() / 4096 * 4096;
        team.run([&](int i) { benchmark::DoNotOptimize(read_all(first + i * part, part)); });
    }

    Case what_;
    int layers_;
    Cache<Layout, FullCausal, Shift> memory_;
};

template <class Layout, class Shift>
void measure_attend(benchmark::State& state, const Case& what) {
    Scene<Layout, Shift> scene{what};
    const Team team{what.threads};
    auto pass = scene.begin();
    std::vector<float> q(static_cast<std::size_t>(pass.tokens() * what.heads * what.key_dim));
    for (std::size_t i = 0; i < q.size(); ++i) q[i] = std::sin(static_cast<float>(i));
    std::vector<float> out(static_cast<std::size_t>(pass.tokens() * what.heads * what.out_dim()));
    const auto results = contiguous_view(out.data(), pass.tokens(), what.heads, what.out_dim());
    Stopwatch read;
    Stopwatch peak;
    Stopwatch each;
    int layer = 0;
    measure(state, [&](Stopwatch& watch) {
        layer = (layer + 1) % scene.layers();
        read.start();
        scene.read(pass, (layer + scene.layers() / 2) % scene.layers(), team);
        read.stop();
        if (what.operations() > 1e9) {
            peak.start();
            team.run([&](int) { benchmark::DoNotOptimize(compute_at_peak(what.operations() / what.threads)); });
            peak.stop();
        }
        const auto queries = contiguous_view(q.data(), pass.tokens(), what.heads, what.key_dim);
        if (what.shared) {
            each.start();
            attend(pass, (layer + scene.layers() / 3) % scene.layers(), queries, results, {}, team);
            each.stop();
        }
        watch.start();
        attend(pass, layer, queries, results, {.reads_shared_once = what.shared}, team);
        watch.stop();
        expect(std::abs(out[0] - (what.value_dim == 0 ? 0.09375F : 0.1875F)) < 1e-3F,
               "attend: not the average of the values");
    });
    state.counters["read"] = read.median();
    if (what.operations() > 1e9) state.counters["peak"] = peak.median();
    if (what.shared) state.counters["each"] = each.median(); // every sequence reads all cells by itself
}

template <class Layout, class Shift = DisabledShift>
void add_case(const std::string& job, const std::string& state, Case what) {
    const std::string length =
        what.length < 1024 ? std::to_string(what.length) : std::to_string(what.length / 1024) + "k";
    for (const int threads : {1, 2}) {
        what.threads = threads;
        add(job + "/" + state + "_" + std::to_string(threads) + "/" + std::to_string(what.sequences) + "/" + length
                + "/cellar",
            [what](benchmark::State& results) { measure_attend<Layout, Shift>(results, what); });
    }
}

template <class Layout>
void add_layout(const std::string& element) {
    for (const std::int32_t length : {512, 4096, 32768}) {
        add_case<Layout>("attend_decode", element, {.sequences = 1, .length = length});
        add_case<Layout>("attend_decode", element + "_held", {.sequences = 1, .length = length, .held = true});
    }
    add_case<Layout>("attend_decode", element, {.sequences = 64, .length = 512});
    add_case<Layout>("attend_decode", element, {.sequences = 8, .length = 4096});
    add_case<Layout>("attend_decode", element + "_scattered", {.sequences = 8, .length = 4096, .scattered = true});
    add_case<Layout>("attend_decode", element + "_shared", {.sequences = 8, .length = 4096, .shared = true});
    add_case<Layout>("attend_prefill", element, {.sequences = 1, .length = 4096, .tokens = 512});
}

/// A format of fewer bits.
template <class Format>
void add_format(const std::string& name) {
    for (const std::int32_t length : {4096, 32768}) {
        add_case<StandardV<Format>>("attend_decode", name, {.sequences = 1, .length = length});
        add_case<Blocked<Format>>("attend_decode", name + "_blocked", {.sequences = 1, .length = length});
    }
    add_case<StandardV<Format>>("attend_prefill", name, {.sequences = 1, .length = 4096, .tokens = 512});
    add_case<Blocked<Format>>("attend_prefill", name + "_blocked", {.sequences = 1, .length = 4096, .tokens = 512});
}

template <class Layout>
void add_on_read(const std::string& element) {
    for (const std::int32_t length : {4096, 32768})
        add_case<Layout, RotateOnRead<>>("attend_decode", element + "_on_read", {.sequences = 1, .length = length});
    add_case<Layout, RotateOnRead<>>("attend_prefill", element + "_on_read",
                                     {.sequences = 1, .length = 4096, .tokens = 512});
}

} // namespace

void add_attention() {
    add_layout<StandardV<half>>("half");
    add_layout<StandardV<bfloat16>>("bfloat16");
    add_layout<StandardV<float>>("float");
    add_layout<Blocked<half>>("half_blocked");
    add_layout<Blocked<bfloat16>>("bfloat16_blocked");
    add_layout<Blocked<float>>("float_blocked");
    add_format<q8_0>("q8_0");
    add_format<int8_per_head>("int8");
    add_format<fp8_e4m3>("fp8_e4m3");
    add_format<q4_0>("q4_0");
    add_format<iq4_nl>("iq4_nl");
    add_format<nvfp4>("nvfp4");
    add_format<Affine<4, 64>>("affine4");
    add_on_read<StandardV<float>>("float");
    add_on_read<StandardV<half>>("half");
    add_on_read<Blocked<half>>("half_blocked");
    add_on_read<StandardV<q8_0>>("q8_0");
    add_on_read<Blocked<q4_0>>("q4_0_blocked");
    for (const std::int32_t length : {4096, 32768})
        add_case<StandardV<half>>(
            "attend_mla", "half",
            {.sequences = 1, .length = length, .heads = 128, .kv_heads = 1, .key_dim = 576, .value_dim = 0});
}

} // namespace cellar::bench
