// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "jobs.hpp"
#include "steps.hpp"

#include <optional>

/// A pass without memory: a cell for each token and the history (`begin`), until the tokens are there to stay
/// (`begin_commit`), the same with the float mask (`begin_mask_commit`), and taking a pass back (`drop`).
namespace cellar::bench {
namespace {

enum class Part { begin, begin_commit, begin_mask_commit, drop };

struct Job {
    const char* name;
    Part part;
};

constexpr Job jobs[] = {{"begin", Part::begin},
                        {"begin_commit", Part::begin_commit},
                        {"begin_mask_commit", Part::begin_mask_commit},
                        {"drop", Part::drop}};

template <WindowPolicy Window>
void measure_cellar(benchmark::State& state, Part part, const Scene& scene, std::int32_t prompt) {
    Steps<Window> steps{scene, prompt};
    steps.cache.reserve(steps.batch().tokens()).drop();
    measure(state, [&](Stopwatch& watch) {
        if (part != Part::drop) watch.start();
        auto pass = steps.cache.begin(steps.batch());
        if (part == Part::begin) watch.stop();
        if (part == Part::drop) {
            watch.start();
            pass->drop();
            watch.stop();
            return;
        }
        if (part == Part::begin_mask_commit) benchmark::DoNotOptimize(pass->mask().data_handle());
        pass->commit();
        if (part != Part::begin) watch.stop();
        steps.advance();
    });
}

template <WindowPolicy Window>
void measure_scan(benchmark::State& state, Part part, const Scene& scene, std::int32_t prompt, Search search,
                  const std::string& job) {
    expect_same_passes<Window>(scene, prompt, search, job);
    Steps<Window> steps{scene, prompt};
    ScanCache<Window> scan{table_of(steps.cache), steps.cache.window()};
    ZeroedArray<float> mask{part == Part::begin_mask_commit ? std::int64_t{steps.batch().tokens()} * scene.cells : 0};
    measure(state, [&](Stopwatch& watch) {
        watch.start();
        benchmark::DoNotOptimize(scan.begin(steps.batch(), search));
        if (part == Part::begin_mask_commit) scan.write_mask(steps.batch(), mask.data());
        watch.stop();
        steps.advance(&scan);
    });
}

// A scan has nothing to commit and nothing to drop; the search from a head knows no windows.
bool is_done_by_scan(Part part, Search search, bool windowed) {
    if (search == Search::from_head) return !windowed && part != Part::begin_commit && part != Part::drop;
    return part != Part::drop;
}

template <WindowPolicy Window>
void add_all(const std::string& window, const Scene& scene, std::int32_t prompt) {
    const std::string shape =
        prompt != 0 ? std::to_string(prompt) + "/" + std::to_string(scene.cells / 1024) + "k" : scene.name();
    for (const Job& job : jobs) {
        const std::string name = std::string{job.name} + "/" + window + "/" + shape;
        add(name + "/cellar", [=](benchmark::State& state) { measure_cellar<Window>(state, job.part, scene, prompt); });
        for (const Search search : {Search::from_first, Search::from_head}) {
            if (!is_done_by_scan(job.part, search, window != "full")) continue;
            add(name + (search == Search::from_first ? "/scan" : "/head"),
                [=](benchmark::State& state) { measure_scan<Window>(state, job.part, scene, prompt, search, name); });
        }
    }
}

} // namespace

void add_passes() {
    for (const Cell cells : capacities) {
        for (const std::int32_t sequences : {1, 8, 64}) {
            add_all<FullCausal>("full", {sequences, cells}, 0);
            add_all<SlidingWindow<>>("window", {sequences, cells}, 0);
        }
        add_all<FullCausal>("full", {1, cells, 50}, longest_batch);
        add_all<SlidingWindow<>>("window", {1, cells, 75}, longest_batch);
    }
}

} // namespace cellar::bench
