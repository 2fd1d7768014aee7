// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "jobs.hpp"
#include "steps.hpp"

#include <optional>

/// The bookkeeping of `defragment` after every second sequence has ended. `interleaved`: two sequences came in turn, so
/// every second block of 64 cells is a hole. `scattered`: the same under `Placement::scattered`, so every second cell
/// is a hole. `prompts`: 64 sequences, each stored as one prompt.
namespace cellar::bench {
namespace {

constexpr int rebuilds = 10; // every iteration fills a new cache, which takes longer than the measured part

struct BookWithHoles {
    explicit BookWithHoles(const Scene& scene) : book{limits_of(scene)} {
        if (scene.sequences == 2) {
            decode(book, scene.sequences, scene.tokens());
        } else {
            for (std::int32_t s = 0; s < scene.sequences; ++s)
                prefill(book, cellar::Sequence{s}, cellar::Position{0}, scene.tokens());
        }
        for (std::int32_t s = 0; s < scene.sequences; s += 2)
            (void)book.remove(cellar::Sequence{s}, cellar::Position{0}, to_end, detail::MovedKeys::kept).has_value();
    }

    WholeBook book;
};

void measure_cellar(benchmark::State& state, const Scene& scene) {
    measure(state, [&](Stopwatch& watch) {
        BookWithHoles filled{scene};
        WholeBook& book = filled.book;
        watch.start();
        benchmark::DoNotOptimize(book.defragment());
        watch.stop();
    });
}

void measure_scan(benchmark::State& state, const Scene& scene) {
    BookWithHoles filled{scene};
    WholeBook& book = filled.book;
    const ScanCache<FullCausal> holes{table_of(book), FullCausal{}};
    const Plan plan = book.defragment();
    const std::vector<Move> moves(plan.moves.begin(), plan.moves.end());
    measure(state, [&](Stopwatch& watch) {
        ScanCache<FullCausal> scan = holes;
        watch.start();
        const std::vector<Move> found = scan.defragment();
        watch.stop();
        expect(found == moves, "defragment: the scan found different moves");
        expect_same_tokens(table_of(book), scan, "defragment");
    });
}

} // namespace

void add_defragmentation() {
    for (const Cell cells : capacities) {
        for (const Scene& scene : {Scene{2, cells}, Scene{2, cells, 90, Placement::scattered}, Scene{64, cells}}) {
            const std::string tokens = scene.sequences == 64 ? "prompts" : scene.state();
            const std::string name = "defragment/" + tokens + "/" + scene.name();
            add(
                name + "/cellar", [=](benchmark::State& state) { measure_cellar(state, scene); }, rebuilds);
            add(
                name + "/scan", [=](benchmark::State& state) { measure_scan(state, scene); }, rebuilds);
        }
    }
}

} // namespace cellar::bench
