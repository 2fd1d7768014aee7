// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "jobs.hpp"
#include "steps.hpp"

#include <cmath>
#include <cstring>
#include <vector>

/// Removing the newest token (`remove_tail`), and removing from the middle: behind a sequence's first 64 tokens, the
/// older half of the tokens is removed and the newer half moves down. `remove_shift` is the bookkeeping alone,
/// `remove_shift_data` also rotates the keys.
namespace cellar::bench {
namespace {

constexpr std::int32_t head = 64;
constexpr int rebuilds = 15; // every iteration fills a new cache, which takes longer than the measured part

struct FilledBook {
    explicit FilledBook(const Scene& scene) : book{limits_of(scene)} {
        if (scene.sequences == 1) {
            fill(book, scene);
        } else {
            decode(book, scene.sequences, scene.tokens());
        }
    }

    WholeBook book;
};

void measure_tail(benchmark::State& state, const Scene& scene) {
    FilledBook filled{scene};
    WholeBook& book = filled.book;
    const TokenList last = TokenList::prompt(cellar::Sequence{0}, Position{scene.tokens() - 1}, 1);
    measure(state, [&](Stopwatch& watch) {
        watch.start();
        (void)book.remove(cellar::Sequence{0}, Position{scene.tokens() - 1}, to_end, detail::MovedKeys::kept)
            .has_value();
        watch.stop();
        store(book, last.batch());
    });
}

void measure_tail_by_scan(benchmark::State& state, const Scene& scene) {
    const FilledBook filled{scene};
    const WholeBook& book = filled.book;
    ScanCache<FullCausal> scan{table_of(book), FullCausal{}};
    const TokenList last = TokenList::prompt(cellar::Sequence{0}, Position{scene.tokens() - 1}, 1);
    measure(state, [&](Stopwatch& watch) {
        watch.start();
        scan.remove(cellar::Sequence{0}, Position{scene.tokens() - 1}, to_end);
        watch.stop();
        scan.begin(last.batch(), Search::from_first);
    });
    expect_same_tokens(table_of(book), scan, "remove_tail");
}

Position half_of(const Scene& scene) {
    return Position{head + (scene.tokens() - head) / 2};
}

void measure_shift(benchmark::State& state, const Scene& scene) {
    measure(state, [&](Stopwatch& watch) {
        FilledBook filled{scene};
        WholeBook& book = filled.book;
        watch.start();
        (void)book.remove(cellar::Sequence{0}, Position{head}, half_of(scene), detail::MovedKeys::rotated).has_value();
        watch.stop();
    });
}

void measure_shift_by_scan(benchmark::State& state, const Scene& scene) {
    FilledBook whole{scene};
    WholeBook& book = whole.book;
    const ScanCache<FullCausal> filled{table_of(book), FullCausal{}};
    (void)book.remove(cellar::Sequence{0}, Position{head}, half_of(scene), detail::MovedKeys::rotated).has_value();
    measure(state, [&](Stopwatch& watch) {
        ScanCache<FullCausal> scan = filled;
        watch.start();
        scan.remove(cellar::Sequence{0}, Position{head}, half_of(scene));
        watch.stop();
        expect_same_tokens(table_of(book), scan, "remove_shift");
    });
}

// One layer of 8 heads of 128 elements in half precision: 2 KiB of keys per token.
constexpr int heads = 8;
constexpr int dim = 128;

void measure_rotation(benchmark::State& state, const Scene& scene) {
    using RotatedCache = Cache<StandardV<half>, FullCausal, RopeShift<Neox>>;
    RotatedCache cache{CacheShape{.layers = 1, .kv_heads = heads, .head_dim = dim, .value_dim = 0}, limits_of(scene),
                       FullCausal{}, RopeShift<Neox>{rope_frequencies(dim, 10000)}};
    std::vector<float> keys(std::size_t{max_batch} * heads * dim);
    for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = std::sin(static_cast<float>(i));
    const std::int32_t tokens = scene.tokens() / max_batch * max_batch;
    const auto store_keys = [&](Position from) {
        for (Position p = from; p.value < tokens; p = p + max_batch) {
            const std::int32_t n = std::min(max_batch, tokens - p.value);
            auto pass = cache.begin(TokenList::prompt(cellar::Sequence{0}, p, n).batch());
            pass->put(0, contiguous_view(keys.data(), n, heads, dim), StridedView<const float, 3>{});
            pass->commit();
        }
    };
    store_keys(Position{0});
    measure(state, [&](Stopwatch& watch) {
        watch.start();
        (void)cache.remove(cellar::Sequence{0}, Position{head}, half_of(scene)).has_value();
        watch.stop();
        store_keys(table_of(cache).record(cellar::Sequence{0}).runs.last() + 1);
    });
}

void measure_copy(benchmark::State& state, const Scene& scene) {
    const std::int32_t rotated = scene.tokens() / max_batch * max_batch - half_of(scene).value;
    const std::size_t bytes = static_cast<std::size_t>(rotated) * heads * dim * sizeof(half);
    const std::vector<char> from(bytes, 1);
    std::vector<char> to(bytes, 2);
    measure(state, [&](Stopwatch& watch) {
        watch.start();
        std::memcpy(to.data(), from.data(), bytes);
        watch.stop();
    });
}

} // namespace

void add_removal() {
    for (const Cell cells : capacities) {
        for (const Scene& scene : {Scene{1, cells}, Scene{8, cells}, Scene{8, cells, 90, Placement::scattered}}) {
            const std::string shape = scene.state() + "/" + scene.name();
            add("remove_tail/" + shape + "/cellar", [=](benchmark::State& state) { measure_tail(state, scene); });
            add("remove_tail/" + shape + "/scan", [=](benchmark::State& state) { measure_tail_by_scan(state, scene); });
            add(
                "remove_shift/" + shape + "/cellar", [=](benchmark::State& state) { measure_shift(state, scene); },
                rebuilds);
            add(
                "remove_shift/" + shape + "/scan",
                [=](benchmark::State& state) { measure_shift_by_scan(state, scene); }, rebuilds);
        }
        if (cells > 32 * 1024) continue;
        const Scene scene{1, cells};
        add(
            "remove_shift_data/contiguous/" + scene.name() + "/cellar",
            [=](benchmark::State& state) { measure_rotation(state, scene); }, rebuilds);
        add(
            "remove_shift_data/contiguous/" + scene.name() + "/memcpy",
            [=](benchmark::State& state) { measure_copy(state, scene); }, rebuilds);
    }
}

} // namespace cellar::bench
