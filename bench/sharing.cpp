// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "jobs.hpp"
#include "steps.hpp"

#include <optional>

/// Forking a sequence at its end (`copy_prefix`), removing the fork (`remove_all`), and asking whether a sequence can
/// be resumed at a position (`can_resume`). `contiguous`: one sequence, stored as one prompt, fills the cache.
/// `interleaved`: eight sequences grew together token by token. `scattered`: the same under `Placement::scattered`, so
/// no two cells of a sequence are neighbours.
namespace cellar::bench {
namespace {

struct Fork {
    explicit Fork(const Scene& the_scene)
        : scene{the_scene}, book{limits_of(scene, scene.sequences)}, target{scene.sequences} {
        if (scene.sequences == 1) {
            fill(book, scene);
        } else {
            decode(book, scene.sequences, scene.tokens());
        }
    }

    Scene scene;
    WholeBook book;
    Sequence target;
};

void measure_cellar(benchmark::State& state, const Scene& scene, bool copies) {
    Fork fork{scene};
    measure(state, [&](Stopwatch& watch) {
        if (copies) watch.start();
        fork.book.copy_prefix(Sequence{0}, fork.target, Position{scene.tokens()});
        if (copies) watch.stop();
        if (!copies) watch.start();
        (void)fork.book.remove(fork.target, Position{0}, to_end, detail::MovedKeys::kept).has_value();
        if (!copies) watch.stop();
    });
}

void measure_scan(benchmark::State& state, const Scene& scene, bool copies) {
    Fork fork{scene};
    ScanCache<FullCausal> scan{table_of(fork.book), FullCausal{}};
    scan.copy_prefix(Sequence{0}, fork.target, Position{scene.tokens()});
    fork.book.copy_prefix(Sequence{0}, fork.target, Position{scene.tokens()});
    expect_same_tokens(table_of(fork.book), scan, "copy_prefix");
    measure(state, [&](Stopwatch& watch) {
        if (copies) watch.start();
        scan.copy_prefix(Sequence{0}, fork.target, Position{scene.tokens()});
        if (copies) watch.stop();
        if (!copies) watch.start();
        scan.remove(fork.target, Position{0}, to_end);
        if (!copies) watch.stop();
    });
}

constexpr std::int32_t questions = 64;

// Asks about the newest positions. With a window, the older ones of these cannot be resumed.
template <WindowPolicy Window>
void measure_resume(benchmark::State& state, const Scene& scene) {
    const Bookkeeping<Window> cache = filled<Window>(scene);
    const Position end = table_of(cache).record(Sequence{0}).runs.last() + 1;
    measure(state, [&](Stopwatch& watch) {
        int yes = 0;
        watch.start();
        for (std::int32_t i = 0; i < questions; ++i) yes += cache.can_resume(Sequence{0}, end - i) ? 1 : 0;
        benchmark::DoNotOptimize(yes);
        watch.stop(questions);
    });
}

template <WindowPolicy Window>
void measure_resume_by_scan(benchmark::State& state, const Scene& scene) {
    const Bookkeeping<Window> cache = filled<Window>(scene);
    const ScanCache<Window> scan{table_of(cache), cache.window()};
    const Position end = table_of(cache).record(Sequence{0}).runs.last() + 1;
    for (std::int32_t i = 0; i < questions; ++i)
        expect(scan.can_resume(Sequence{0}, end - i) == cache.can_resume(Sequence{0}, end - i),
               "can_resume: the scan gives another answer");
    measure(state, [&](Stopwatch& watch) {
        watch.start();
        benchmark::DoNotOptimize(scan.can_resume(Sequence{0}, end));
        watch.stop();
    });
}

template <WindowPolicy Window>
void add_resume(const std::string& window, const Scene& scene) {
    const std::string name = "can_resume/" + window + "/" + scene.name();
    add(name + "/cellar", [=](benchmark::State& state) { measure_resume<Window>(state, scene); });
    add(name + "/scan", [=](benchmark::State& state) { measure_resume_by_scan<Window>(state, scene); });
}

} // namespace

void add_sharing() {
    for (const Cell cells : capacities) {
        for (const Scene& scene : {Scene{1, cells}, Scene{8, cells}, Scene{8, cells, 90, Placement::scattered}}) {
            const std::string shape = scene.state() + "/" + scene.name();
            for (const bool copies : {true, false}) {
                const std::string name = (copies ? "copy_prefix/" : "remove_all/") + shape;
                add(name + "/cellar", [=](benchmark::State& state) { measure_cellar(state, scene, copies); });
                add(name + "/scan", [=](benchmark::State& state) { measure_scan(state, scene, copies); });
            }
        }
        add_resume<FullCausal>("full", {1, cells});
        add_resume<FullCausal>("full", {8, cells});
        add_resume<SlidingWindow<>>("window", {8, cells});
    }
}

} // namespace cellar::bench
