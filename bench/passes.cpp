// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "jobs.hpp"
#include "steps.hpp"

#include <optional>

/// The bookkeeping of a pass: opening it (`begin`), opening and committing it (`begin_commit`), the same with the float
/// mask (`begin_mask_commit`), and dropping it (`drop`). `scattered` is cellar with `Placement::scattered`. `questions`
/// is `begin` after all questions of a scheduler: what is free, what the batch needs, what a sequence would free, and
/// what a tree would give up.
namespace cellar::bench {
namespace {

enum class Timed { begin, begin_commit, begin_mask_commit, drop, begin_after_questions };

struct Job {
    const char* name;
    Timed timed;
};

constexpr Job jobs[] = {{"begin", Timed::begin},
                        {"begin_commit", Timed::begin_commit},
                        {"begin_mask_commit", Timed::begin_mask_commit},
                        {"drop", Timed::drop}};

template <WindowPolicy Window>
void measure_cellar(benchmark::State& state, Timed timed, const Scene& scene, std::int32_t prompt) {
    Steps<Window> steps{scene, prompt};
    {
        auto reserved = steps.cache.reserve(steps.batch().tokens());
        if (timed == Timed::begin_mask_commit) static_cast<void>(reserved.mask());
    }
    measure(state, [&](Stopwatch& watch) {
        const bool ends_open = timed == Timed::begin || timed == Timed::begin_after_questions;
        if (timed != Timed::drop) watch.start();
        if (timed == Timed::begin_after_questions) {
            benchmark::DoNotOptimize(steps.cache.free_cells());
            benchmark::DoNotOptimize(steps.cache.cells_needed(steps.batch()));
            benchmark::DoNotOptimize(steps.cache.cells_freed_by(Sequence{0}));
            benchmark::DoNotOptimize(steps.cache.evictable_cells());
        }
        auto pass = steps.cache.begin(steps.batch());
        if (ends_open) watch.stop();
        if (timed == Timed::drop) {
            watch.start();
            pass->drop();
            watch.stop();
            return;
        }
        if (timed == Timed::begin_mask_commit) benchmark::DoNotOptimize(pass->mask().data_handle());
        pass->mark_put(0);
        pass->commit();
        if (!ends_open) watch.stop();
        steps.advance();
    });
}

template <WindowPolicy Window>
void measure_scan(benchmark::State& state, Timed timed, Scene scene, std::int32_t prompt, Search search,
                  const std::string& job) {
    expect_same_passes<Window>(scene, prompt, search, job);
    scene.placement = Placement::scattered;
    Steps<Window> steps{scene, prompt};
    ScanCache<Window> scan{table_of(steps.cache), steps.cache.window()};
    ZeroedArray<float> mask{timed == Timed::begin_mask_commit ? std::int64_t{steps.batch().tokens()} * scene.cells : 0};
    measure(state, [&](Stopwatch& watch) {
        watch.start();
        benchmark::DoNotOptimize(scan.begin(steps.batch(), search));
        if (timed == Timed::begin_mask_commit) scan.write_mask(steps.batch(), mask.data());
        watch.stop();
        steps.advance(&scan);
    });
}

// A scan has no `drop`, and its `begin` leaves nothing for `commit` to do. The search from the head is measured only
// without windows.
bool has_scan(Timed timed, Search search, bool windowed) {
    if (search == Search::from_head) return !windowed && timed != Timed::begin_commit && timed != Timed::drop;
    return timed != Timed::drop;
}

template <WindowPolicy Window>
void add_cellar(const std::string& name, Timed timed, Scene scene, std::int32_t prompt) {
    for (const Placement placement : {Placement::blocks, Placement::scattered}) {
        scene.placement = placement;
        add(name + (placement == Placement::blocks ? "/cellar" : "/scattered"),
            [=](benchmark::State& state) { measure_cellar<Window>(state, timed, scene, prompt); });
    }
}

template <WindowPolicy Window>
void add_all(const std::string& window, const Scene& scene, std::int32_t prompt) {
    const std::string shape =
        prompt != 0 ? std::to_string(prompt) + "/" + std::to_string(scene.cells / 1024) + "k" : scene.name();
    for (const Job& job : jobs) {
        const std::string name = std::string{job.name} + "/" + window + "/" + shape;
        add_cellar<Window>(name, job.timed, scene, prompt);
        for (const Search search : {Search::from_first, Search::from_head}) {
            if (!has_scan(job.timed, search, window != "full")) continue;
            add(name + (search == Search::from_first ? "/scan" : "/head"),
                [=](benchmark::State& state) { measure_scan<Window>(state, job.timed, scene, prompt, search, name); });
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
        add_all<FullCausal>("full", {1, cells, 50}, max_batch);
        add_all<SlidingWindow<>>("window", {1, cells, 75}, max_batch);
    }
    const Scene many{1000, 1024 * 1024}; // more sequences than the scan has bits for
    for (const Job& job : {jobs[0], jobs[1]})
        add_cellar<FullCausal>(std::string{job.name} + "/full/1000/1024k", job.timed, many, 0);
    add("begin/full/1000/1024k/questions",
        [=](benchmark::State& state) { measure_cellar<FullCausal>(state, Timed::begin_after_questions, many, 0); });
}

} // namespace cellar::bench
